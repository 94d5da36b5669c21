"""Bootstrap intervals of means, differences and ratios.

Values are per example, in arrays of shape (seeds, items), or (items,) for a single seed. Items that
share a template and content form a *cluster*: their values are correlated, so they are resampled
together. Seeds and clusters are resampled independently of each other (*crossed*), so that an
interval covers what other seeds and other items might have given.

Three choices hold throughout:

- From n clusters, or n seeds, each resample draws n - 1. The variance of resampled means is then
  s²/n with the unbiased s² (Rao and Wu 1988); with n draws it would be a fifth less for five seeds.
- If an interval cannot be computed, as from a single cluster, its ends are NaN: figures leave a
  gap, and `claims.judge` says "undecided".
- With fewer than about ten clusters a bootstrap interval is a little too short: see `Interval.n`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from statistics import NormalDist
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

from headcount.errors import HeadcountError

Clusters: TypeAlias = Sequence[Hashable] | np.ndarray

Statistic = Callable[[Float[np.ndarray, "seeds items"]], float]


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its interval; `n` is the number of independent clusters.

    >>> print(Interval(0.625, 0.5, 0.75, n=40))
    0.625 [0.5, 0.75]
    """

    value: float
    low: float
    high: float
    n: int

    @property
    def known(self) -> bool:
        """Whether the ends are numbers."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    def __str__(self) -> str:
        if not self.known:
            return "unknown" if math.isnan(self.value) else f"{self.value:.3g} (no interval)"
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


def bootstrap(
    values: ArrayLike,
    *,
    clusters: Clusters | None = None,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
    statistic: Statistic | None = None,
) -> Interval:
    """The mean of `values` with its percentile interval over seeds × items.

    `clusters` names each item's cluster (default: every item is its own cluster). With a single
    seed only items are resampled. A `statistic` other than the mean is called once per resample, on
    the resampled (seeds, items) array, which is slower.

    >>> right = np.array([[1, 1, 0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1, 1, 0]])  # (seeds, items)
    >>> print(bootstrap(right, clusters=["a", "a", "b", "b", "c", "c", "d", "d"]))
    0.75 [0.333, 1]
    """
    table = _table(values)
    items = Resampling(_names(clusters, table), resamples=resamples, seed=seed)
    if statistic is None:
        value = float(table.mean())
        # Resampling the deviations from the mean gives constant values an interval of zero width.
        return items.interval(value, value + items.means(table - value), level)
    rows = _draw(items.rng, len(table), resamples)  # (resamples, seeds)
    seeds, columns = map(np.arange, table.shape)
    chosen = (
        np.ix_(np.repeat(seeds, some), np.repeat(columns, others[items.labels]))
        for some, others in zip(rows, items.drawn, strict=True)
    )
    samples = np.array([float(statistic(table[places])) for places in chosen])
    return items.interval(float(statistic(table)), samples, level)


def paired_difference(
    a: ArrayLike, b: ArrayLike, *, clusters: Clusters | None = None, resamples: int = 2000
) -> Interval:
    """The mean of `a` minus the mean of `b`, over the same items.

    Items are resampled once for both sides, so that the difficulty of an item cancels out. The
    seeds of the two sides are unrelated: they are resampled separately, and their numbers may
    differ.

    >>> print(paired_difference([1.0, 2.0, 3.0], [0.5, 1.5, 2.5]))
    0.5 [0.5, 0.5]
    """
    first, second = _pair(a, b)
    items = Resampling(_names(clusters, first), resamples=resamples)
    value = float(first.mean() - second.mean())
    return items.interval(value, items.means(first) - items.means(second))


def ratio_of_means(
    numerator: ArrayLike,
    denominator: ArrayLike,
    *,
    clusters: Clusters | None = None,
    resamples: int = 2000,
) -> Interval:
    """The ratio of two means, such as the share of an effect that is explained.

    It is not a mean of ratios, which the items with the smallest denominators would dominate. Items
    are resampled once for both sides, seeds separately. If the interval of the denominator includes
    zero, the ratio has no interval (NaN).

    >>> print(ratio_of_means([1.0, 2.0, 3.0], [2.0, 4.0, 6.0]))
    0.5 [0.5, 0.5]
    """
    above, below = _pair(numerator, denominator)
    items = Resampling(_names(clusters, above), resamples=resamples)
    tops, bottoms = items.means(above), items.means(below)
    mean = float(below.mean())
    value = float(above.mean()) / mean if mean else math.nan
    whole = items.interval(mean, bottoms)
    if not whole.known or whole.low <= 0 <= whole.high:
        return Interval(value, math.nan, math.nan, whole.n)
    nonzero = bottoms != 0  # nearly all, since the denominator's interval excludes zero
    return items.interval(value, tops[nonzero] / bottoms[nonzero])


class Resampling:
    """Resamples of one set of items, shared by all tables of values on these items.

    Use it for statistics of several means, such as a difference of differences: `means` gives the
    mean of a table in each resample, and these arrays can be combined by arithmetic. All tables use
    the same resampled items; seeds are resampled separately for each table.

    >>> items = Resampling(["a", "b", "c", "d"])
    >>> right, wrong = items.means([1, 1, 0, 1]), items.means([0, 0, 1, 0])
    >>> bool(np.allclose(right + wrong, 1))
    True
    """

    def __init__(self, clusters: Clusters, *, resamples: int = 2000, seed: int = 0) -> None:
        numbers: dict[Any, int] = {}  # of the clusters, in order of appearance
        named = [numbers.setdefault(cluster, len(numbers)) for cluster in clusters]
        self.labels: Int[np.ndarray, " items"] = np.array(named)
        self.rng = np.random.default_rng(seed)
        self.drawn = _draw(self.rng, len(numbers), resamples)  # (resamples, clusters)

    def means(self, values: ArrayLike) -> Float[np.ndarray, " times"]:
        """The mean of (seeds, items) in each resample, by the sums and sizes of the clusters."""
        table, labels = _table(values), self.labels
        sizes = np.bincount(labels)  # (clusters,)
        sums = np.stack([np.bincount(labels, weights=row) for row in table])  # (seeds, clusters)
        rows = _draw(self.rng, len(table), len(self.drawn))  # (times, seeds)
        totals = ((rows @ sums) * self.drawn).sum(1)
        means: Float[np.ndarray, " times"] = totals / (rows.sum(1) * (self.drawn @ sizes))
        return means

    def interval(
        self, value: float, samples: Float[np.ndarray, " times"], level: float = 0.95
    ) -> Interval:
        """A statistic with its interval, from its value in each resample."""
        ends = (1 - level) / 2, (1 + level) / 2
        return percentile_interval(value, samples, self.drawn.shape[1], ends)

    def estimate(self, values: ArrayLike) -> Estimate:
        """The mean of (seeds, items), with its resamples."""
        return Estimate(float(_table(values).mean()), self.means(values), self.drawn.shape[1])


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value and its resamples; arithmetic applies to both.

    >>> one = Estimate(1.0, np.array([0.9, 1.1]), n=5)
    >>> (one - one * 0.5).value
    0.5
    """

    value: float
    samples: Float[np.ndarray, " times"]
    n: int  # the number of independent clusters

    def __add__(self, other: Estimate) -> Estimate:
        return Estimate(
            self.value + other.value, self.samples + other.samples, min(self.n, other.n)
        )

    def __sub__(self, other: Estimate) -> Estimate:
        return self + other * -1.0

    def __mul__(self, factor: float) -> Estimate:
        return Estimate(self.value * factor, self.samples * factor, self.n)

    def scaled(self, low: float, high: Estimate) -> Estimate:
        """Rescale so that `low` is 0 and `high` is 1; NaN where that range may be empty."""
        span, spans = high.value - low, high.samples - low
        known = span > 0 and float(np.quantile(spans, 0.025)) > 0
        with np.errstate(divide="ignore", invalid="ignore"):
            samples = (self.samples - low) / spans if known else np.full_like(spans, np.nan)
        return Estimate((self.value - low) / span if span else np.nan, samples, self.n)

    @property
    def interval(self) -> Interval:
        """The value with its 95 % interval."""
        return percentile_interval(self.value, self.samples, self.n)


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of several estimates."""
    return reduce(add, estimates) * (1 / len(estimates))


def percentile_interval(
    value: float,
    samples: Float[np.ndarray, " times"],
    n: int,
    ends: tuple[float, float] = (0.025, 0.975),
) -> Interval:
    """The interval between two percentiles of the resamples of a statistic.

    Its ends are NaN with a single cluster, or if a resample is NaN.
    """
    low = high = math.nan
    if n > 1 and not np.isnan(samples).any():
        with np.errstate(invalid="ignore"):  # with few items a resample may have divided by zero
            low, high = (float(end) for end in np.quantile(samples, ends))
    if not (np.isfinite(low) and np.isfinite(high)):
        return Interval(value, math.nan, math.nan, n)
    # For a very skewed statistic nearly all resamples may lie on one side of the estimate; the
    # interval is widened so that it always includes the estimate.
    return Interval(value, min(low, value), max(high, value), n)


def wilson(successes: int | float, n: int, *, level: float = 0.95) -> Interval:
    """Wilson's interval for a share: it lies within 0 and 1, and is wide enough near both ends.

    >>> print(wilson(0, 10))
    0 [0, 0.278]
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    share = successes / n
    z = NormalDist().inv_cdf((1 + level) / 2)
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # With 0 or n successes, one end is exactly 0 or 1, except for rounding errors.
    low, high = min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))
    return Interval(share, low, high, n)


def accuracy_interval(
    values: ArrayLike, *, clusters: Clusters | None = None, resamples: int = 2000
) -> Interval:
    """The mean of values from 0 to 1, with a bootstrap interval, or Wilson's near 0 and 1.

    "Near" means that successes or failures amount to fewer than five clusters: the bootstrap
    interval is then too short, and without any it has no width. Wilson's interval is also used
    if the bootstrap interval has no width for another reason, as when all clusters are half right.
    Wilson's interval ignores seeds, so with several seeds the result covers both intervals.

    >>> print(accuracy_interval(np.ones(20)))
    1 [0.839, 1]
    """
    table = _table(values)
    if table.min() < 0 or table.max() > 1:
        raise ValueError("an accuracy needs values from 0 to 1")
    resampled = bootstrap(table, clusters=clusters, resamples=resamples)
    rarer = min(resampled.value, 1 - resampled.value) * resampled.n
    if rarer >= 5 and resampled.known and resampled.high - resampled.low > 1e-9:
        return resampled
    # Count clusters, not items: in the worst case all items of a cluster are right or wrong
    # together, and a hundred items in ten clusters then tell no more than ten items.
    by_wilson = wilson(resampled.value * resampled.n, resampled.n)
    low, high = by_wilson.low, by_wilson.high
    if len(table) > 1 and resampled.known:
        low, high = min(low, resampled.low), max(high, resampled.high)
    return Interval(resampled.value, low, high, resampled.n)


def _table(values: ArrayLike) -> Float[np.ndarray, "seeds items"]:
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if table.ndim != 2:
        raise ValueError(f"values need the shape (seeds, items) or (items,), not {table.shape}")
    if not table.size:
        raise HeadcountError("There are no values to average: the task has no examples left.")
    if np.isnan(table).any():
        raise HeadcountError(
            "Some values are not numbers (NaN), so they have no mean: check the model's dtype."
        )
    return table


def _names(clusters: Clusters | None, table: Float[np.ndarray, "seeds items"]) -> Clusters:
    """The name of each item's cluster; without `clusters`, every item is its own cluster."""
    items = table.shape[1]
    if clusters is not None and len(clusters) != items:
        raise ValueError(f"{len(clusters)} cluster names for {items} items")
    return range(items) if clusters is None else clusters


def _pair(
    a: ArrayLike, b: ArrayLike
) -> tuple[Float[np.ndarray, "a items"], Float[np.ndarray, "b items"]]:
    first, second = _table(a), _table(b)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"{first.shape[1]} items cannot be paired with {second.shape[1]}")
    return first, second


def _draw(rng: np.random.Generator, units: int, resamples: int) -> Int[np.ndarray, "times units"]:
    """How often each unit is drawn in each resample of `units` - 1 draws (at least one draw)."""
    picks = rng.integers(units, size=(resamples, max(units - 1, 1)))
    picks += units * np.arange(resamples)[:, None]
    return np.bincount(picks.ravel(), minlength=resamples * units).reshape(resamples, units)
