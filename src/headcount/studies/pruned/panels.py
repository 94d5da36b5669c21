"""The panels of `pruned`: one task each, or the text, and means over tasks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from jaxtyping import Float

from headcount.curves.pruned import BEST, RANDOM, WHOLE, PrunedHeads
from headcount.metrics.chance import Chance
from headcount.models.groups import GROUPS
from headcount.stats import Estimate, Interval, Resampling, constant, mean_of, share_interval
from headcount.studies.pruned.config import TEXT
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "metric", "kept", "series", "treatment", "count")
SHARED = ("model", "task")
ACCURACY, LOSS = "accuracy", "loss"
SPEED = "speed"  # stands for a task, whose examples are the rounds of a measurement
SPEEDS = ("reading", "writing")


@dataclass(frozen=True, eq=False)
class PrunedPanel:
    """One task, or the text: the value of every example under every head set."""

    key: str
    values: ValueTable
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Its name for readers."""
        return str(self.facts["tasks"][self.key])

    @property
    def metric(self) -> str:
        """The loss on the text, the accuracy on tasks."""
        return LOSS if self.key == TEXT else ACCURACY

    @cached_property
    def items(self) -> Resampling:
        """Resamples of the examples; each panel has a seed of its own."""
        clusters = self.values.clusters(model=self.facts["model"], task=self.key)
        return Resampling(clusters, seed=crc32(self.key.encode()))

    def table(self, heads: PrunedHeads) -> Float[np.ndarray, "draws examples"]:
        """The values under these heads, one row for each draw."""
        about = {"model": self.facts["model"], "task": self.key, "metric": self.metric}
        return self.values.get(**about, **asdict(heads))

    def interval(self, heads: PrunedHeads) -> Interval:
        """The mean over draws and examples."""
        table = self.table(heads)
        found = self.items.estimate(table, draws=f"{heads.kept} {heads.count}")
        return share_interval(found, self.items) if self.metric == ACCURACY else found.interval

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        known = self.facts["chance"].get(self.key)
        if known is None:
            return ""
        return Chance(**known).sentence(self.interval(PrunedHeads()), "Accuracy")


@dataclass(frozen=True, eq=False)
class PrunedPanels:
    """All panels of a result."""

    values: ValueTable
    facts: Mapping[str, Any]

    @cached_property
    def tasks(self) -> list[PrunedPanel]:
        """The tasks, in their order."""
        keys = [key for key in self.facts["tasks"] if key != TEXT]
        return [PrunedPanel(key, self.values, self.facts) for key in keys]

    @cached_property
    def text(self) -> PrunedPanel:
        """The text."""
        return PrunedPanel(TEXT, self.values, self.facts)

    def of(self, metric: str) -> list[PrunedPanel]:
        """The panels over which the mean is taken: tasks better than chance, or the text.

        If the whole model is at chance on every task, these are all of them.
        """
        if metric == LOSS:
            return [self.text]
        return [panel for panel in self.tasks if not panel.at_chance] or self.tasks

    @property
    def sizes(self) -> list[Mapping[str, Any]]:
        """Each size: what is removed, how much is kept, and its footprint."""
        return list(self.facts["sizes"])

    def treatments(self, size: Mapping[str, Any], series: str = BEST) -> list[str]:
        """What was done to the models of a size."""
        how = {"task": TEXT, "kept": size["kept"], "count": size["count"], "series": series}
        return [str(found["treatment"]) for found in self.values.facts(**how)]

    def points(self, size: Mapping[str, Any]) -> Iterator[PrunedHeads]:
        """All head sets of a size."""
        for series in (BEST, RANDOM):
            for treatment in self.treatments(size, series):
                yield PrunedHeads(series, treatment, size["kept"], size["count"])

    def mean(self, metric: str, heads: PrunedHeads) -> Estimate:
        """The mean over panels. All of them have the same random draws, a level of their own."""
        panels = self.of(metric)
        found = mean_of([panel.items.estimate(panel.table(heads).mean(0)) for panel in panels])
        return found + self._drawn(panels, heads)

    def difference(self, metric: str, one: PrunedHeads, other: PrunedHeads) -> Estimate:
        """One mean minus another, paired by example."""
        panels = self.of(metric)
        found = mean_of(
            [p.items.difference(p.table(one).mean(0), p.table(other).mean(0)) for p in panels]
        )
        if other.series == RANDOM:
            found = found - self._drawn(panels, other)
        found = found + self._drawn(panels, one) if one.series == RANDOM else found
        return found.limited(-1, 1) if metric == ACCURACY else found

    def _drawn(self, panels: Sequence[PrunedPanel], heads: PrunedHeads) -> Estimate:
        """How the mean over panels varies with the random draws, around 0."""
        means = np.mean([panel.table(heads).mean(1) for panel in panels], axis=0)  # (draws,)
        if len(means) < 2:
            return constant(0.0)
        # All treatments of a size have the same draws.
        name = f"{heads.kept} {heads.count} {len(means)}"
        known: dict[str, Resampling] = vars(self).setdefault("_draws", {})
        draws = known.setdefault(name, Resampling(np.arange(len(means)), seed=crc32(name.encode())))
        found = draws.estimate(means)
        return found - constant(float(found.value))

    def n(self, metric: str) -> int:
        """How many examples a mean is over."""
        return sum(panel.items.n for panel in self.of(metric))

    def faster(self, what: str, size: Mapping[str, Any]) -> Estimate:
        """How many times as fast the pruned model reads or writes, paired by round."""
        about = {"model": self.facts["model"], "task": SPEED, "metric": what, "treatment": ""}
        about |= {"kept": size["kept"], "count": size["count"]}
        best, whole = (
            self.rounds.estimate(self.values.get(**about, series=series))
            for series in (BEST, WHOLE)
        )
        return best.over(whole)

    @cached_property
    def rounds(self) -> Resampling:
        """The rounds in which speeds were measured."""
        return Resampling(self.values.clusters(model=self.facts["model"], task=SPEED), seed=1)


def share_kept(size: Mapping[str, Any]) -> float:
    """The share of the key/value groups, or of the query heads of each group, that is kept."""
    return float(size["count"] / size["of"])


def words(size: Mapping[str, Any]) -> str:
    """What is kept, in words.

    >>> words({"kept": "groups", "count": 2, "of": 3})
    '2 of 3 groups'
    """
    unit = "groups" if size["kept"] == GROUPS else "query heads of each group"
    return f"{size['count']} of {size['of']} {unit}"


def treated(heads: PrunedHeads, treatment: str) -> PrunedHeads:
    """The same heads after another treatment."""
    return replace(heads, treatment=treatment)
