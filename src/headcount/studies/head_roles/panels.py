"""The panels of `head-roles`: the changes of one task and model, and estimates of their means.

A change Δ is the log-probability of a prompt's target, ablated minus retained. It is read in two
ways: summed over the tokens of the target, as published, and divided by their number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal
from zlib import crc32

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.metrics.chance import Chance
from headcount.stats import Estimate, Resampling, combine, share_interval, unknown_interval
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.published import MATCHED
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
    heads that carry each role in a fit (`carriers`), and the level of `chance`.
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
    def _for_peak(self) -> Bool[np.ndarray, "prompts"]:
        """Half of the contents, on which a peak is measured; the others choose its count."""
        return np.asarray(self.clusters[:, 1] % 2 == 1)

    @cached_property
    def peak_count(self) -> int:
        """The count at which interference is highest, on one half of the prompts."""
        means = {
            count: self.changes("interference", count)[:, ~self._for_peak].mean()
            for count in self.counts
            if count
        }
        return max(means, key=means.__getitem__)

    @cached_property
    def peak(self) -> Estimate:
        """Interference at that count, on the other half of the prompts.

        On the same prompts, a maximum over counts would be positive by chance alone.
        """
        half = self._for_peak
        if not half.any() or half.all():
            return unknown_interval(math.nan)
        seed = crc32(f"{self.task} {self.model}, peak".encode())
        table = self.changes("interference", self.peak_count)[:, half, None]
        found = Resampling(self.clusters[half], seed=seed).columns(table, SEEDS)
        return combine(lambda values: values[..., 0], found)

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        known = self.facts["chance"]
        if known is None:
            return ""
        right = self.prompts.estimate(self.values.get(**WHOLE, **self._own))
        return Chance(**known).sentence(share_interval(right, self.prompts), "Accuracy")

    def carries(self, role: str) -> float:
        """How many heads carry a role: those with a score of at least 0.5, on the mean of seeds.

        Beyond them, the order of heads is that of saturated gates, which is noise. Random orders
        have no role, so the number is unknown.
        """
        return float(self.facts["carriers"].get(role, math.nan))


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[RolePanel]:
    """The panels of a result: those that start from soft gates, then those of the whole model."""
    return [RolePanel(values, own, base) for base in facts["bases"] for own in facts["panels"]]
