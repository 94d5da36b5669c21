"""The panels of `head-roles`: the changes of one task and model, and estimates of their means.

A change Δ is the log-probability of a prompt's target, ablated minus retained. It is read in two
ways: summed over the tokens of the target, as published, and divided by their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal
from zlib import crc32

import numpy as np
from jaxtyping import Float, Int

from headcount.metrics.chance import Chance
from headcount.stats import Estimate, Interval, Resampling, combine, share_interval, simultaneous
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.published import MATCHED
from headcount.studies.head_roles.roles import HeadRoles
from headcount.value_table import ValueTable

Reading = Literal["sum", "token"]

COLUMNS, SHARED = ("model", "task", "base", "series", "count"), ("model", "task")
METRICS: dict[tuple[Base, Reading], str] = {
    ("soft", "sum"): "logprob change",
    ("soft", "token"): "logprob change per token",
    ("plain", "sum"): "logprob change, plain model",
    ("plain", "token"): "logprob change per token, plain model",
}
# Where the values have the accuracy of the whole model, which tells whether it is at chance.
WHOLE: dict[str, Any] = {"base": "accuracy", "series": "whole model", "count": 0}
SEEDS = "seeds"  # the draws of a panel: the same fits at all counts and for all roles


@dataclass(frozen=True, eq=False)
class RolePanel:
    """One panel of the figure: a task and a model.

    `facts` are those of the panel: the names of `task` and `model`, the number of `heads` and
    `parameters` of the model, the number of target `tokens` of each prompt, the mean number of
    heads that carry each role in a fit (`carriers`), the `roles` of all heads in every fit, and the
    level of `chance`.
    """

    values: ValueTable
    facts: Mapping[str, Any]
    base: Base = "soft"
    _curves: dict[tuple[str, Reading], Estimate] = field(default_factory=dict, repr=False)

    @property
    def task(self) -> str:
        """The name of the task."""
        return str(self.facts["task"])

    @property
    def model(self) -> str:
        """The label of the model."""
        return str(self.facts["model"])

    @property
    def name(self) -> str:
        """Task and model."""
        return f"{self.task} ({self.model})"

    @property
    def heads(self) -> int:
        """The number of heads of the model."""
        return int(self.facts["heads"])

    @property
    def _own(self) -> dict[str, Any]:
        return {"model": self.model, "task": self.task}

    @cached_property
    def counts(self) -> list[int]:
        """The counts that were measured."""
        return sorted(self.values.names("count", base=self.base, **self._own))

    def nearest(self, share: float) -> int:
        """The measured count above 0 that is nearest to a share of the heads."""
        return min((c for c in self.counts if c), key=lambda count: abs(count - share * self.heads))

    @property
    def matched(self) -> int:
        """The count at which claims are judged: the published 50 heads, as a share of all heads."""
        return self.nearest(MATCHED)

    @property
    def last(self) -> int:
        """The largest count."""
        return self.counts[-1]

    @property
    def first(self) -> int:
        """The smallest count above 0."""
        return next(count for count in self.counts if count)

    @cached_property
    def clusters(self) -> Int[np.ndarray, "prompts 2"]:
        """The numbers of each prompt's template and content."""
        return self.values.clusters(**self._own)

    @cached_property
    def prompts(self) -> Resampling:
        """Resamples of the prompts; each panel has a seed of its own."""
        return Resampling(self.clusters, seed=crc32(f"{self.task} {self.model}".encode()))

    def changes(
        self, role: str, count: int, reading: Reading = "sum"
    ) -> Float[np.ndarray, "seeds prompts"]:
        """Δ of each seed and prompt."""
        table = self.values.get(base=self.base, series=role, count=count, **self._own)
        return table / np.asarray(self.facts["tokens"]) if reading == "token" else table

    def curve(self, role: str, reading: Reading = "sum") -> Estimate:
        """The mean Δ at each count, over seeds and prompts."""
        if (role, reading) not in self._curves:
            tables = [self.changes(role, count, reading) for count in self.counts]
            found = self.prompts.columns(np.stack(tables, axis=-1), SEEDS)
            self._curves[role, reading] = found
        return self._curves[role, reading]

    def at(self, role: str, count: int, reading: Reading = "sum") -> Estimate:
        """The mean Δ at one count; its resamples are those of the curve, so roles stay paired."""
        place = self.counts.index(count)
        return combine(lambda values: values[..., place], self.curve(role, reading))

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        known = self.facts["chance"]
        if known is None:
            return ""
        right = self.prompts.estimate(self.values.get(**WHOLE, **self._own))
        return Chance(**known).sentence(share_interval(right, self.prompts), "Accuracy")

    @cached_property
    def roles(self) -> HeadRoles:
        """Which heads have which role in every fit."""
        return HeadRoles.from_facts(self.facts["roles"])

    def carries(self, role: str) -> float:
        """How many heads carry a role: those with a score of at least 0.5, on the mean of seeds.

        Beyond them, the order of heads is that of saturated gates, which is noise. Random orders
        have no role, so the number is unknown.
        """
        return float(self.facts["carriers"].get(role, math.nan))


def peaks_of(panels: Sequence[RolePanel]) -> list[tuple[int, Interval]]:
    """The peak of interference in each panel: a count, and an interval of the highest change.

    A maximum over counts is positive by chance alone, so the intervals of all counts of all these
    panels hold together. Some change is at least as high as the highest of their lower ends, which
    is at the count that is given, and none is higher than the highest of their upper ends.
    """
    family = [(panel, count) for panel in panels for count in panel.counts if count]
    found = simultaneous([panel.at("interference", count) for panel, count in family])
    peaks = []
    for panel in panels:
        own = [(c, i) for (p, c), i in zip(family, found, strict=True) if p is panel]
        known = [(count, interval) for count, interval in own if interval.known] or own[:1]
        count, best = max(known, key=lambda one: one[1].low)
        high = max(interval.high for _, interval in known)
        peaks.append((count, replace(best, high=high)))
    return peaks


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[RolePanel]:
    """The panels of a result: those that start from soft gates, then those of the whole model."""
    return [RolePanel(values, own, base) for base in facts["bases"] for own in facts["panels"]]
