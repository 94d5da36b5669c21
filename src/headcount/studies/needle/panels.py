"""The panels of `needle`: the values of one length each, and estimates of their means."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headcount.errors import counted
from headcount.metrics.chance import Chance
from headcount.stats import Estimate, Interval, Resampling, share_interval
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "metric", "positions", "series", "count")
METRICS = ("accuracy", "logprob")
POSITIONS = ("all", "answer")  # where gates act: everywhere, or where the answer is predicted
SERIES = ("top", "random", "matched")
CONTROLS = {"random": "random heads", "matched": "random heads of the same layers"}


@dataclass(frozen=True, eq=False)
class NeedlePanel:
    """One length: the values of its examples.

    All lengths ask for the same needles at the same depths, so they share their resamples, and
    differences between lengths are paired.
    """

    key: str
    length: int
    values: ValueTable
    facts: Mapping[str, Any]
    items: Resampling

    @property
    def name(self) -> str:
        """What the panel is called in claims."""
        return f"{self.length:,} tokens"

    @property
    def asked(self) -> str:
        """How many examples there are, in words."""
        examples = len(self.facts["depths"])
        return f"{counted(examples, 'example')} of {counted(self.items.n, 'needle')}"

    @property
    def counts(self) -> list[int]:
        """The numbers of heads that were masked."""
        return sorted(count for count in self.values.names("count", task=self.key) if count)

    def table(self, metric: str, positions: str, series: str, count: int) -> np.ndarray:
        """The values of a series at a count, (draws, items); at 0 all are the whole model's."""
        if not count:
            positions, series = POSITIONS[0], "top"
        how = {"positions": positions, "series": series, "count": count}
        about = {"model": self.facts["model"], "task": self.key, "metric": metric}
        return self.values.get(**about, **how)

    def at(self, metric: str, positions: str, series: str, count: int) -> Estimate:
        """The mean; the head sets of a control are the same at all lengths and positions."""
        table = self.table(metric, positions, series, count)
        return self.items.estimate(table, draws=f"{series} {count}")

    def whole(self, metric: str) -> Estimate:
        """The mean of the whole model."""
        return self.at(metric, POSITIONS[0], "top", 0)

    def interval(self, metric: str, positions: str, series: str, count: int) -> Interval:
        """That mean with its interval."""
        return interval_of(metric, self.at(metric, positions, series, count), self.items)

    def difference(self, metric: str, positions: str, control: str, count: int) -> Estimate:
        """The best heads minus a control, paired by example."""
        top, other = (self.table(metric, positions, s, count) for s in ("top", control))
        found = self.items.difference(top, other, draws=(f"top {count}", f"{control} {count}"))
        return found.limited(-1, 1) if metric == "accuracy" else found

    @property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        known = self.facts["chance"].get(self.key)
        if known is None:
            return ""
        whole = self.interval("accuracy", POSITIONS[0], "top", 0)
        return Chance(**known).sentence(whole, self.facts["metrics"]["accuracy"])


def interval_of(metric: str, found: Estimate, items: Resampling) -> Interval:
    """Wilson's interval for shares of right answers; a log-probability is at most 0."""
    if metric == "accuracy":
        return share_interval(found, items)
    return found.limited(-math.inf, 0).interval


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[NeedlePanel]:
    """The panels of a result, by length."""
    first = next(iter(facts["lengths"]))
    items = Resampling(values.clusters(model=facts["model"], task=first), seed=1)
    return [
        NeedlePanel(key, length, values, facts, items) for key, length in facts["lengths"].items()
    ]
