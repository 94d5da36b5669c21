"""Heads off alone, in pairs and together: what their joint losses are beyond the sum of the single.

A loss is the share of the whole model's metric that goes with some heads: 1 − M(heads off) / M(all
heads). M is a difference of logits, so 0 is chance, and effects of heads that have nothing to do
with each other add up. For two heads,

    interaction(i, j) = loss(i and j) − loss(i) − loss(j) = loss of i with j off − loss of i

It is positive where i costs more once j is off, because j repairs some of what i did: j backs i up
or, if j works against the answer (its own loss is below 0), it holds back. It is negative where the
two overlap: i costs less once j is off. Heads are named by their places in the ranking, or in
random orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations

import numpy as np
from jaxtyping import Float

from headcount.curves.explained import share_of_span
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending, head_gates
from headcount.engine.measure.sweep import Sweep, Values
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import Metric
from headcount.models.model import Model
from headcount.rankings import Ranking
from headcount.rankings.random_draws import draw_random
from headcount.stats import Estimate, Resampling, combine
from headcount.tasks import Task

TOP, RANDOM = "top", "random"
MARGIN = 0.05  # of the metric: a smaller interaction, or harm, is none
Places = tuple[int, ...]


@dataclass(frozen=True)
class HeadsOff:
    """Which heads are off: their places, from 0 on, in the ranking (top) or in a random order."""

    series: str = TOP
    places: Places = ()


WHOLE = HeadsOff()


@dataclass(frozen=True)
class Roles:
    """What heads are to each other, by their places.

    against     those that work against the answer: off alone, they raise the metric
    repairers   of each other head, those with which its interaction is positive, if there are any
    """

    against: Places = ()
    repairers: Mapping[int, Places] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Losses:
    """The losses of one task: `tables` has the metric of each item by the heads that are off.

    Tables of (draws, items) with several draws are of random orders, which are the same in all.
    """

    items: Resampling
    tables: Mapping[HeadsOff, Float[np.ndarray, "draws items"]]

    @cached_property
    def _estimates(self) -> dict[HeadsOff, Estimate]:
        whole, found = self.tables[WHOLE], {}
        for draws in {len(table) for table in self.tables.values()}:
            labels = [label for label, table in self.tables.items() if len(table) == draws]
            shape = draws, whole.shape[1]
            ends = np.broadcast_to(whole, shape), np.zeros(shape)
            table = np.stack([ends[0], *(self.tables[label] for label in labels), ends[1]], -1)
            means = self.items.columns(table, RANDOM)  # (draws, items, head sets)
            span = -float(whole.mean())
            point = share_of_span(span, np.asarray(means.value), 0.0)
            shares = combine(partial(share_of_span, span, near=point), means)
            for column, label in enumerate(labels, start=1):
                found[label] = combine(partial(np.take, indices=column, axis=-1), shares)
        return found

    def of(self, *places: int, series: str = TOP) -> Estimate:
        """The loss with the heads of these places off."""
        return self._estimates[HeadsOff(series, tuple(sorted(places)))]

    def singles(self, places: Sequence[int], series: str = TOP) -> Estimate:
        """The sum of the losses with one of these heads off at a time."""
        return total([self.of(place, series=series) for place in places])

    def beyond(self, places: Sequence[int], series: str = TOP) -> Estimate:
        """The joint loss of these heads minus the sum of their single losses."""
        return self.of(*places, series=series) - self.singles(places, series)

    def repaired(self, place: int, repairers: Places) -> Estimate:
        """How much more a head costs once its repairers are off."""
        return self.without(place, repairers) - self.of(place)

    def without(self, place: int, repairers: Places) -> Estimate:
        """What a head costs once its repairers are off."""
        return self.of(place, *repairers) - self.of(*repairers)

    def roles(self, top: int) -> Roles:
        """What the `top` heads are to each other."""
        against = tuple(place for place in range(top) if exceeds(self.of(place) * -1))
        found: dict[int, Places] = {}
        for pair in combinations(range(top), 2):
            if exceeds(self.beyond(pair)):
                for head, other in (pair, pair[::-1]):
                    if head not in against:
                        found[head] = tuple(sorted((*found.get(head, ()), other)))
        return Roles(against, dict(sorted(found.items())))


def exceeds(found: Estimate) -> bool:
    """Whether an estimate exceeds the margin, and its own interval lies above 0."""
    return bool(found.value > MARGIN and found.interval.low > 0)


def total(estimates: Sequence[Estimate]) -> Estimate:
    """The sum of several estimates."""
    return combine(lambda *values: sum(values), *estimates)


@dataclass(frozen=True, eq=False)
class Teamwork:
    """The result of a `TeamworkRequest`: values by `HeadsOff`, scores, and roles by place."""

    values: Values
    scores: HeadScores
    roles: Roles


@dataclass(frozen=True, eq=False)
class TeamworkRequest:
    """The best heads of a ranking, off alone, in pairs and in sets; and sets of random heads.

    `finding` is a task on whose test split the roles of heads are found; they are tested on that of
    `task`, where each head is also off together with its repairers.
    """

    model: Model
    ranking: Ranking
    finding: Task
    task: Task
    metric: Metric
    top: int
    counts: Sequence[int]
    seeds: int
    ablation: str

    @property
    def pairs(self) -> list[Places]:
        """All pairs of the best heads."""
        return list(combinations(range(self.top), 2))

    def labels(self, roles: Roles | None = None) -> list[HeadsOff]:
        """What is off: nothing, one head, two; with roles also larger sets and random heads."""
        places: list[Places] = [(), *((place,) for place in range(self.top)), *self.pairs]
        random: list[Places] = []
        if roles is not None:
            sets = [tuple(range(count)) for count in self.counts]
            random = [*places[1 : self.top + 1], *sets]
            own = [tuple(sorted((head, *some))) for head, some in roles.repairers.items()]
            places += [*sets, *roles.repairers.values(), *own]
        labels = [HeadsOff(TOP, some) for some in places]
        return list(dict.fromkeys([*labels, *(HeadsOff(RANDOM, some) for some in random)]))

    def entries(
        self, scores: HeadScores | None, labels: Sequence[HeadsOff]
    ) -> Iterator[HeadSetEntry]:
        """The head sets; pending while the scores are not known."""
        layout = self.model.layout
        for label in labels:
            for draw in range(self.seeds if label.series == RANDOM else 1):
                if not label.places:
                    yield HeadSetEntry(label, head_gates(layout, []))
                elif scores is None:
                    yield HeadSetEntry(label, Pending((self.ranking.key, draw, label)))
                else:
                    random = label.series == RANDOM
                    order = (
                        random_order(scores, self.top, draw) if random else scores.best(self.top)
                    )
                    heads = [order[place] for place in label.places]
                    yield HeadSetEntry(label, head_gates(layout, heads))

    def _sweep(self, task: Task, table: HeadSets) -> Sweep:
        return Sweep(self.model, task, self.metric, table, "test", self.ablation)

    def _built(self, task: Task, scores: HeadScores, labels: Sequence[HeadsOff]) -> Sweep:
        return self._sweep(task, HeadSets.build(self.model.layout, self.entries(scores, labels)))

    def count(self, counter: Counter) -> None:
        """Count the ranking and all head sets; until roles are found, every head has repairers."""
        self.ranking.count(counter)
        scores = self.ranking.known(counter.store)
        empty = HeadSets.of([], self.model.layout)
        counter.sweep(self._sweep(self.finding, empty), self.entries(scores, self.labels()))
        roles: Roles | None = None
        if scores is not None:
            ahead, sweep = Counter(counter.store), self._built(self.finding, scores, self.labels())
            ahead.sweep(sweep)
            if not ahead.cost.tokens:  # the store holds all values, so nothing runs here
                roles = self._roles(Lab(counter.store, progress=False), scores)
        entries = list(self.entries(scores, self.labels(roles or Roles())))
        if roles is None:
            keys = [(self.ranking.key, kind, p) for kind in range(2) for p in range(self.top)]
            entries += [HeadSetEntry(key, Pending(key)) for key in keys]
        counter.sweep(self._sweep(self.task, empty), entries)

    def _roles(self, lab: Lab, scores: HeadScores) -> Roles:
        """The roles of the best heads, on the prompts for finding them."""
        values = lab.measure(self._built(self.finding, scores, self.labels()))
        tables = {label: values.of(label) for label in self.labels()}
        return Losses(Resampling(values.clusters), tables).roles(self.top)

    def result(self, lab: Lab) -> Teamwork:
        """Rank the heads, find their roles, and measure all head sets on the test split."""
        self._sweep(self.task, HeadSets.of([], self.model.layout)).check()
        scores = self.ranking.result(lab)
        roles = self._roles(lab, scores)
        values = lab.measure(self._built(self.task, scores, self.labels(roles)))
        return Teamwork(values, scores, roles)


def random_order(scores: HeadScores, top: int, draw: int) -> list[int]:
    """As many random heads as the `top` best ones, outside these."""
    best = scores.best(top).tolist()
    return draw_random(scores.layout, top, outside=best, seed=draw).tolist()  # type: ignore[no-any-return]
