"""Rankings by elimination: heads leave a set block by block, and all others are ranked again.

For the goal "keep", the set is that of the kept heads: it starts with all heads, and those leave
first without which the metric falls least. For the goal "mask", the set is that of the masked
heads: it starts with all heads, too, and those leave first (they are restored) with which the
metric rises least. The last head to leave ranks first. So a head whose backup has left is seen as
needed, and a set for masking keeps both, because restoring either of them would undo the masking.

greedy      measures each head's leaving
iterative   estimates it by attribution at the gates of the moment: a gradient for each block

A block is a share of the heads that are left. Heads that back each other up look unimportant
together. So `greedy` lets the heads of a block leave one by one, and a head stays for the next
block if its leaving now costs more than it did before the block; `iterative` does not check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.engine.measure.ablations import check_ablation
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.sweep import Sweep
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.models.model import Model
from headcount.rankings.attribution import check_derivatives, count_derivatives, slopes_at
from headcount.rankings.ensemble import check_goal
from headcount.rankings.ranking import Ranking, Settings
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Task

TOLERANCE = 0.01  # of the effect of all heads: a block's head may cost this much more than alone

Held = Bool[np.ndarray, "heads"]
Heads = Int[np.ndarray, "some"]


def greedy(
    model: Model,
    task: Task,
    *,
    goal: str = "keep",
    metric: str = "logprob",
    ablation: str = "zero",
    share: float = 0.2,
    lab: Lab,
) -> HeadScores:
    """Backward elimination in blocks: heads leave first that cost the metric least, measured."""
    measuring = _Measuring(model, task, metric, ablation, goal == "keep", _quiet(lab))
    tolerance = TOLERANCE * abs(float(np.diff(measuring.of([measuring.all, ~measuring.all]))[0]))

    def leave(held: Held, block: int) -> Heads:
        heads = np.flatnonzero(held).tolist()
        now, *without = measuring.of([held, *(_without(held, head) for head in heads)])
        costs = dict(zip(heads, (now - np.array(without)).tolist(), strict=True))
        return measuring.leaving(held, now, costs, block, tolerance)

    return HeadScores(model.layout, _eliminate(model, share, leave, lab), "greedy")


def iterative(
    model: Model,
    task: Task,
    *,
    goal: str = "keep",
    metric: str = "logprob",
    ablation: str = "zero",
    share: float = 0.1,
    lab: Lab,
) -> HeadScores:
    """Iterative attribution: heads leave in blocks, and all others are attributed to again."""
    at_once = Ranking.of(model, task, "attribution", metric=metric, ablation=ablation)

    def leave(held: Held, block: int) -> Heads:
        gates = (held if goal == "keep" else ~held).astype(np.float64)

        def facts() -> dict[str, Any]:
            return {**at_once.context, "gates": gates.astype(int).tolist()}

        def slopes() -> list[float]:
            return list(map(float, slopes_at(model, task, metric, ablation, gates, _quiet(lab))))

        found = np.array(lab.document("slopes", facts, slopes))
        heads = np.flatnonzero(held)
        return heads[np.argsort(found[heads], kind="stable")][:block]

    return HeadScores(model.layout, _eliminate(model, share, leave, lab), "iterative")


def check_elimination(settings: Settings) -> None:
    """Refuse an unknown goal, metric or ablation, and a share that is none."""
    check_goal(settings)
    get_metric(settings["metric"])
    check_ablation(settings["ablation"])
    if not 0 <= settings["share"] < 1:
        raise HeadcountError(
            f"A block is a share of the heads that are left, from 0 (one head) to below 1, not "
            f"{settings['share']:g}."
        )


def check_iterative(settings: Settings) -> None:
    """Refuse the same, and a metric without a derivative."""
    check_elimination(settings)
    check_derivatives(settings)


def count_greedy(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count an upper bound: in each round every head that is left, and again to fill the block."""
    metric, ablation = get_metric(settings["metric"]), settings["ablation"]
    total, key = model.layout.total, repr(sorted(settings.items()))
    entries = [HeadSetEntry("all", np.ones(total)), HeadSetEntry("none", np.zeros(total))]
    for left, block in _rounds(total, settings["share"]):
        for number in range(left if block == 1 else 2 * left):
            entries.append(HeadSetEntry("leaving", Pending((key, left, number))))
    counter.sweep(
        Sweep(model, task, metric, HeadSets.of([], model.layout), "ranking", ablation), entries
    )


def count_iterative(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count a gradient for each block."""
    for _ in _rounds(model.layout.total, settings["share"]):
        count_derivatives(counter, model, task, settings)


def _rounds(total: int, share: float) -> Iterator[tuple[int, int]]:
    """The number of heads that are left in each round, and the size of its block.

    >>> list(_rounds(10, 0.3))
    [(10, 3), (7, 2), (5, 1), (4, 1), (3, 1), (2, 1)]
    """
    left = total
    while left > 1:
        block = max(1, int(left * share))
        yield left, block
        left -= block


def _eliminate(
    model: Model, share: float, leave: Callable[[Held, int], Heads], lab: Lab
) -> Float[np.ndarray, "heads"]:
    """The share of heads that left before each head; `leave` chooses a block of those held."""
    total = model.layout.total
    held, scores = np.ones(total, dtype=bool), np.ones(total)
    with progress_bar("ranking", total, show=lab.progress, unit="head") as bar:
        for left, block in _rounds(total, share):
            leaving = leave(held, block)
            scores[leaving] = (total - left + np.arange(len(leaving))) / total
            held[leaving] = False
            bar.update(len(leaving))
    return scores


def _without(held: Held, head: int) -> Held:
    fewer = held.copy()
    fewer[head] = False
    return fewer


def _quiet(lab: Lab) -> Lab:
    """The lab without its own progress displays, of which there would be hundreds."""
    return replace(lab, progress=False)


@dataclass(frozen=True, eq=False)
class _Measuring:
    """How well a held set does what it is for: to keep the metric high, or to mask it low."""

    model: Model
    task: Task
    metric: str
    ablation: str
    keep: bool
    lab: Lab

    @property
    def all(self) -> Held:
        """The set of all heads."""
        return np.ones(self.model.layout.total, dtype=bool)

    def of(self, sets: list[Held]) -> Float[np.ndarray, "sets"]:
        """The mean metric under each set; its negative for sets of masked heads."""
        gates = [(held if self.keep else ~held).astype(np.float32) for held in sets]
        table = HeadSets.build(self.model.layout, map(HeadSetEntry, range(len(gates)), gates))
        metric = get_metric(self.metric)
        sweep = Sweep(self.model, self.task, metric, table, "ranking", self.ablation)
        means = self.lab.measure(sweep).mean()
        return means if self.keep else -means

    def leaving(
        self, held: Held, quality: float, costs: dict[int, float], block: int, tolerance: float
    ) -> Heads:
        """The heads that leave, one by one; `costs` are those of each head's leaving alone."""
        chosen: list[int] = []
        later: list[tuple[float, int]] = []
        for head, alone in sorted(costs.items(), key=lambda item: item[1]):
            fewer, cost = _without(held, head), alone
            if chosen:
                (left,) = self.of([fewer])
                cost = quality - left
            if cost > max(alone, 0.0) + tolerance:
                later.append((cost, head))
                continue
            chosen, held, quality = [*chosen, head], fewer, quality - cost
            if len(chosen) == block:
                break
        return np.array([*chosen, *(head for _, head in sorted(later))][:block])
