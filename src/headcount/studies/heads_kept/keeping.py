"""Keep only some heads: which prompts, which orders, and what the metric gives for every count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.curves.explained import Explained, explained_effect
from headcount.engine.measure.evaluate import evaluate
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.rankings import RANKINGS, rank
from headcount.store import Store
from headcount.tasks import Encoded, Task, encode

ALIKE = 3  # ranking prompts of one template and length that a mean by position needs


@dataclass(frozen=True, eq=False)
class Prompts:
    """What is measured on: prompts to test, those behind the means, and those to rank on."""

    measured: Task  # the tested prompts, and the whole ranking part, over which means are taken
    ranked: Task  # those of the ranking part that heads are ranked on
    by_position: bool
    left_out: int  # test prompts without their like in the ranking part

    @property
    def tested(self) -> Task:
        """The prompts that curves are measured on."""
        return self.measured.part("test")


def choose_prompts(task: Task, model: Model, n: int, ranked: int) -> Prompts:
    """Take `n` test prompts, and `ranked` of the ranking part to rank on.

    Means by position need prompts of the same template and length in the ranking part. Test prompts
    without them are left out, unless that leaves fewer than half: then all stay, and means are over
    all positions.
    """
    ranking, test = task.part("ranking"), task.part("test")
    there = Counter(_place(one, corrupted=True) for one in encode(ranking, model.tokenizer))
    alike = tuple(
        one.example
        for one in encode(test, model.tokenizer)
        if one.example.template and there[_place(one, corrupted=False)] >= ALIKE
    )
    by_position = 2 * len(alike) >= len(test)
    usable = replace(test, examples=alike) if by_position else test
    tested = usable.subset(min(n, len(usable)))
    return Prompts(
        replace(task, examples=(*ranking.examples, *tested.examples)),
        ranking.subset(min(ranked, len(ranking))),
        by_position,
        len(test) - len(alike) if by_position else 0,
    )


def _place(one: Encoded, corrupted: bool) -> tuple[str, int]:
    prompt = one.corrupted if corrupted and one.corrupted is not None else one.prompt
    return one.example.template, len(prompt) + len(one.target) - 1


def rank_heads(
    model: Model,
    prompts: Prompts,
    method: str,
    metric: str,
    *,
    per_prompt: bool = False,
    store: Store | None = None,
    progress: bool = True,
) -> HeadScores:
    """Score heads by what they do to the metric when they say what they say on the twin.

    On the ranking prompts; with `per_prompt` on the tested ones, whose samples then have one row
    of scores for each.
    """
    known = RANKINGS[method].defaults()
    wanted: dict[str, Any] = {"metric": metric, "stand_in": "corrupted"}
    settings = {name: value for name, value in wanted.items() if name in known}
    task = prompts.ranked
    if per_prompt:
        # The split keeps contents apart, and here there is nothing to keep apart.
        task = replace(prompts.tested, test_contents=frozenset({"nothing"}))
    scores = rank(model, task, method, store=store, progress=progress, **settings)
    if per_prompt and (scores.samples is None or len(scores.samples) != len(task)):
        raise HeadcountError(
            f'The ranking "{method}" has no scores by prompt: rank per task, or by patching, '
            "attribution or integrated-gradients."
        )
    return scores


@dataclass(frozen=True, eq=False)
class Order:
    """Heads from the first to keep to the last, in one row or several.

    Rows are draws of a random order, each for all prompts, or, `per_prompt`, one for each prompt.
    """

    name: str
    heads: Int[np.ndarray, "rows heads"]
    counts: tuple[int, ...]
    per_prompt: bool = False


def order_of(
    name: str, scores: HeadScores, counts: Sequence[int], *, per_prompt: bool = False
) -> Order:
    """The order of a ranking, or of each prompt's own scores."""
    rows = scores.samples if per_prompt and scores.samples is not None else scores.values[None]
    return Order(name, np.argsort(-rows, axis=1, kind="stable"), tuple(counts), per_prompt)


def random_orders(total: int, draws: int, counts: Sequence[int]) -> Order:
    """Orders in which any other must need fewer heads."""
    rows = [np.random.default_rng([seed, total]).permutation(total) for seed in range(draws)]
    return Order("random", np.stack(rows), tuple(counts))


@dataclass(frozen=True, eq=False)
class Kept:
    """The metric with only some heads kept: (draws, prompts) for each order and count."""

    values: dict[tuple[str, int], Float[np.ndarray, "draws prompts"]]
    prompts: tuple[str, ...]
    clusters: Int[np.ndarray, " prompts"]
    stand_in: str

    def explained(self, order: str) -> Explained:
        """The explained effect along one order."""
        own = {count: table for (name, count), table in self.values.items() if name == order}
        return explained_effect(own, self.clusters)


def keep(
    model: Model,
    task: Task,
    orders: Sequence[Order],
    *,
    metric: str,
    stand_in: str,
    store: Store | None = None,
    progress: bool = True,
) -> Kept:
    """Measure the metric on the test part with the first heads of each order kept.

    No head and all heads are counts of every order. Each head set is measured once, however many
    orders share it.
    """
    total, prompts = model.layout.total, len(task.part("test"))
    gates: list[Float[np.ndarray, "heads"]] = []
    known: dict[bytes, int] = {}
    only: list[np.ndarray] = []  # which prompts want each head set
    rows: dict[tuple[str, int], list[int]] = {}

    def row_of(heads: Int[np.ndarray, "some"], wanted: slice) -> int:
        row = np.zeros(total, dtype=np.float32)
        row[heads] = 1
        place = known.setdefault(row.tobytes(), len(gates))
        if place == len(gates):
            gates.append(row)
            only.append(np.zeros(prompts, dtype=bool))
        only[place][wanted] = True
        return place

    for order in orders:
        for count in sorted({0, *order.counts, total}):
            rows[order.name, count] = [
                row_of(heads[:count], slice(i, i + 1) if order.per_prompt else slice(None))
                for i, heads in enumerate(order.heads)
            ]
    measured = evaluate(
        model,
        task,
        np.stack(gates),
        metric=metric,
        stand_in=stand_in,
        only=np.stack(only),
        store=store,
        progress=progress,
    )
    own = {order.name for order in orders if order.per_prompt}
    values = {
        (name, count): measured.values[places, range(prompts)][None]
        if name in own
        else measured.values[places]
        for (name, count), places in rows.items()
    }
    return Kept(values, measured.examples, measured.clusters, measured.stand_in)
