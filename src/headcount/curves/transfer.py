"""Transfer: rank the heads on several tasks, mask the best of each, and test on one of the tasks.

series    masked heads
whole     none
top       the k best heads of the ranking on `ranked`
matched   random heads outside these, as many in each layer, in several draws
without   the k best heads of the ranking on `ranked` that are not among the k best on `without`
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending, head_gates
from headcount.engine.measure.sweep import Sweep, Values
from headcount.engine.write.writing import Scope
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import Metric, TextMetric
from headcount.models.model import Model
from headcount.rankings import Ranking
from headcount.rankings.random_draws import draw_matched

WHOLE, TOP, MATCHED, WITHOUT = "whole", "top", "matched", "without"


@dataclass(frozen=True)
class MaskedHeads:
    """Which heads are masked: a series, the task they were ranked on, and how many they are.

    `without` is the task whose best heads are left out.
    """

    series: str
    ranked: str = ""
    count: int = 0
    without: str = ""


@dataclass(frozen=True, eq=False)
class TransferRequest:
    """One of several tasks, tested with the best heads of each of them masked, and with controls.

    `rankings` has the ranking on every task, by the task's key; `tested` is one of these keys.
    """

    model: Model
    rankings: Mapping[str, Ranking]
    tested: str
    metric: Metric | TextMetric
    counts: Sequence[int]
    seeds: int
    scope: Scope = "all"
    epsilon: float = 0.0

    @property
    def labels(self) -> Iterator[MaskedHeads]:
        """All series: the best heads of every task, and those without shared ones where tested."""
        yield MaskedHeads(WHOLE)
        for count in self.counts:
            for ranked in self.rankings:
                yield MaskedHeads(TOP, ranked, count)
                yield MaskedHeads(MATCHED, ranked, count)
                if ranked != self.tested:
                    yield MaskedHeads(WITHOUT, ranked, count, self.tested)
                    yield MaskedHeads(WITHOUT, self.tested, count, ranked)

    def entries(self, scores: Mapping[str, HeadScores]) -> Iterator[HeadSetEntry]:
        """The head sets of all series; pending where they depend on scores that are not known."""
        for label in self.labels:
            needed = {label.ranked, label.without} - {""}
            for draw in range(self.seeds if label.series == MATCHED else 1):
                gates: Any
                if needed <= scores.keys():
                    heads = self._heads(scores, label, draw)
                    gates = head_gates(self.model.layout, heads, off=self.epsilon)
                else:
                    gates = Pending((label, draw, self.epsilon, *self._keys(needed)))
                yield HeadSetEntry(label, gates)

    def _keys(self, tasks: set[str]) -> list[Any]:
        return [self.rankings[task].key for task in sorted(tasks)]

    def _heads(
        self, scores: Mapping[str, HeadScores], label: MaskedHeads, draw: int
    ) -> Sequence[int]:
        if label.series == WHOLE:
            return []
        own = scores[label.ranked]
        best: list[int] = own.best(label.count).tolist()
        if label.series == MATCHED:
            return draw_matched(self.model.layout, best, seed=draw)[0].tolist()  # type: ignore[no-any-return]
        if label.series == WITHOUT:
            return best_without(own, scores[label.without], label.count)
        return best

    def _sweep(self, head_sets: HeadSets) -> Sweep:
        task = self.rankings[self.tested].task
        return Sweep(self.model, task, self.metric, head_sets, "test", scope=self.scope)

    def count(self, counter: Counter) -> None:
        """Tell the counter what all rankings and head sets will measure."""
        known = {key: ranking.known(counter.store) for key, ranking in self.rankings.items()}
        for ranking in self.rankings.values():
            ranking.count(counter)
        scores = {key: found for key, found in known.items() if found is not None}
        counter.sweep(self._sweep(HeadSets.of([], self.model.layout)), self.entries(scores))

    def result(self, lab: Lab) -> Values:
        """The values of the tested task, labelled by `MaskedHeads`."""
        self._sweep(HeadSets.of([], self.model.layout)).check()
        scores = {key: ranking.result(lab) for key, ranking in self.rankings.items()}
        return lab.measure(self._sweep(HeadSets.build(self.model.layout, self.entries(scores))))


def best_without(own: HeadScores, other: HeadScores, count: int) -> list[int]:
    """The `count` best heads of `own` that are not among the `count` best of `other`.

    >>> import numpy as np
    >>> from headcount.heads import HeadLayout
    >>> own, other = (HeadScores(HeadLayout((4,)), np.array(values), "by hand")
    ...               for values in ([4.0, 3.0, 2.0, 1.0], [3.0, 1.0, 2.0, 0.0]))
    >>> best_without(own, other, 2)
    [1, 3]
    """
    shared = set(other.best(count).tolist())
    order = dict.fromkeys([*own.best(count).tolist(), *own.order().tolist()])
    return [head for head in order if head not in shared][:count]
