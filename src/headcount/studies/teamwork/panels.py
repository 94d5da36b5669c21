"""The panels of `teamwork`: one task each, its best heads, and their losses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any
from zlib import crc32

from headcount.curves.teamwork import WHOLE, HeadsOff, Losses, Places, Roles, total
from headcount.metrics import get_metric
from headcount.metrics.chance import chance_of
from headcount.stats import Estimate, Interval, Resampling, simultaneous
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "series", "places", "metric", "count")
SHARED = ("model", "task")


def place_names(label: HeadsOff) -> str:
    """The places of the heads that are off, from 1 on, as the table of values has them.

    >>> place_names(HeadsOff("top", (0, 3)))
    '1 4'
    """
    return " ".join(str(place + 1) for place in label.places)


@dataclass(frozen=True, eq=False)
class TeamPanel:
    """One task."""

    key: str
    values: ValueTable
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The task's name for readers."""
        return str(self.facts["tasks"][self.key])

    @property
    def heads(self) -> list[str]:
        """The best heads of the ranking, best first."""
        return list(self.facts["best"][self.key])

    @property
    def pairs(self) -> list[Places]:
        """The places of all pairs of these."""
        return list(combinations(range(len(self.heads)), 2))

    @property
    def counts(self) -> list[int]:
        """The sizes of the sets of best heads."""
        return [int(count) for count in self.facts["counts"]]

    @cached_property
    def roles(self) -> Roles:
        """What the best heads are to each other, which was found on other prompts."""
        place = {head: number for number, head in enumerate(self.heads)}
        against, repairers = (self.facts[name][self.key] for name in ("against", "repairers"))
        return Roles(
            tuple(place[head] for head in against),
            {place[head]: tuple(place[o] for o in some) for head, some in repairers.items()},
        )

    @cached_property
    def losses(self) -> Losses:
        """The losses under all head sets; each panel has a seed of its own."""
        first, tables = {"model": self.facts["model"], "task": self.key}, {}
        for about in self.values.facts(**first):
            places = tuple(int(place) - 1 for place in about["places"].split())
            tables[HeadsOff(about["series"], places)] = self.values.get(**about)
        items = Resampling(self.values.clusters(**first), seed=crc32(self.key.encode()))
        return Losses(items, tables)

    @property
    def items(self) -> Resampling:
        """Resamples of the prompts."""
        return self.losses.items

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        metric = get_metric(self.facts["metrics"][self.key])
        chance = chance_of(metric, ())
        whole = self.items.estimate(self.losses.tables[WHOLE]).interval
        return chance.sentence(whole, metric.name) if chance else ""

    @cached_property
    def interactions(self) -> dict[Places, Estimate]:
        """The interaction of each pair."""
        return {pair: self.losses.beyond(pair) for pair in self.pairs}

    @cached_property
    def together(self) -> dict[Places, Interval]:
        """Intervals of these that hold together over all pairs."""
        return dict(zip(self.pairs, simultaneous(list(self.interactions.values())), strict=True))

    def helping(self, pair: Places) -> bool:
        """Whether none of the two works against the answer."""
        return not {*pair} & {*self.roles.against}

    def named(self, places: Places) -> str:
        """The names of the heads at these places.

        >>> TeamPanel("ioi", ValueTable((), ()), {"best": {"ioi": ["9.1", "8.0"]}}).named((0, 1))
        '9.1 and 8.0'
        """
        return " and ".join(self.heads[place] for place in places)

    def repaired(self) -> Estimate:
        """The sum over heads with repairers of what these repair."""
        return total([self.losses.repaired(*pair) for pair in self.roles.repairers.items()])

    def without_repairers(self) -> Estimate:
        """The sum over heads with repairers of what they cost once these are off."""
        return total([self.losses.without(*pair) for pair in self.roles.repairers.items()])

    def by_others(self, head: int) -> Estimate | None:
        """What as many of the other best heads would repair as a head has repairers.

        It is the mean interaction with those that are none, times the number of repairers; None
        where all others are.
        """
        own = self.roles.repairers[head]
        others = [p for p in range(len(self.heads)) if p != head and p not in own]
        if not others:
            return None
        several = total([self.losses.beyond((head, other)) for other in others])
        return several * (len(own) / len(others))


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[TeamPanel]:
    """The panels of a result, in the order of its figure."""
    return [TeamPanel(key, values, facts) for key in facts["tasks"]]
