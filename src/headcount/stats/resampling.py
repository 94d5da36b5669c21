"""Resampling: one set of items, drawn again level by level, for all tables of values on it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import count
from typing import Any, TypeAlias
from zlib import crc32

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy.typing import ArrayLike

from headcount.errors import HeadcountError
from headcount.stats.estimate import ITEMS, RESAMPLES, Estimate, Level

# A label for each item, or one in each of several crossed levels: (items,) or (items, levels).
Clusters: TypeAlias = Sequence[Any] | np.ndarray

FEWEST = 3  # units of a level: with fewer it is held fixed
DRAWS, RANKINGS = "draws", "rankings"
DRAWN, RERANKED, FLOOR, HALVES = 9, 10, 11, 12  # in seeds, where levels have their place
_owners = count()


class Resampling:
    """Resamples of one set of items, shared by all tables of values on these items.

    Use it for statistics of several means, such as a difference of differences: `estimate` gives
    estimates that can be added, subtracted and divided. All tables use the same resampled items;
    draws are resampled separately for each table, unless tables name the same `draws`. Different
    sets of items need different seeds, or chance would treat them alike.

    >>> items = Resampling(["a", "b", "c", "d"])
    >>> right, wrong = items.estimate([1, 2, 0, 1]), items.estimate([2, 1, 3, 2])
    >>> (right + wrong).interval
    Interval(value=3.0, low=3.0, high=3.0, n=4)
    """

    def __init__(self, clusters: Clusters, *, seed: int = 0) -> None:
        self.seed, self.owner = seed, next(_owners)
        every = cells(clusters)
        columns = np.asarray(clusters).reshape(len(every), -1).T  # (levels, items)
        crossed = [np.unique(column, return_inverse=True)[1].reshape(-1) for column in columns]
        n = int(every.max(initial=-1)) + 1
        self._columns = [every, *crossed]
        self._units = [int(labels.max(initial=-1)) + 1 for labels in crossed]
        self.labels: dict[Level, Int[np.ndarray, " items"]] = {}
        for place, labels in enumerate([every, *crossed]):
            sizes = np.bincount(labels)
            # With as many units as there are different items, a level adds nothing to them.
            if place == 0 or FEWEST <= len(sizes) < n:
                name = ITEMS if place == 0 else str(place)
                freedom = max(1.0, float(sizes.sum() ** 2 / (sizes**2).sum()) - 1)
                self.labels[Level(self.owner, name, len(sizes), freedom)] = labels
        self._draws: dict[tuple[str, int], tuple[Level, int]] = {}  # with their numbers
        self._rankings: dict[int, Level] = {}  # by how many rankings there are

    @property
    def n(self) -> int:
        """The number of different items."""
        return next(iter(self.labels)).n

    @property
    def words(self) -> str:
        """What is resampled, in words: "93 examples in 41 templates, both drawn anew"."""
        templates = self._units[0] if self._units else self.n
        if len(self._units) < 2 or templates == self.n:
            return f"{self.n} examples, each drawn anew"
        fate = "both drawn anew" if templates >= FEWEST else "which are held fixed"
        return f"{self.n} examples in {templates} templates, {fate}"

    @property
    def fewest(self) -> int:
        """The number of units of the smallest level that is resampled."""
        return min(level.n for level in self.labels)

    def estimate(
        self, values: ArrayLike, draws: str = "", reranked: ArrayLike | None = None
    ) -> Estimate:
        """The mean of (draws, items), with its resamples.

        Tables that give the same name for their `draws` have the same ones: the random orders of a
        curve at all its counts, say. `reranked` holds the values of head sets that were ranked
        again on resampled prompts, (rankings, items): their spread is that of the ranking. All
        tables with as many rankings have the same ones, as a curve has at all its counts.
        """
        table = as_table(values)
        value = float(table.mean())
        # Resampling the deviations gives constant values no width, not even by rounding.
        parts = self._resampled(table.mean(0)[:, None] - value)
        estimate = {level: value + some[:, 0] for level, some in parts.items()}
        if len(table) == 1 and np.isin(table, (0, 1)).all():
            share = (value * table.size + 1) / (table.size + 2)  # one more right, one more wrong
            self._at_least(estimate, share * (1 - share) / table.size, table)
        if len(table) > 1:
            level, number = self._level_of(draws, len(table))
            drawn = _draw((self.seed, DRAWN, number), level.n)
            estimate[level] = value + (drawn @ (table.mean(1) - value)) / drawn.sum(1)
        if reranked is not None:
            level, again = self._reranked(as_table(reranked).mean(1))
            estimate[level] = value + again
        return Estimate(value, estimate)

    def columns(
        self, values: Float[np.ndarray, "*draws items columns"], draws: str = ""
    ) -> Estimate:
        """The mean of each column of a table, or of several draws of it, all at once."""
        table = values if values.ndim == 3 else values[None]  # (draws, items, columns)
        means = table.mean((0, 1))
        resampled = self._resampled(table.mean(0) - means)
        parts = {level: means + some for level, some in resampled.items()}
        if len(table) > 1:
            level, number = self._level_of(draws, len(table))
            drawn = _draw((self.seed, DRAWN, number), level.n)
            parts[level] = means + (drawn @ (table.mean(1) - means)) / drawn.sum(1)[:, None]
        return Estimate(means, parts)

    def difference(self, a: ArrayLike, b: ArrayLike, draws: tuple[str, str] = ("", "")) -> Estimate:
        """The mean of `a` minus that of `b` on the same items.

        Each side has draws of its own, with the names that `estimate` takes.

        Where both sides are right or wrong (0 or 1), one item that changes in either direction is
        added (Bonett and Price 2012): without a single change there would be no width.
        """
        first, second = as_table(a), as_table(b)
        estimate = self.estimate(first, draws[0]) - self.estimate(second, draws[1])
        if not all(np.isin(side, (0, 1)).all() for side in (first, second)):
            return estimate
        changes = first.mean(0) - second.mean(0)
        added = np.concatenate([changes, [1.0, -1.0]])
        parts = dict(estimate.parts)
        self._at_least(parts, added.var(ddof=1) / (len(changes) + 2), np.abs(changes))
        return Estimate(estimate.value, parts)

    def halves(self, seed: int) -> Bool[np.ndarray, " items"]:
        """One random half of the items, which shares with the other half as little as can be.

        Whole templates are on one side where templates are drawn anew; else alike items are.
        """
        every, *crossed = self._columns
        labels = crossed[0] if crossed and self._units[0] >= FEWEST else every
        units = int(labels.max()) + 1
        rng = np.random.default_rng([self.seed, HALVES, seed])
        return np.asarray(rng.permutation(units)[labels] < (units + seed % 2) // 2)

    def _at_least(
        self, parts: dict[Level, np.ndarray], least: float, values: Float[np.ndarray, "..."]
    ) -> None:
        """Add what is missing to this variance of single items, which all levels hold.

        The noise is seeded by the values, so that estimates do not depend on the order in which
        they are made. It is uncorrelated with the resamples, so variances add up exactly, and a
        difference turned round has the same interval with the other sign.
        """
        missing = least - parts[next(iter(self.labels))].var()
        if missing > 0:
            rng = np.random.default_rng([self.seed, FLOOR, crc32(values.tobytes())])
            known = np.stack([parts[level] for level in self.labels], axis=-1)  # (times, levels)
            known = np.concatenate([known - known.mean(0), np.ones((RESAMPLES, 1))], axis=1)
            noise = rng.normal(size=RESAMPLES)
            noise -= known @ np.linalg.lstsq(known, noise, rcond=None)[0]
            noise *= np.sqrt(missing) / noise.std()
            for level in self.labels:
                parts[level] = parts[level] + noise

    def _reranked(self, means: Float[np.ndarray, " rankings"]) -> tuple[Level, np.ndarray]:
        """Deviations as large as those between rankings on resampled prompts."""
        new = Level(next(_owners), RANKINGS, len(means), max(1.0, len(means) - 1.0))
        level = self._rankings.setdefault(len(means), new)
        picks = np.random.default_rng([self.seed, RERANKED]).integers(len(means), size=RESAMPLES)
        around = means - means.mean()
        return level, around[picks] * np.sqrt(len(means) / max(len(means) - 1, 1))

    def _resampled(
        self, deviations: Float[np.ndarray, "items columns"]
    ) -> dict[Level, Float[np.ndarray, "times columns"]]:
        """The mean of each column in the resamples of each level."""
        parts = {}
        for place, (level, labels) in enumerate(self.labels.items()):
            if len(labels) != len(deviations):
                raise ValueError(f"{len(deviations)} values for {len(labels)} items")
            drawn = _draw((self.seed, place), level.n)  # (times, units)
            sums = np.zeros((level.n, deviations.shape[1]))
            np.add.at(sums, labels, deviations)
            sizes = np.bincount(labels, minlength=level.n)
            parts[level] = (drawn @ sums) / (drawn @ sizes)[:, None]
        return parts

    def _level_of(self, draws: str, n: int) -> tuple[Level, int]:
        """The level of a table's draws and its number: a new one, unless the draws have a name."""
        name = draws or f"table {len(self._draws)}"
        new = Level(next(_owners), DRAWS, n, n - 1.0), len(self._draws)
        return self._draws.setdefault((name, n), new)


def cells(clusters: Clusters) -> Int[np.ndarray, " items"]:
    """The number of each item's cell: items of one template and content are one.

    >>> cells([("a", 1), ("a", 2), ("b", 1), ("a", 1)])
    array([0, 1, 2, 0])
    """
    table = np.asarray(clusters)
    columns = table.reshape(len(table), -1)
    return np.unique(columns, axis=0, return_inverse=True)[1].reshape(-1)


def as_table(values: ArrayLike) -> Float[np.ndarray, "draws items"]:
    """Values as a table with one row for each draw; values without a mean are refused."""
    table = np.atleast_2d(np.asarray(values, dtype=np.float64))
    if table.ndim != 2:
        raise ValueError(f"values need the shape (draws, items) or (items,), not {table.shape}")
    if not table.size:
        raise HeadcountError("There are no values to average: the task has no examples left.")
    if np.isnan(table).any():
        raise HeadcountError(
            "Some values are not numbers (NaN), so they have no mean: check the model's dtype."
        )
    return table


@lru_cache(maxsize=64)
def _draw(seed: tuple[int, ...], units: int) -> Float[np.ndarray, "times units"]:
    """How often each unit is drawn in each resample of `units` - 1 draws (at least one draw)."""
    picks = np.random.default_rng([*seed, units]).integers(
        units, size=(RESAMPLES, max(units - 1, 1))
    )
    picks += units * np.arange(RESAMPLES)[:, None]
    times = np.bincount(picks.ravel(), minlength=RESAMPLES * units).reshape(RESAMPLES, units)
    return times.astype(np.float64)
