"""Intervals of means, differences, ratios and shares."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike

from headcount.stats.estimate import Z95, Estimate, Interval, quantile_of_t
from headcount.stats.resampling import Clusters, Resampling, as_table


def bootstrap(values: ArrayLike, *, clusters: Clusters | None = None, seed: int = 0) -> Interval:
    """The mean of `values`, (draws, items) or (items,), with its interval.

    `clusters` has the cluster of each item, or its template and content (default: every item is its
    own cluster).

    >>> right = np.array([[1, 1, 0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 1, 1, 1, 0]])  # (draws, items)
    >>> bootstrap(right, clusters=["a", "a", "b", "b", "c", "c", "d", "d"]).value
    0.75
    """
    table = as_table(values)
    return Resampling(_labels(clusters, table), seed=seed).estimate(table).interval


def paired_difference(
    a: ArrayLike, b: ArrayLike, *, clusters: Clusters | None = None, binary: bool = False
) -> Interval:
    """The mean of `a` minus the mean of `b`, over the same items.

    If values are 0 or 1 (`binary`), the interval does not reach beyond −1 and 1.

    Items are resampled once for both sides, so that the difficulty of an item cancels out. The
    draws of the two sides are unrelated: they are resampled separately, and their numbers may
    differ.

    >>> print(paired_difference([1.0, 2.0, 3.0], [0.5, 1.5, 2.5]))
    0.5 [0.5, 0.5]
    """
    first, second = _pair(a, b)
    found = Resampling(_labels(clusters, first)).difference(first, second)
    return (found.limited(-1, 1) if binary else found).interval


def ratio_of_means(
    numerator: ArrayLike, denominator: ArrayLike, *, clusters: Clusters | None = None
) -> Interval:
    """The ratio of two means, such as the share of an effect that is explained.

    It is not a mean of ratios, which the items with the smallest denominators would dominate. Items
    are resampled once for both sides, draws separately. If the interval of the denominator includes
    zero, the ratio has no interval (NaN).

    >>> print(ratio_of_means([2.0, 2.5, 3.0, 3.5], [4.0, 5.0, 6.0, 7.0]))
    0.5 [0.5, 0.5]
    """
    above, below = _pair(numerator, denominator)
    items = Resampling(_labels(clusters, above))
    top, bottom = items.estimate(above), items.estimate(below)
    if bottom.value < 0:
        top, bottom = top * -1.0, bottom * -1.0
    return top.over(bottom).interval


def wilson(successes: int | float, n: float, *, z: float = Z95) -> Interval:
    """Wilson's interval for a share: it lies within 0 and 1, and is wide enough near both ends.

    >>> print(wilson(0, 10))
    0 [0, 0.278]
    """
    if n <= 0 or not 0 <= successes <= n:
        raise ValueError(f"{successes} successes of {n}")
    share = successes / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # With 0 or n successes, one end is exactly 0 or 1, except for rounding errors.
    low, high = min(share, max(0.0, middle - half)), max(share, min(1.0, middle + half))
    return Interval(share, low, high, int(n))


def accuracy_interval(values: ArrayLike, *, clusters: Clusters | None = None) -> Interval:
    """The mean of values from 0 to 1 with Wilson's interval, for as many items as they are worth.

    n alike items are worth fewer: as many independent ones as would have the same standard error
    (Korn and Graubard 1998). Where successes or failures amount to less than one template, nothing
    tells how they gather in templates; then at most √(templates · items) count.

    >>> print(accuracy_interval(np.ones(20)))
    1 [0.839, 1]
    """
    table = as_table(values)
    if table.min() < 0 or table.max() > 1:
        raise ValueError("an accuracy needs values from 0 to 1")
    items = Resampling(_labels(clusters, table))
    return share_interval(items.estimate(table), items)


def share_interval(estimate: Estimate, items: Resampling) -> Interval:
    """Wilson's interval of a share that was estimated on these items: see `accuracy_interval`."""
    share, spread, n = float(estimate.value), estimate.spread, float(items.n)
    worth, z = n, Z95
    if spread.error > 0 and 0 < share < 1:
        z = float(spread.reach(z) / spread.error)
        worth = min(n, share * (1 - share) / spread.error**2)
    if min(share, 1 - share) * items.fewest < 1:
        worth = min(worth, math.sqrt(items.fewest * n))
    found = wilson(share * worth, worth, z=z)
    return Interval(share, min(found.low, share), max(found.high, share), items.n)


def heads_with_effect(
    samples: Float[np.ndarray, "prompts heads"], clusters: Clusters | None = None
) -> tuple[int, int]:
    """How many heads have a mean effect above 0, and below 0, that chance does not explain.

    The level of 5 % is divided by the number of heads (Bonferroni), and few templates count as few.
    So far out, t holds only for symmetric effects: it is corrected for their skewness (Hall 1992).
    """
    items = Resampling(np.arange(len(samples)) if clusters is None else clusters)
    found = items.columns(samples)
    error, units = found.spread.error, found.spread.freedom + 1
    around = samples - samples.mean(0)
    certain = np.where(found.value == 0, 0.0, np.copysign(np.inf, found.value))
    with np.errstate(divide="ignore", invalid="ignore"):
        skew = np.nan_to_num((around**3).mean(0) / (around**2).mean(0) ** 1.5)
        t, root = found.value / error, math.sqrt(units)
        t = t + skew * t**2 / (3 * root) + skew**2 * t**3 / (27 * units) + skew / (6 * root)
    t = np.where(np.isfinite(t), t, certain)
    limit = quantile_of_t(NormalDist().inv_cdf(1 - 0.025 / samples.shape[1]), units - 1)
    return int((t > limit).sum()), int((t < -limit).sum())


def percentile_interval(
    value: float, samples: Float[np.ndarray, " times"], n: int, ends: tuple[float, float]
) -> Interval:
    """The interval between two percentiles of the resamples of a statistic of a whole curve.

    Its ends are NaN with a single item, or if a resample is NaN; it always holds the estimate.
    """
    low = high = math.nan
    if n > 1 and not np.isnan(samples).any():
        with np.errstate(invalid="ignore"):  # with few items a resample may have divided by zero
            low, high = (float(end) for end in np.quantile(samples, ends))
    if not (np.isfinite(low) and np.isfinite(high)):
        return Interval(value, math.nan, math.nan, n)
    return Interval(value, min(low, value), max(high, value), n)


def _labels(clusters: Clusters | None, table: Float[np.ndarray, "draws items"]) -> Clusters:
    """The clusters of each item; without `clusters`, every item is its own cluster."""
    items = table.shape[1]
    if clusters is not None and len(clusters) != items:
        raise ValueError(f"{len(clusters)} cluster names for {items} items")
    return np.arange(items) if clusters is None else clusters


def _pair(
    a: ArrayLike, b: ArrayLike
) -> tuple[Float[np.ndarray, "a items"], Float[np.ndarray, "b items"]]:
    first, second = as_table(a), as_table(b)
    if first.shape[1] != second.shape[1]:
        raise ValueError(f"{first.shape[1]} items cannot be paired with {second.shape[1]}")
    return first, second
