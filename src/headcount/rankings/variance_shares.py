"""The shares of a ranking's variance that its causes have, with intervals.

See `stability` for what they mean. Estimates are those of a two-way analysis of variance, on the
mean of all heads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from headcount.stats import Interval
from headcount.stats.estimate import Z95, quantile_of_t

HEADS = "heads"  # what no cause explains
Tables = Mapping[str, Float[np.ndarray, "_ _ heads"]]
TOGETHER = " with prompts"  # what a cause does on some sets of prompts and not on others


def components(tables: Tables) -> dict[str, float]:
    """The component of variance of each cause, and of its interaction with the prompts.

    A table has the scores by level and set of prompts; that of the prompts by set and group of
    templates, so that it also has the component of the templates.

    >>> levels = np.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]])
    >>> prompts, seeds = np.stack([levels[:1]] * 2), np.stack([levels] * 2, axis=1)
    >>> found = components({"prompts": prompts, "seed": seeds})
    >>> {cause: round(variance, 2) for cause, variance in found.items()}
    {'prompts': 0.0, 'seed': 2.0, 'seed with prompts': 0.0}
    """
    found = {}
    for cause, table in tables.items():
        spread = table.std(2, keepdims=True)
        even = (table - table.mean(2, keepdims=True)) / np.where(spread > 0, spread, 1)
        if cause == "prompts":
            found[cause] = _variance(even)
            if even.shape[1] > 1:
                found["templates"] = _between(even.swapaxes(0, 1), found[cause])
            continue
        levels, sets = even.shape[:2]
        apart = even - even.mean(0) - even.mean(1, keepdims=True) + even.mean((0, 1))
        noise = (apart**2).sum((0, 1)).mean() / ((levels - 1) * max(sets - 1, 1))
        found[cause] = _between(even, noise)
        found[f"{cause}{TOGETHER}"] = 0.0 if _equal(even) or sets == 1 else float(noise)
    return found


def _between(even: Float[np.ndarray, "levels sets heads"], noise: float) -> float:
    """The variance between levels, without what single sets of prompts add to it."""
    variance = _variance(even.mean(1, keepdims=True))
    return max(0.0, variance - float(noise) / len(even[0]))


def _variance(even: Float[np.ndarray, "levels _ heads"]) -> float:
    """The variance between levels, on the mean of all heads; of equal scores not even rounding."""
    return 0.0 if _equal(even) or len(even) < 2 else float(even.var(0, ddof=1).mean())


def _equal(even: Float[np.ndarray, "levels _ heads"]) -> bool:
    return bool((even == even[:1]).all())


def shares_of(tables: Tables) -> dict[str, Interval]:
    """The share of each component, and of the heads, with intervals over the sets of prompts.

    The jackknife leaves out one set at a time, which takes at least three.
    """

    def shares(left_out: int | None = None) -> dict[str, float]:
        fewer = tables
        if left_out is not None:
            fewer = {c: np.delete(t, left_out, int(c != "prompts")) for c, t in tables.items()}
        parts = components(fewer)
        return {**parts, HEADS: 1 - sum(parts.values())}

    sets, reach = len(tables["prompts"]), math.nan
    without = [shares(one) for one in range(sets)] if sets > 2 else []
    if without:
        reach = quantile_of_t(Z95, sets - 1) * math.sqrt(sets - 1)
    found = {}
    for cause, share in shares().items():
        half = reach * float(np.std([one[cause] for one in without] or [0.0]))
        value, low, high = np.clip((share, share - half, share + half), 0.0, 1.0).tolist()
        found[cause] = Interval(value, low, high, sets)
    return found
