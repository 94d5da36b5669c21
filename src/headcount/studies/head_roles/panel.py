"""One panel of the figure of `head-roles`: what ablating heads changes, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from jaxtyping import Float

from headcount.stats import Estimate, Interval, Resampling, bootstrap
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.toggling import Toggled

METRICS: dict[Base, str] = {"soft": "logprob change", "plain": "logprob change, plain model"}


@dataclass(frozen=True, eq=False)
class Panel:
    """One task and model, and what ablating heads there changes."""

    task: str
    model: str
    toggled: Toggled
    parameters: int = 0  # weights of the model

    @cached_property
    def prompts(self) -> Resampling:
        """Resamples of the prompts, other ones than in other panels."""
        return Resampling(self.toggled.clusters, seed=crc32(f"{self.task} {self.model}".encode()))

    def sum(self, count: int, **weights: float) -> Estimate:
        """The mean over seeds and prompts of a weighted sum of roles.

        A seed's roles are of one fit, so they are drawn together.
        """
        values: Float[np.ndarray, "seeds prompts"] = np.sum(
            [weight * self.toggled.changes[role, count] for role, weight in weights.items()], axis=0
        )
        clusters = len(np.unique(self.toggled.clusters))
        return Estimate(float(values.mean()), self.prompts.means(values), clusters)

    def peak(self, role: str) -> Interval:
        """The highest change, at the count that is highest for every other cluster of prompts."""
        labels = np.unique(self.toggled.clusters, return_inverse=True)[1].reshape(-1)
        first, second = labels % 2 == 0, labels % 2 == 1
        counts = [count for count in self.toggled.counts if count]
        if not second.any() or not counts:
            return Interval(np.nan, np.nan, np.nan, 1)
        best = max(counts, key=lambda c: self.toggled.changes[role, c][:, first].mean())
        values = self.toggled.changes[role, best][:, second]
        return bootstrap(values, clusters=self.toggled.clusters[second])

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The points of its curves, one row each."""
        rows = []
        for (role, count), values in self.toggled.changes.items():
            interval = bootstrap(values, clusters=self.toggled.clusters)
            rows.append(
                {
                    "model": self.model,
                    "task": self.task,
                    "series": role,
                    "metric": METRICS[self.toggled.base],
                    "count": count,
                    "value": interval.value,
                    "low": interval.low,
                    "high": interval.high,
                    "n": values.shape[1],
                    "seeds": values.shape[0],
                }
            )
        return rows
