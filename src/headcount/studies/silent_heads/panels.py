"""The panels of `silent-heads`: one task each, and what is estimated from its values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from jaxtyping import Float

from headcount.curves.silent import CONSTANT, MATCHED, PER_INPUT, RANDOM, WHOLE
from headcount.metrics.chance import Chance
from headcount.stats import Estimate, Interval, Resampling, constant, share_interval
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "series", "score", "metric", "count")
SHARED = ("model", "task")
ACCURACY, MARGIN, ZEROED = "accuracy", "margin", "zeroed"
METRICS = {ACCURACY: "accuracy", MARGIN: "log-probability margin"}
CONTROLS = (RANDOM, MATCHED)

Series = tuple[str, str]  # series and score


@dataclass(frozen=True, eq=False)
class SilentPanel:
    """One task: the margins of its prompts, from which accuracy follows."""

    key: str
    values: ValueTable
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The task's name for readers."""
        return str(self.facts["tasks"][self.key])

    @property
    def scores(self) -> list[str]:
        """The scores that were read, the one that others are compared with first."""
        return list(self.facts["scores"])

    @property
    def shares(self) -> list[int]:
        """The percentages of heads that thresholds were to zero."""
        return [int(share) for share in self.facts["shares"]]

    @property
    def series(self) -> list[Series]:
        """All curves: per input, constant, and the controls of the first score."""
        chosen = [(series, s) for series in (PER_INPUT, CONSTANT) for s in self.scores]
        return chosen + [(series, self.scores[0]) for series in CONTROLS]

    @cached_property
    def items(self) -> Resampling:
        """Resamples of the prompts; each panel has a seed of its own."""
        clusters = self.values.clusters(model=self.facts["model"], task=self.key)
        return Resampling(clusters, seed=crc32(self.key.encode()))

    def table(self, series: Series, share: int, metric: str) -> Float[np.ndarray, "items"]:
        """The value of each prompt at one point: the mean over its own random draws.

        Every prompt has other random heads, so draws are no level of their own: resampled prompts
        bring theirs along.
        """
        return np.asarray(self.draws(series, share, metric).mean(0))

    def draws(self, series: Series, share: int, metric: str) -> Float[np.ndarray, "draws items"]:
        """The values of one point; at 0 they are those of the whole model."""
        kind, score = series if share else (WHOLE, "")
        about = {"model": self.facts["model"], "task": self.key, "series": kind, "score": score}
        margins = self.values.get(**about, count=share, metric=MARGIN)
        return np.asarray(margins > 0, dtype=float) if metric == ACCURACY else margins

    def lost(self, series: Series, share: int) -> Float[np.ndarray, "items"]:
        """The share of heads that each prompt loses."""
        kind, score = series
        if kind == CONSTANT:
            heads = self.facts[CONSTANT][str(share)] / self.facts["total"]
            return np.full(self.items.n, heads)
        about = {"model": self.facts["model"], "task": self.key, "series": PER_INPUT}
        found = self.values.get(**about, score=score, count=share, metric=ZEROED)
        return np.asarray(found[0])

    def interval(self, series: Series, share: int, metric: str) -> Interval:
        """The mean of one point."""
        found = self.items.estimate(self.table(series, share, metric))
        return share_interval(found, self.items) if metric == ACCURACY else found.interval

    def whole(self, metric: str) -> Estimate:
        """The mean with all heads."""
        return self.items.estimate(self.table((WHOLE, ""), 0, metric))

    def loss(self, series: Series, share: int, metric: str) -> Estimate:
        """What is lost, as a share of the mean with all heads."""
        before, after = (self.table(series, at, metric) for at in (0, share))
        return self.items.difference(before, after).over(self.whole(metric))

    def kept(self, series: Series, share: int, metric: str) -> Estimate:
        """What is left, as a share of the mean with all heads."""
        return constant(1.0) - self.loss(series, share, metric)

    def area(self, series: Series, metric: str) -> Estimate:
        """The mean of what is left, over shares of heads from none to the largest.

        It is the area under the curve through the shares that test prompts lost, by trapezoids, as
        a share of the mean with all heads.
        """
        places = [0.0, *(float(self.lost(series, share).mean()) for share in self.shares)]
        weights = area_weights(places, self.shares[-1] / 100)
        tables = [self.table(series, share, metric) for share in (0, *self.shares)]
        mixed = sum(weight * table for weight, table in zip(weights, tables, strict=True))
        return self.items.estimate(mixed).over(self.whole(metric))

    def first_beyond(self, series: Series, share: float) -> int | None:
        """The first share whose threshold zeroes at least so many heads of the test prompts."""
        wide = (at for at in self.shares if self.lost(series, at).mean() >= share)
        return next(wide, None)

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        known = self.facts["chance"].get(self.key)
        if known is None:
            return ""
        return Chance(**known).sentence(self.interval((WHOLE, ""), 0, ACCURACY), "choice accuracy")


def area_weights(places: Sequence[float], end: float) -> Float[np.ndarray, "places"]:
    """The weights of a curve's points in its mean height from 0 to `end`, by trapezoids.

    A curve that ends before stays at its last height.

    >>> area_weights([0.0, 0.25, 1.0], 0.5).round(3).tolist()
    [0.25, 0.667, 0.083]
    >>> area_weights([0.0, 0.25], 0.5).tolist()
    [0.25, 0.75]
    """
    x = np.maximum.accumulate(places)
    knots = np.array([*(place for place in x if place < end), end])
    weights = []
    for number in range(len(x)):
        height = np.interp(knots, x, np.eye(len(x))[number])
        weights.append(float(np.trapezoid(height, knots)) / end)
    return np.array(weights)


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[SilentPanel]:
    """The panels of a result, in the order of its figure."""
    return [SilentPanel(key, values, facts) for key in facts["tasks"]]
