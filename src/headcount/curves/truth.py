"""What is known about a planted circuit, and how far a ranking finds it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from headcount.errors import HeadcountError
from headcount.heads import Head, HeadScores

ALIKE = 1e-4  # of two scores: closer ones are a tie


@dataclass(frozen=True)
class Truth:
    """The right sets of heads to keep and to mask; there are several where heads are backups.

    >>> one = Truth.of([Head(0, 1), Head(1, 0)])
    >>> one.keep == one.mask == (frozenset({Head(0, 1), Head(1, 0)}),)
    True
    """

    keep: Sequence[frozenset[Head]]
    mask: Sequence[frozenset[Head]]

    def __post_init__(self) -> None:
        if not (self.keep and self.mask and all([*self.keep, *self.mask])):
            raise HeadcountError("The truth about a circuit has at least one head for each goal.")

    @classmethod
    def of(cls, heads: Iterable[Head]) -> Truth:
        """The truth about a circuit whose heads are all to be kept, and all to be masked."""
        only = (frozenset(heads),)
        return cls(only, only)

    def found_by(self, scores: HeadScores, goal: str) -> dict[str, Any]:
        """AUROC and exact recovery of a ranking that was made for this goal.

        AUROC is how often a head of a right set has a higher score than one that is not; ties count
        half, and of several right sets that counts which fits best. Recovery is exact if the best
        heads, as many as a right set has, are a right set, however ties are broken.
        """
        right: Sequence[frozenset[Head]] = getattr(self, goal)
        sizes = {len(heads) for heads in right}
        exact = any(all(best in right for best in _best(scores, size)) for size in sizes)
        return {"AUROC": max(_auroc(scores, heads) for heads in right), "exact": exact}


def _best(scores: HeadScores, count: int) -> Iterator[frozenset[Head]]:
    """The best heads: the set that was made for this count, or every way to break ties."""
    if scores.sets is not None:
        yield frozenset(scores.top(count))
        return
    last = scores.values[scores.order()[count - 1]]
    above = [h for h, v in zip(scores.layout, scores.values, strict=True) if v > last + ALIKE]
    tied = [h for h, v in zip(scores.layout, scores.values, strict=True) if abs(v - last) <= ALIKE]
    for some in combinations(tied, count - len(above)):
        yield frozenset((*above, *some))


def _auroc(scores: HeadScores, heads: frozenset[Head]) -> float:
    """How often one of these heads has a higher score than another head."""
    inside = np.array([head in heads for head in scores.layout])
    gaps = scores.values[inside][:, None] - scores.values[~inside]
    higher = (gaps > ALIKE) + 0.5 * (np.abs(gaps) <= ALIKE)
    return float(higher.mean()) if gaps.size else 1.0
