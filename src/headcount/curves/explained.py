"""Explained effect: the share of the effect of all heads that the first k heads have alone.

    EE(k) = (mean LD_k − mean LD_0) / (mean LD_all − mean LD_0)

LD is the metric of each prompt (a logit difference, say) with k heads kept, with none and with all.
EE is a ratio of means over prompts, not a mean of ratios. It need not rise with k and may exceed 1,
because heads that work against the answer come last in a ranking. So one number at one threshold
says little, and a curve has several:

CPR           ∫ EE dx, over the share of heads kept: how much heads help
CMD           ∫ |1 − EE| dx: how far the kept heads are from doing what all do, also where they do
              more. Noise would make |1 − EE| larger, so its sign comes from one half of the prompts
              and its size from the other half, on the mean over random halves.
heads needed  the first count at which EE reaches a threshold τ, between two evaluated counts by
              interpolation, as a whole number; two models' ratio of it is a curve over τ. Intervals
              are percentiles of the resamples.
two-sided     the smallest evaluated count from which on EE stays within 1 ± 0.1. The interval is
              where a band that holds the whole curve may first stay, and where it surely does. That
              is wide, so two curves of the same prompts are compared by the ratio of their counts
              in each resample.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float, Int

from headcount.stats import (
    Estimate,
    Interval,
    Resampling,
    combine,
    constant,
    percentile_interval,
    unknown_interval,
)
from headcount.stats.estimate import NEARLY_NOTHING

THRESHOLD = 0.9
TOLERANCE = 0.1
SPLITS = 20  # of the prompts into two random halves
THRESHOLDS = tuple(round(0.3 + 0.05 * step, 2) for step in range(14))  # 0.3 to 0.95
ENDS = (0.025, 0.975)
Axis = Literal["linear", "log"]
AXES: tuple[Axis, ...] = ("linear", "log")


@dataclass(frozen=True, eq=False)
class Explained:
    """The explained effect at each count, from no head to all.

    `span` is mean LD_all − mean LD_0. If its interval reaches down to zero, there is no effect to
    explain: all intervals are then unknown.
    """

    counts: Int[np.ndarray, " counts"]
    effect: Estimate  # one number for each count
    span: Estimate
    halves: Float[np.ndarray, "splits 2 counts"]  # EE on two halves of the prompts, split at random

    @property
    def known(self) -> bool:
        """Whether the whole model has a clearly higher metric than the model without heads."""
        return self.span.interval.low > 0

    @property
    def total(self) -> int:
        """The number of all heads."""
        return int(self.counts[-1])

    @cached_property
    def points(self) -> list[tuple[int, Interval]]:
        """Every count and its explained effect."""
        low, high = self.effect.ends()
        n, unknown = self.span.n, math.nan
        return [
            (
                int(count),
                Interval(float(v), *((float(a), float(b)) if self.known else (unknown,) * 2), n),
            )
            for count, v, a, b in zip(self.counts, self.effect.value, low, high, strict=True)
        ]

    def cpr(self, axis: Axis = "linear") -> Estimate:
        """The mean of EE over the axis: over the share of heads kept, or over its logarithm."""
        return self._area(lambda effect: effect, axis)

    def cmd(self, axis: Axis = "linear") -> Estimate:
        """The mean of |1 − EE| over the axis, without the part that noise alone adds.

        Where the sign is uncertain, a product of one half's sign and the other half's size varies
        more: its variance is larger by 2/π where EE is 1 and nothing but noise tells the sign.
        """
        one, other = 1 - self.halves[:, 0], 1 - self.halves[:, 1]
        mixed = (np.sign(one) * other + np.sign(other) * one) / 2
        agree = (np.sign(one) * np.sign(other)).mean(0).clip(0, 1)  # 1 where the sign is certain
        sign = np.sign(1 - np.asarray(self.effect.value)) * np.sqrt(1 + 2 / math.pi * (1 - agree))
        area = self._area(lambda effect: sign * (1 - effect), axis)
        fitted = float(self._integral(mixed, axis).mean())
        return area + constant(fitted - float(area.value))

    def _area(self, height: Callable[[Any], Any], axis: Axis) -> Estimate:
        area = combine(lambda effect: self._integral(height(effect), axis), self.effect)
        return area if self.known else unknown_interval(float(area.value), area)

    def _integral(self, heights: Any, axis: Axis) -> Any:
        """The mean height over the axis, by trapezoids between the counts."""
        used = slice(0 if axis == "linear" else int((self.counts < 1).sum()), None)
        counts = self.counts[used]
        x = counts / self.total if axis == "linear" else np.log(counts)
        return np.trapezoid(heights[..., used], x, axis=-1) / (x[-1] - x[0])

    def needed(self, threshold: float = THRESHOLD) -> Interval:
        """The heads needed for a threshold: the first count that reaches it, by interpolation.

        A curve that does not reach it before all heads needs all of them.
        """
        rows = crossings(self.counts, self.curves, threshold)
        return self._of_curve(float(rows[0]), rows[1:])

    def two_sided(self, tolerance: float = TOLERANCE) -> Interval:
        """The smallest evaluated count from which on EE stays within 1 ± the tolerance."""
        n, value = self.span.n, np.asarray(self.effect.value)
        if not self.known:
            return Interval(math.nan, math.nan, math.nan, n)
        low, high = self.effect.band()
        most, least = 1 + tolerance, 1 - tolerance
        found, may, surely = (
            float(self._first(outside[None])[0])
            for outside in (
                np.maximum(value - most, least - value),
                np.maximum(low - most, least - high),
                np.maximum(high - most, least - low),
            )
        )
        return Interval(found, min(may, found), max(surely, found), n)

    def _first(self, outside: Float[np.ndarray, "rows counts"]) -> Float[np.ndarray, " rows"]:
        """The first count of each row from which on nothing is outside; all heads never are."""
        out = outside > 0
        out[:, -1] = False
        last = out.shape[1] - out[:, ::-1].argmax(1)  # the place after the last one outside
        first = np.where(out.any(1), self.counts[last % out.shape[1]], self.counts[0])
        return np.asarray(first, dtype=np.float64)

    @property
    def curves(self) -> Float[np.ndarray, "rows counts"]:
        """EE at each count: the curve itself, and then all of its resamples."""
        return np.concatenate([np.asarray(self.effect.value)[None], self.effect.samples])

    def _of_curve(self, value: float, samples: Float[np.ndarray, " times"]) -> Interval:
        if not self.known:
            return Interval(math.nan, math.nan, math.nan, self.span.n)
        return percentile_interval(value, samples, self.span.n, ENDS)


def explained_effect(
    values: Mapping[int, Float[np.ndarray, "draws prompts"]], items: Resampling, draws: str = ""
) -> Explained:
    """The explained effect of the metric's `values` by number of heads kept, none and all included.

    Several draws are several random orders, alike at every count; `draws` names them.

    >>> values = {0: np.array([[0.0, 2, 1, 1]]), 1: np.full((1, 4), 3.0), 2: np.full((1, 4), 4.0)}
    >>> found = explained_effect(values, Resampling(["a", "b", "c", "d"]))
    >>> found.effect.value.round(3).tolist(), found.needed(0.6).value
    ([0.0, 0.667, 1.0], 1.0)
    """
    counts = sorted(values)
    most = max(len(table) for table in values.values())
    table = np.stack([np.broadcast_to(values[c], (most, values[c].shape[1])) for c in counts], -1)
    means = items.columns(table, draws)  # (draws, prompts, counts)
    span = combine(lambda m: m[..., -1] - m[..., 0], means)
    whole = float(span.value)
    point = share_of_span(whole, np.asarray(means.value), 0.0)
    share = partial(share_of_span, whole, near=point)
    effect = combine(share, means)
    by_prompt = table.mean(0)  # (prompts, counts)
    splits = [items.halves(seed) for seed in range(SPLITS)]
    halves = [
        [share(by_prompt[half].mean(0)) for half in (split, ~split)]
        for split in splits
        if split.any() and not split.all()
    ]
    either = np.asarray(halves or [[effect.value, effect.value]], dtype=np.float64)
    return Explained(np.array(counts), effect, span, either)


def share_of_span(whole: float, mean: Any, near: Any) -> Any:
    """EE from the mean at each count; `near` is EE of all prompts.

    In a resample whose span is nearly 0 the ratio could be any number: there it is to first order.
    """
    below, above = mean[..., :1], mean[..., -1:]
    span, inside = above - below, mean - below
    with np.errstate(divide="ignore", invalid="ignore"):
        linear = near + (inside - near * span) / whole
        return np.where(span / whole > NEARLY_NOTHING, inside / span, linear)


def crossings(
    counts: Int[np.ndarray, " counts"], effect: Float[np.ndarray, "rows counts"], threshold: float
) -> Float[np.ndarray, " rows"]:
    """The first whole number at which each curve, straight between counts, reaches a threshold.

    >>> crossings(np.array([0, 2, 9]), np.array([[0.0, 0.5, 1.0], [0.0, 0.2, 0.4]]), 0.75).tolist()
    [6.0, 9.0]
    """
    reached = effect >= threshold - 1e-9
    reached[:, -1] = True
    after = reached.argmax(1)
    before = np.maximum(after - 1, 0)
    rows = np.arange(len(effect))
    low, high = effect[rows, before], effect[rows, after]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(high > low, (threshold - low) / (high - low), 1.0)
    share = np.where(after == before, 1.0, np.clip(share, 0, 1))
    return np.asarray(np.ceil(counts[before] + share * (counts[after] - counts[before]) - 1e-9))


def ratio_of_needed(
    one: Explained, other: Explained, thresholds: Sequence[float] = THRESHOLDS
) -> list[tuple[float, Interval, bool]]:
    """The heads that `one` needs over those that `other` needs, at each threshold.

    Each has its interval, and whether it is censored: one of the two does not reach the threshold
    before all heads. Both must have the same prompts, whose resamples are then the same.
    """
    rows = []
    for threshold in thresholds:
        needed = [crossings(c.counts, c.curves, threshold) for c in (one, other)]
        censored = any(float(curve.effect.value[:-1].max()) < threshold for curve in (one, other))
        rows.append((threshold, _ratio(one, other, needed, ENDS), censored))
    return rows


def two_sided_ratio(
    one: Explained, other: Explained, *, members: int = 1, tolerance: float = TOLERANCE
) -> Interval:
    """The heads that `one` needs two-sidedly over those that `other` needs, on the same prompts.

    The interval is that of one of several `members` of a family that hold together (Bonferroni).
    Either number may also lie between the evaluated count and the one before, so the low end takes
    the least that `one` may need, and the high end the least that `other` may need.
    """
    most = [c._first(np.abs(1 - c.curves) - tolerance) for c in (one, other)]
    least = [
        np.append(0, c.counts)[np.searchsorted(c.counts, found)] + 1.0
        for c, found in zip((one, other), most, strict=True)
    ]
    outside = (1 - ENDS[1]) / members
    ends = outside, 1 - outside
    found = _ratio(one, other, most, ends)
    low = _ratio(one, other, [least[0], most[1]], ends).low
    return replace(found, low=low, high=_ratio(one, other, [most[0], least[1]], ends).high)


def _ratio(
    one: Explained,
    other: Explained,
    counts: Sequence[Float[np.ndarray, " rows"]],
    ends: tuple[float, float],
) -> Interval:
    """The ratio of two counts of heads, of the curves themselves and of all their resamples."""
    n = min(one.span.n, other.span.n)
    if not (one.known and other.known):
        return Interval(math.nan, math.nan, math.nan, n)
    both = np.log(np.maximum(counts[0], 1.0)) - np.log(np.maximum(counts[1], 1.0))
    found = percentile_interval(float(both[0]), both[1:], n, ends)
    value, low, high = (float(np.exp(x)) for x in (found.value, found.low, found.high))
    return Interval(value, low, high, n)
