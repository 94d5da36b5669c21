"""Exact tests, where they exist: no resampling, no normal distribution."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike


def mcnemar(a: ArrayLike, b: ArrayLike) -> float:
    """McNemar's exact test: how likely so uneven changes are if both directions are equally likely.

    `a` and `b` say which items are right (1) or wrong (0) under two conditions.

    >>> round(mcnemar([1] * 9 + [0] * 3, [0] * 8 + [1, 1, 0, 0]), 4)
    0.0391
    """
    first, second = (np.asarray(side, dtype=np.float64).reshape(-1) for side in (a, b))
    changes = (first - second)[first != second]
    n, fewer = len(changes), int(min((changes > 0).sum(), (changes < 0).sum()))
    tail = sum(math.comb(n, k) for k in range(fewer + 1)) / 2**n
    return float(min(1.0, 2 * tail))


def rank_probability(value: float, draws: ArrayLike) -> float:
    """How likely a random draw is at most as large as `value`, if it were one of them: exact.

    >>> rank_probability(0.1, [0.5, 0.6, 0.7, 0.4])
    0.2
    """
    others = np.asarray(draws, dtype=np.float64).reshape(-1)
    return float((1 + (others <= value).sum()) / (1 + len(others)))


def common_by_chance(layers: Iterable[tuple[int, int, int]]) -> Float[np.ndarray, "counts"]:
    """How likely two random draws have 0, 1, 2, … things in common: exact.

    Each layer has a number of things and the sizes of the two draws from it; one layer gives the
    hypergeometric distribution.

    >>> common_by_chance([(4, 2, 2)]).round(3).tolist()
    [0.167, 0.667, 0.167]
    """
    total = np.ones(1)
    for things, one, other in layers:
        ways = math.comb(things, other)
        common = range(min(one, other) + 1)
        own = [math.comb(one, k) * math.comb(things - one, other - k) / ways for k in common]
        total = np.convolve(total, own)
    return total
