"""Do rankings agree? Correlation of all scores, overlap of the best heads, and stability of each.

Even two random rankings share some of their best heads. An overlap therefore comes with the overlap
by chance: the hypergeometric mean and 95 % interval for two independent draws of K heads, and how
likely such draws have as many in common. Good heads often lie in the same layers for whatever task,
so there is also the chance of draws that have as many heads in each layer as the two lists.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headcount.errors import HeadcountError
from headcount.heads import HeadScores, check_counts
from headcount.stats import Clusters, Interval, cells, common_by_chance
from headcount.system.frames import data_frame

if TYPE_CHECKING:
    import pandas

SPLITS = 100  # random halves over which a stability is averaged


@dataclass(frozen=True)
class Overlap:
    """The share of the best `count` heads that two rankings have in common, and that by chance.

    Lists that name other numbers of heads may be compared whole: the share is that of the shorter.
    """

    one: str
    other: str
    count: int
    share: float
    chance: float
    chance_low: float
    chance_high: float
    other_count: int
    common: int
    p_value: float  # of as many heads in common or more, if both lists were random
    layer_chance: float  # the same for random heads of the same layers
    layer_p_value: float


@dataclass(frozen=True, eq=False)
class Agreement:
    """The agreement of each pair of rankings; `stability` is a ranking's agreement with itself."""

    names: tuple[str, ...]
    total: int  # heads of the model
    correlation: Float[np.ndarray, "rankings rankings"]  # Spearman's; NaN if all scores are equal
    overlaps: tuple[Overlap, ...]
    stability: Mapping[str, Interval]

    @property
    def counts(self) -> list[int]:
        """The numbers K of best heads that are compared."""
        return sorted({overlap.count for overlap in self.overlaps})

    def to_json(self) -> dict[str, Any]:
        """A JSON object with every number."""
        return {
            "format": "headcount agreement 1",
            "rankings": list(self.names),
            "heads": self.total,
            "spearman": self.correlation.tolist(),
            "overlaps": [asdict(overlap) for overlap in self.overlaps],
            "stability": {name: value.to_json() for name, value in self.stability.items()},
        }

    def to_frame(self) -> pandas.DataFrame:
        """The overlaps as a pandas data frame: a row for each pair of rankings and count."""
        return data_frame([asdict(overlap) for overlap in self.overlaps])

    def __str__(self) -> str:
        wide = max(12, *(len(name) + 2 for name in self.names))
        lines = ["Spearman correlation of the scores"]
        lines.append(" " * wide + "".join(f"{name:>{wide}}" for name in self.names))
        for name, row in zip(self.names, self.correlation, strict=True):
            lines.append(f"{name:{wide}}" + "".join(f"{value:{wide}.2f}" for value in row))
        if self.overlaps:
            pairs = {f"{o.one} / {o.other}": "share" for o in self.overlaps}
            first = next(iter(pairs))
            wide = max(16, *(len(pair) + 2 for pair in pairs))
            lines += ["", "Share of the best K heads in common; below, what chance gives"]
            lines.append(f"{'K':{wide}}" + "".join(f"{count:7}" for count in self.counts))
            chance = {"chance": "chance", "  95 % from": "chance_low", "  to": "chance_high"}
            for label, fact in (pairs | chance).items():
                pair = label if label in pairs else first
                row = [o for o in self.overlaps if f"{o.one} / {o.other}" == pair]
                lines.append(f"{label:{wide}}" + "".join(f"{getattr(o, fact):7.2f}" for o in row))
        known = {name: value for name, value in self.stability.items() if value.n > 1}
        if known:
            lines += ["", "Stability: Spearman correlation of rankings from halves of the samples"]
            lines += [
                f"{name:{wide}}{own.value:8.2f}  [{own.low:.2f}, {own.high:.2f}]  n = {own.n}"
                for name, own in known.items()
            ]
        return "\n".join(lines)


def agreement(
    scores: Mapping[str, HeadScores],
    counts: Sequence[int] | None = None,
    *,
    clusters: Mapping[str, Clusters] | None = None,
) -> Agreement:
    """Compare rankings of one model: each pair's correlation and overlap, each ranking's stability.

    `counts` are the numbers of best heads to compare (default: powers of 2 up to half of them all).
    `clusters` gives, for a ranking with one sample per example, the cluster of each sample.

    >>> from headcount.heads import HeadLayout
    >>> one, other = (HeadScores(HeadLayout((4,)), np.array(v), "m")
    ...               for v in ([4.0, 3.0, 2.0, 1.0], [4.0, 2.0, 3.0, 1.0]))
    >>> result = agreement({"one": one, "other": other}, counts=[2])
    >>> float(result.correlation[0, 1]), result.overlaps[0].share
    (0.8, 0.5)
    >>> result.to_frame()["count"].tolist()
    [2]
    """
    if len(scores) < 2:
        raise HeadcountError("Give at least two rankings to compare.")
    names = tuple(scores)
    layout = scores[names[0]].layout
    for name in names:
        if scores[name].layout != layout:
            raise HeadcountError(
                f'The rankings "{names[0]}" and "{name}" are of different models: they are for '
                f"{layout.total} heads in {len(layout.counts)} layers and for "
                f"{scores[name].layout.total} in {len(scores[name].layout.counts)}."
            )
    if counts is None:
        counts = [2**power for power in range(max(1, layout.total // 2).bit_length())]
    counts = [count for count in check_counts(counts, layout) if count]
    correlation = np.eye(len(names))
    overlaps = []
    for a, b in combinations(range(len(names)), 2):
        first, second = scores[names[a]], scores[names[b]]
        correlation[a, b] = correlation[b, a] = (
            spearman(first.values, second.values)
            if first.listed == second.listed == layout.total
            else math.nan
        )
        for sizes in _sizes(first, second, counts):
            overlaps.append(_overlap((names[a], names[b]), (first, second), sizes))
    for index, name in enumerate(names):
        correlation[index, index] = spearman(scores[name].values, scores[name].values)
    stabilities = {name: stability(scores[name], (clusters or {}).get(name)) for name in names}
    return Agreement(names, layout.total, correlation, tuple(overlaps), stabilities)


def _sizes(one: HeadScores, other: HeadScores, counts: Sequence[int]) -> list[tuple[int, int]]:
    """The numbers of best heads that both tell, and all heads of lists that name only some."""

    def tells(scores: HeadScores, count: int) -> bool:
        return count == scores.listed or (count < scores.listed and scores.ordered)

    ends = [scores.listed for scores in (one, other) if scores.listed < scores.layout.total]
    sizes = {(n, n) for n in (*counts, *ends) if tells(one, n) and tells(other, n)}
    return sorted(sizes | ({(ends[0], ends[1])} if len(ends) == 2 else set()))


def _overlap(
    names: tuple[str, str], scores: tuple[HeadScores, HeadScores], sizes: tuple[int, int]
) -> Overlap:
    layout, least = scores[0].layout, min(sizes)
    drawn = [one.best(size) for one, size in zip(scores, sizes, strict=True)]
    common = len({*drawn[0].tolist()} & {*drawn[1].tolist()})
    of_layer = [np.bincount(layout.layers[heads], minlength=len(layout.counts)) for heads in drawn]
    layers = zip(layout.counts, *(found.tolist() for found in of_layer), strict=True)
    anywhere, alike = common_by_chance([(layout.total, *sizes)]), common_by_chance(layers)
    return Overlap(
        *names,
        sizes[0],
        common / least,
        *chance_overlap(layout.total, *sizes),
        other_count=sizes[1],
        common=common,
        p_value=float(anywhere[common:].sum()),
        layer_chance=float(alike @ np.arange(len(alike))) / least,
        layer_p_value=float(alike[common:].sum()),
    )


def ranks(values: Float[np.ndarray, "heads"]) -> Float[np.ndarray, "heads"]:
    """The rank of each value from 1 up; equal values share the mean of their ranks.

    >>> ranks(np.array([3.0, 1.0, 3.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    _, group, sizes = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(sizes)
    return np.asarray((ends - (sizes - 1) / 2)[group], dtype=np.float64)


def spearman(one: Float[np.ndarray, "heads"], other: Float[np.ndarray, "heads"]) -> float:
    """Spearman's rank correlation; NaN if all values on either side are equal."""
    a, b = ranks(one), ranks(other)
    a, b = a - a.mean(), b - b.mean()
    size = math.sqrt(float(a @ a) * float(b @ b))
    return float(np.clip(a @ b / size, -1, 1)) if size else math.nan


def chance_overlap(
    total: int, count: int, other_count: int | None = None
) -> tuple[float, float, float]:
    """Mean and 95 % interval of the share that two random draws of `count` heads have in common.

    >>> [round(x, 3) for x in chance_overlap(100, 10)]
    [0.1, 0.0, 0.3]
    """
    other = count if other_count is None else other_count
    below, least = np.cumsum(common_by_chance([(total, count, other)])), min(count, other)
    low, high = (int(np.searchsorted(below, q - 1e-12)) for q in (0.025, 0.975))
    return max(count, other) / total, low / least, high / least


def stability(
    scores: HeadScores,
    clusters: Clusters | None = None,
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Interval:
    """How well rankings from two halves of the samples agree, with a 95 % interval.

    The value is the mean Spearman correlation over 100 random splits into halves; a cluster stays
    in one half. For the interval, each resample splits the clusters anew and draws with replacement
    within each half, since a cluster in both halves would agree with itself. Drawing makes the
    halves noisier and lowers the correlation, so the interval is that of the deviations from the
    resamples' mean, on Fisher's z scale. It tends to be too wide: a resample has one split, the
    value a hundred. It is NaN with fewer than four clusters; with one, the value is NaN too.
    """
    rows = 0 if scores.samples is None else len(scores.samples)
    labels = np.arange(rows) if clusters is None else cells(clusters)
    if len(labels) != rows:
        raise ValueError(f"{len(labels)} clusters for {rows} samples")
    n = len(np.unique(labels))
    if scores.samples is None or n < 2:
        return Interval(math.nan, math.nan, math.nan, n)
    sums = np.zeros((n, scores.layout.total))
    np.add.at(sums, labels, scores.samples)
    sizes = np.bincount(labels)
    rng = np.random.default_rng(seed)

    def correlation(draw: bool) -> float:
        order = rng.permutation(n)
        halves = []
        for half in (order[: n // 2], order[n // 2 : n // 2 * 2]):
            half = rng.choice(half, len(half)) if draw else half
            halves.append(sums[half].sum(0) / sizes[half].sum())
        return spearman(*halves)

    value = float(np.mean([correlation(draw=False) for _ in range(SPLITS)]))
    if n < 4 or math.isnan(value):
        return Interval(value, math.nan, math.nan, n)
    drawn = np.array([correlation(draw=True) for _ in range(resamples)])
    drawn = np.arctanh(np.clip(drawn[~np.isnan(drawn)], -1 + 1e-9, 1 - 1e-9))
    middle = math.atanh(min(max(value, -1 + 1e-9), 1 - 1e-9))
    low, high = np.tanh(middle + np.quantile(drawn - drawn.mean(), [0.025, 0.975]))
    return Interval(value, min(float(low), value), max(float(high), value), n)
