"""Keep only the first k heads of an order and ablate all others: the metric at each k.

An order is that of a ranking, by its scores or by their absolute values, or a random one. Which
heads come first depends on the rankings, but the number of head sets does not, so a `KeepRequest`
can be counted before anything runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending, head_gates
from headcount.engine.measure.sweep import Sweep, Values, whole_model
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import Metric
from headcount.metrics.chance import chance_of
from headcount.models.model import Model
from headcount.rankings import Ranking
from headcount.tasks import Task

RANDOM = "random"  # the name of the random orders
ABSOLUTE = ", absolute"  # the end of the name of an order by absolute scores


@dataclass(frozen=True, eq=False)
class KeepRequest:
    """A metric on the test split with only the first heads of each order kept, at every count.

    rankings     the rankings, by their names
    counts       the numbers of heads kept, besides none and all
    seeds        the number of random orders
    absolute     each ranking is also used by the absolute values of its scores
    per_prompt   each prompt keeps the heads that rank first by the prompt's own scores
    ablations    the first order is measured with each of these ablations, all other orders only
                 with the first of them
    """

    model: Model
    task: Task
    rankings: Mapping[str, Ranking]
    metric: Metric
    counts: Sequence[int]
    seeds: int = 0
    absolute: bool = False
    per_prompt: bool = False
    ablations: tuple[str, ...] = ("mean",)

    @cached_property
    def prompts(self) -> int:
        """How many prompts are tested."""
        return len(self.task.split("test"))

    def orders(self, ablation: str) -> list[str]:
        """The orders that are measured with an ablation."""
        names = list(self.rankings)
        names += [f"{name}{ABSOLUTE}" for name in self.rankings] * self.absolute
        names += [RANDOM] * bool(self.seeds)
        return names if ablation == self.ablations[0] else names[:1]

    @cached_property
    def all_counts(self) -> list[int]:
        """The counts with none and all."""
        return sorted({0, *self.counts, self.model.layout.total})

    def entries(self, ablation: str, scores: Mapping[str, HeadScores]) -> Iterator[HeadSetEntry]:
        """The head sets of an ablation; pending where they depend on scores that are not known."""
        layout = self.model.layout
        for order in self.orders(ablation):
            own = self.per_prompt and order != RANDOM
            heads = self._heads(order, scores)  # (rows, heads)
            rows = self.prompts if own else 1 if heads is None else len(heads)
            key = None if heads is not None else (self.rankings[ranking_of(order)].key, order)
            for count, row in product(self.all_counts, range(rows)):
                gates: Float[np.ndarray, "heads"] | Pending
                if count in (0, layout.total):
                    gates = head_gates(layout, range(count), keep=True)
                elif heads is None:
                    gates = Pending((key, "keep", count, row))
                else:
                    best = self._best(order, count, scores)
                    first = heads[row, :count] if best is None else best
                    gates = head_gates(layout, first, keep=True)
                yield HeadSetEntry((order, count), gates, row if own else None)

    def _best(
        self, order: str, count: int, scores: Mapping[str, HeadScores]
    ) -> Int[np.ndarray, "count"] | None:
        """The heads of a ranking that made a set of its own for each count; None for others."""
        made = scores.get(order)
        return None if made is None or made.sets is None or self.per_prompt else made.best(count)

    def _heads(
        self, order: str, scores: Mapping[str, HeadScores]
    ) -> Int[np.ndarray, "rows heads"] | None:
        """Heads from the first to keep to the last; None while their scores are not known.

        There is one row of heads, or one for each random order, or one for each prompt.
        """
        total = self.model.layout.total
        if order == RANDOM:
            seeds = range(self.seeds)
            return np.stack([np.random.default_rng([s, total]).permutation(total) for s in seeds])
        ranking = ranking_of(order)
        if ranking not in scores:
            return None
        rows = scores[ranking].samples if self.per_prompt else scores[ranking].values[None]
        if rows is None or (self.per_prompt and len(rows) != self.prompts):
            raise HeadcountError(
                f'The ranking "{ranking}" has no scores by prompt: rank per task, or by patching, '
                "attribution or integrated-gradients."
            )
        rows = np.abs(rows) if order.endswith(ABSOLUTE) else rows
        return np.argsort(-rows, axis=1, kind="stable")

    def _sweep(self, ablation: str, head_sets: HeadSets) -> Sweep:
        return Sweep(self.model, self.task, self.metric, head_sets, "test", ablation)

    def count(self, counter: Counter) -> None:
        """Count the cost of the rankings and of all head sets."""
        scores = {}
        for name, ranking in self.rankings.items():
            ranking.count(counter)
            if (known := ranking.known(counter.store)) is not None:
                scores[name] = known
        empty = HeadSets.of([], self.model.layout)
        if chance_of(self.metric, self.task) is None:
            counter.sweep(whole_model(self.model, self.task, self.metric))
        for ablation in self.ablations:
            counter.sweep(self._sweep(ablation, empty), self.entries(ablation, scores))

    def result(self, lab: Lab) -> Kept:
        """Rank the heads, then keep more and more of them."""
        scores: dict[str, HeadScores] = {}
        for name, ranking in self.rankings.items():
            scores[name] = ranking.result(lab)
            self._heads(name, scores)  # refuse unsuitable scores before computing the next ones
        values = {}
        for ablation in self.ablations:
            entries = self.entries(ablation, scores)
            table = HeadSets.build(self.model.layout, entries, self.prompts)
            values[ablation] = lab.measure(self._sweep(ablation, table))
        whole = next(iter(values.values()))
        if not whole.tells_chance:
            whole = lab.measure(whole_model(self.model, self.task, self.metric))
        return Kept(self, values, scores, whole.at_chance)


@dataclass(frozen=True, eq=False)
class Kept:
    """The result of a `KeepRequest`: values by ablation, labelled (order, count), and scores."""

    request: KeepRequest
    values: Mapping[str, Values]
    scores: Mapping[str, HeadScores]
    at_chance: str = ""  # one sentence if the whole model is not clearly better than chance


def ranking_of(order: str) -> str:
    """The ranking that an order comes from.

    >>> ranking_of("patching, absolute")
    'patching'
    """
    return order.removesuffix(ABSOLUTE)
