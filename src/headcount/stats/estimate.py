"""Estimates: a value, and what it becomes when each source of chance is drawn again.

Values are in arrays of shape (draws, items), or (items,) for a single draw. An item is an example;
a draw is a random head set, a fit or a training run. Two things make examples more alike than they
look: a *template* that they share, and a *content* that they share. Both are levels, and they
cross: the same content may stand in several templates.

How sure a mean is depends on what another sample would have brought anew. So each level is
resampled on its own (Rao and Wu 1988: n − 1 of n units), and the variances are put together as in
two-way clustered errors (Cameron, Gelbach and Miller 2011):

    V = V(templates) + V(contents) − V(items),  at least V(items);  plus V(draws)

Each of the first two holds V(items). The interval is the value ± t standard errors. Few templates
tell little about how much templates differ, so t has one degree of freedom less than there are
templates (as many as equally large ones would be: (Σ n)² / Σ n²), whatever the variances look like:
six templates that happen to agree prove nothing. Draws have a t of their own, and the two reaches
are added in quadrature, so that two or three draws widen the interval as far as they are uncertain
themselves. A level of two units is held fixed: the interval is then about these very templates.

If an interval cannot be computed, as from a single item, its ends are NaN: figures leave a gap, and
`claims.judge` says "undecided". `scripts/calibrate.py` measures how often intervals hold the truth.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from statistics import NormalDist
from typing import Any

import numpy as np
from jaxtyping import Float

RESAMPLES = 2000
ITEMS = "items"
POWER = 0.8
NEARLY_NOTHING = 0.1  # of a denominator
RESERVE = 0.9  # of the errors that a family may make: its variances are estimates themselves
Z95 = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True)
class Interval:
    """An estimate and the ends of its interval; `n` is the number of different items.

    `detectable` is how far the truth must lie from a margin for such a sample to tell the two apart
    8 times in 10.

    >>> print(Interval(0.625, 0.5, 0.75, n=40))
    0.625 [0.5, 0.75]
    >>> round(Interval(0.5, 0.402, 0.598, n=100).detectable, 3)
    0.14
    """

    value: float
    low: float
    high: float
    n: int
    error: float = field(default=math.nan, repr=False, compare=False)  # standard error, if known

    @property
    def known(self) -> bool:
        """Whether the ends are numbers."""
        return not (math.isnan(self.low) or math.isnan(self.high))

    @property
    def detectable(self) -> float:
        """The smallest effect that would be found with 80 % probability."""
        half = (self.high - self.low) / 2
        error = half / Z95 if math.isnan(self.error) else self.error
        return half + NormalDist().inv_cdf(POWER) * error

    def to_json(self) -> dict[str, float]:
        """The estimate, the ends and the number of items, for programs that read JSON."""
        return {"value": self.value, "low": self.low, "high": self.high, "n": self.n}

    def __str__(self) -> str:
        if not self.known:
            return "unknown" if math.isnan(self.value) else f"{self.value:.3g} (no interval)"
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class Level:
    """What is resampled on its own: the templates of a set of items, say, or a table's draws.

    `owner` tells sets of items, or tables, apart; `freedom` are the degrees of freedom with which
    the level's variance is known.
    """

    owner: int
    name: str
    n: int
    freedom: float


@dataclass(frozen=True)
class _Spread:
    """How far resamples spread: standard error, degrees of freedom, and deviations of that size.

    Each has one more axis where several columns are estimated at once.
    """

    error: Any
    freedom: float
    deviations: Float[np.ndarray, "times *columns"]
    parts: tuple[_Spread, ...] = ()  # of each owner, where there are several

    def reach(self, z: float) -> Any:
        """How far the interval reaches: each owner's t standard errors, added in quadrature."""
        if self.parts:
            return np.sqrt(sum(part.reach(z) ** 2 for part in self.parts))
        return quantile_of_t(z, self.freedom) * self.error


@dataclass(frozen=True, eq=False)
class Estimate:
    """A value, and what it becomes in the resamples of each level; arithmetic applies to all.

    The value may be an array, one number for each column of a table (`Resampling.columns`).

    >>> from headcount.stats import Resampling
    >>> items = Resampling([0, 1, 2, 3])
    >>> one, two = items.estimate([1, 2, 3, 4]), items.estimate([2, 2, 2, 2])
    >>> (one * 2 - two).value, (two - two).interval.high
    (3.0, 0.0)
    """

    value: Any
    parts: Mapping[Level, Float[np.ndarray, "times *columns"]] = field(repr=False)
    limits: tuple[float, float] = (-math.inf, math.inf)  # no interval reaches beyond what can be

    def limited(self, low: float, high: float) -> Estimate:
        """The same estimate of something that cannot lie outside these limits.

        >>> from headcount.stats import Resampling
        >>> falls = Resampling([0, 1, 2]).estimate([-1, -1, 0])
        >>> falls.interval.low < -1, falls.limited(-1, 1).interval.low
        (True, -1.0)
        """
        return replace(self, limits=(low, high))

    def __add__(self, other: Estimate) -> Estimate:
        return combine(np.add, self, other)

    def __sub__(self, other: Estimate) -> Estimate:
        return combine(np.subtract, self, other)

    def __mul__(self, factor: float) -> Estimate:
        return combine(lambda value: value * factor, self)

    def scaled(self, low: float, high: Estimate) -> Estimate:
        """Rescale so that `low` is 0 and `high` is 1; NaN where that range may be empty."""
        return (self - constant(low)).over(high - constant(low))

    def over(self, whole: Estimate) -> Estimate:
        """The ratio to `whole`, without an interval if `whole` may be 0 or negative."""
        value = self.value / whole.value if whole.value else math.nan

        def ratio(part: Any, of: Any) -> Any:
            # A resample in which hardly anything is left of the whole would count too much.
            near = value + (part - value * of) / whole.value
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.where(of > NEARLY_NOTHING * whole.value, part / of, near)

        if whole.interval.low > 0:
            return combine(ratio, self, whole)
        return unknown_interval(value, self, whole)

    @property
    def n(self) -> int:
        """The number of different items: of the smallest set, if there are several."""
        return min((level.n for level in self.parts if level.name == ITEMS), default=0)

    @cached_property
    def spread(self) -> _Spread:
        """The variances of all levels put together; NaN where they are not known."""
        by_owner: dict[int, dict[Level, np.ndarray]] = {}
        for level, some in self.parts.items():
            by_owner.setdefault(level.owner, {})[level] = some
        together = [_together(levels, self.value) for levels in by_owner.values()]
        if not together or self.n < 2:
            nothing = np.full_like(np.asarray(self.value, dtype=np.float64), np.nan)
            return _Spread(nothing[()], 1.0, np.zeros((RESAMPLES, *nothing.shape)))
        if len(together) == 1:
            return together[0]
        variance = sum(one.error**2 for one in together)
        deviations = np.sum([one.deviations for one in together], axis=0)
        least = min(one.freedom for one in together)
        return _Spread(np.sqrt(variance), least, deviations, tuple(together))

    @property
    def interval(self) -> Interval:
        """The value with its 95 % interval."""
        return self.within(Z95)

    def within(self, z: float) -> Interval:
        """The value with an interval that reaches as far as `z` normal standard errors."""
        low, high = (float(end) for end in self.ends(z))
        return Interval(float(self.value), low, high, self.n, float(self.spread.error))

    def ends(self, z: float = Z95) -> tuple[np.ndarray, np.ndarray]:
        """The ends of that interval."""
        half = self.spread.reach(z)
        return np.clip(self.value - half, *self.limits), np.clip(self.value + half, *self.limits)

    @cached_property
    def samples(self) -> Float[np.ndarray, "times *columns"]:
        """Resamples that spread as the interval does, for statistics of whole curves."""
        error = self.spread.error
        with np.errstate(divide="ignore", invalid="ignore"):
            wider = np.where(error > 0, self.spread.reach(Z95) / (Z95 * error), 1.0)
        return np.asarray(self.value + self.spread.deviations * wider)

    def band(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Ends that hold all the truths of an array together this often."""
        spread = self.spread
        columns = [
            _Spread(float(error), spread.freedom, deviations)
            for error, deviations in zip(
                np.atleast_1d(spread.error), np.atleast_2d(spread.deviations.T), strict=True
            )
        ]
        return self.ends(family_z(columns, level))


def _together(levels: Mapping[Level, np.ndarray], value: Any) -> _Spread:
    """The spread by the levels of one owner, which cross each other."""
    around = {level: some - value for level, some in levels.items()}
    variances = {level: some.var(0) for level, some in around.items()}
    items = next((level for level in around if level.name == ITEMS), None)
    crossed = [level for level in around if level is not items] or list(around)
    deviations = np.sum([around[level] for level in crossed], axis=0)
    variance = sum(variances[level] for level in crossed)
    if items is not None and crossed != [items]:
        least = variances[items]
        variance = np.maximum(variance - (len(crossed) - 1) * least, least)
    size = deviations.std(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = np.where(size > 0, np.sqrt(variance) / size, 0.0)
    freedom = min(level.freedom for level in crossed)
    return _Spread(np.sqrt(variance), freedom, (deviations - deviations.mean(0)) * scale)


def combine(function: Callable[..., Any], *estimates: Estimate) -> Estimate:
    """A function of several estimates: of their values, and of their resamples level by level.

    While one level is resampled, estimates that do not depend on it keep their values.
    """
    levels = dict.fromkeys(level for estimate in estimates for level in estimate.parts)
    parts = {
        level: np.asarray(function(*(e.parts.get(level, e.value) for e in estimates)))
        for level in levels
    }
    value = function(*(np.asarray(e.value, dtype=np.float64)[()] for e in estimates))
    return Estimate(value if np.ndim(value) else float(value), parts)


def constant(value: float) -> Estimate:
    """A number that is known."""
    return Estimate(value, {})


def unknown_interval(value: float, *estimates: Estimate) -> Estimate:
    """A value whose interval cannot be told, made from these estimates."""
    levels = [level for estimate in estimates for level in estimate.parts]
    return Estimate(value, {level: np.full(RESAMPLES, np.nan) for level in levels})


def mean_of(estimates: Sequence[Estimate]) -> Estimate:
    """The mean of several estimates, which keeps limits that all of them have."""
    found = combine(lambda *values: sum(values) / len(values), *estimates)
    limits = {estimate.limits for estimate in estimates}
    return found.limited(*limits.pop()) if len(limits) == 1 else found


def simultaneous(estimates: Sequence[Estimate], level: float = 0.95) -> list[Interval]:
    """Intervals that hold all the truths together this often: for claims about several panels.

    They are as much wider as the largest of several standardised deviations is than a single one
    (max-t). Deviations on the same items go together, which makes the largest one smaller; what few
    templates cannot tell from chance of that does not count.

    >>> from headcount.stats import Resampling
    >>> items = Resampling(range(50))
    >>> noise = np.random.default_rng(0).normal(size=(8, 50))
    >>> family = [items.estimate(row) for row in noise]
    >>> one, alone = simultaneous(family)[0], family[0].interval
    >>> one.low < alone.low and one.high > alone.high
    True
    """
    z = family_z([estimate.spread for estimate in estimates], level)
    return [estimate.within(z) for estimate in estimates]


def family_z(spreads: Sequence[_Spread], level: float = 0.95) -> float:
    """How many normal standard errors hold the largest of several deviations this often."""
    known = [spread for spread in spreads if spread.error > 0]
    if len(known) < 2:
        return NormalDist().inv_cdf((1 + level) / 2)
    together = np.corrcoef([spread.deviations for spread in known])
    chance = 1 / math.sqrt(1 + min(spread.freedom for spread in known))
    together = np.sign(together) * np.maximum(np.abs(together) - chance, 0)
    np.fill_diagonal(together, 1.0)
    strengths, directions = np.linalg.eigh(together)
    # The symmetric root is the same on every machine; eigenvectors are not.
    factors = directions * np.sqrt(np.maximum(strengths, 0)) @ directions.T
    factors /= np.linalg.norm(factors, axis=1, keepdims=True)
    drawn = np.random.default_rng(0).normal(size=(10 * RESAMPLES, len(known))) @ factors.T
    return float(np.quantile(np.abs(drawn).max(1), 1 - RESERVE * (1 - level)))


def quantile_of_t(z: float, freedom: float) -> float:
    """The quantile of Student's t that cuts off as much as `z` does of a normal distribution."""
    return _student(z, round(float(freedom), 2))


@cache
def _student(z: float, freedom: float) -> float:
    """One of these quantiles.

    >>> round(_student(1.959964, 5.0), 3), round(_student(1.959964, math.inf), 3)
    (2.571, 1.96)
    """
    if freedom > 1000:
        return z
    below = NormalDist().cdf(z)
    # x = tan(a) turns the whole half-line into a finite range of angles.
    edges = np.linspace(0, math.pi / 2, 20001)
    x = np.tan((edges[1:] + edges[:-1]) / 2)
    density = (1 + x * x / freedom) ** (-(freedom + 1) / 2) * (1 + x * x)
    area = np.concatenate([[0.0], np.cumsum(density)])
    return math.tan(float(np.interp(below, 0.5 + area / area[-1] / 2, edges)))
