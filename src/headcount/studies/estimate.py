"""Numbers with their resamples: claims are made of sums, differences and shares of means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from headcount.stats import Interval


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value and its resamples; arithmetic goes through both.

    >>> one = Estimate(1.0, np.array([0.9, 1.1]), n=5)
    >>> (one - one * 0.5).value
    0.5
    """

    value: float
    samples: Float[np.ndarray, " times"]
    n: int  # independent clusters behind it

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.value + other.value, self.samples + other.samples, min(self.n, other.n)
        )

    def __sub__(self, other: Estimate) -> Estimate:
        return self + other * -1.0

    def __mul__(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.samples * factor, self.n)

    def scaled(self, low: float, high: Estimate) -> Estimate:
        """From `low` as 0 to `high` as 1; unknown where there is nothing between them."""
        span, spans = high.value - low, high.samples - low
        known = span > 0 and float(np.quantile(spans, 0.025)) > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = (self.samples - low) / spans if known else np.full_like(spans, np.nan)
        return Estimate((self.value - low) / span if span else np.nan, samples, self.n)

    @property
    def interval(self) -> Interval:
        """The value with its 95 % interval."""
        if self.n < 2 or np.isnan(self.samples).any():
            return Interval(self.value, np.nan, np.nan, self.n)
        with np.errstate(invalid="ignore"):  # of few items a resample may divide by nothing
            low, high = (float(end) for end in np.quantile(self.samples, [0.025, 0.975]))
        if not np.isfinite([low, high]).all():
            return Interval(self.value, np.nan, np.nan, self.n)
        return Interval(self.value, min(low, self.value), max(high, self.value), self.n)


def mean(some: Sequence[Estimate]) -> Estimate:
    """The mean of several estimates."""
    total = some[0]
    for one in some[1:]:
        total = total + one
    return total * (1 / len(some))
