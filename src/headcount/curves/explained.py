"""Explained effect: the share of the effect of all heads that the first k heads have alone.

    EE(k) = (mean LD_k − mean LD_0) / (mean LD_all − mean LD_0)

LD is the metric of each prompt (a logit difference, say) with k heads kept, with none and with all.
EE is a ratio of means, bootstrapped over prompts, not a mean of ratios. It need not rise with k and
may exceed 1, because heads that work against the answer come last in a ranking.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.stats import Clusters, Interval, Resampling, percentile_interval

THRESHOLD = 0.9


@dataclass(frozen=True, eq=False)
class Explained:
    """The explained effect at each count, from no head to all, with its resamples.

    `span` is mean LD_all − mean LD_0. If its interval reaches down to zero, there is no effect to
    explain: all intervals and the number of heads needed are then NaN.
    """

    counts: Int[np.ndarray, " counts"]
    values: Float[np.ndarray, " counts"]
    samples: Float[np.ndarray, "times counts"]
    span: Interval

    @property
    def known(self) -> bool:
        """Whether the whole model has a clearly higher metric than the model without heads."""
        return self.span.low > 0

    def first(self, threshold: float = THRESHOLD) -> Interval:
        """The heads needed: the first evaluated count that reaches the threshold.

        Its interval starts just above the evaluated count before, since the counts between the two
        were not measured.
        """
        needed = self._heads(self._reached(threshold).argmax(1))
        low = float(np.quantile(self.steps(threshold)[0], 0.025))
        return replace(needed, low=min(needed.low, low)) if needed.known else needed

    def last(self, threshold: float = THRESHOLD) -> Interval:
        """The first evaluated count from which on all evaluated counts reach the threshold."""
        reached = self._reached(threshold)
        # The index after the last count that falls short.
        short = reached.shape[1] - reached[:, ::-1].argmin(1)
        return self._heads(np.where(reached.all(1), 0, short))

    def steps(
        self, threshold: float = THRESHOLD
    ) -> tuple[Float[np.ndarray, " times"], Float[np.ndarray, " times"]]:
        """The fewest and the most heads that may be needed, in each resample.

        The curve crosses the threshold between the last count below it and the first count that
        reaches it. It may also have crossed unseen between earlier counts; that is ignored.
        """
        place = self._reached(threshold)[1:].argmax(1)
        before = np.where(place > 0, self.counts[place - 1] + 1, self.counts[0])
        return before.astype(float), self.counts[place].astype(float)

    @cached_property
    def points(self) -> list[tuple[int, Interval]]:
        """Every count and its explained effect."""
        curves = zip(self.counts.tolist(), self.values.tolist(), self.samples.T, strict=True)
        return [(count, _interval(v, some, self.span.n, self.known)) for count, v, some in curves]

    def _reached(self, threshold: float) -> Bool[np.ndarray, "rows counts"]:
        """Which counts reach the threshold: in the estimate (first row) and in each resample."""
        reached = np.concatenate([self.values[None], self.samples]) >= threshold - 1e-9
        reached[:, -1] = True  # all heads explain the whole effect, except for rounding
        return reached

    def _heads(self, places: Int[np.ndarray, " rows"]) -> Interval:
        """A number of heads with its interval, from indices of counts: estimate, then resamples."""
        counts = self.counts[places].astype(float)
        value = float(counts[0]) if self.known else math.nan
        return _interval(value, counts[1:], self.span.n, self.known)


def explained_effect(
    values: Mapping[int, Float[np.ndarray, "draws prompts"]],
    clusters: Clusters,
    *,
    resamples: int = 2000,
) -> Explained:
    """The explained effect of the metric's `values` by number of heads kept, none and all included.

    Several draws are several random orders, which are resampled too, alike at every count.

    >>> values = {0: np.array([[0.0, 2.0]]), 1: np.array([[3.0, 3.0]]), 2: np.array([[4.0, 4.0]])}
    >>> found = explained_effect(values, ["a", "b"])
    >>> found.values.round(3).tolist(), found.first(0.6).value
    ([0.0, 0.667, 1.0], 1.0)
    """
    counts = sorted(values)
    items = Resampling(clusters, resamples=resamples)
    weights = _draw_weights(max(map(len, values.values())), len(items.drawn))

    def means(count: int) -> Float[np.ndarray, " times"]:
        table = values[count]
        by_draw = np.stack([items.means(row) for row in table], 1)  # (times, draws)
        return np.asarray((by_draw * weights).sum(1) if len(table) > 1 else by_draw[:, 0])

    none, whole = values[counts[0]], values[counts[-1]]
    below, above = means(counts[0]), means(counts[-1])
    spans = above - below
    n = len(np.unique(items.labels))
    span = _interval(float(whole.mean() - none.mean()), spans, n, n > 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        samples = np.stack([(means(count) - below) / spans for count in counts], 1)
        point = np.array([values[count].mean() - none.mean() for count in counts]) / span.value
    return Explained(np.array(counts), point, samples, span)


def ratio_of_counts(one: Explained, other: Explained, threshold: float = THRESHOLD) -> Interval:
    """The heads that `one` needs divided by the heads that `other` needs, with an interval.

    The heads needed lie somewhere between two evaluated counts, and the interval allows for that:
    equal counts, or different grids of counts, decide nothing by themselves.
    """
    if not (one.known and other.known):
        return Interval(math.nan, math.nan, math.nan, min(one.span.n, other.span.n))
    value = one.first(threshold).value / other.first(threshold).value
    (few, many), (fewer, more) = one.steps(threshold), other.steps(threshold)
    low, high = np.quantile(few / more, 0.025), np.quantile(many / np.maximum(fewer, 1), 0.975)
    return Interval(
        value, min(float(low), value), max(float(high), value), min(one.span.n, other.span.n)
    )


def _draw_weights(draws: int, times: int) -> Float[np.ndarray, "times draws"]:
    """The weight of each random order in each resample of `draws` - 1 orders (at least one)."""
    rng = np.random.default_rng([0, draws])
    taken = max(draws - 1, 1)
    return rng.multinomial(taken, np.full(draws, 1 / draws), size=times) / taken


def _interval(value: float, samples: Float[np.ndarray, " times"], n: int, known: bool) -> Interval:
    """The percentile interval; its ends are NaN if there is no effect to explain."""
    if not known:
        return Interval(value, math.nan, math.nan, n)
    return percentile_interval(value, samples, n)
