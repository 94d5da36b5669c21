"""What is known about a planted circuit, and how far a ranking finds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
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

        AUROC is how often a head of the circuit has a higher score than one that is not; ties count
        half. Recovery is exact if the best heads, as many as a right set has, are that set.
        """
        right: Sequence[frozenset[Head]] = getattr(self, goal)
        inside = np.array([any(head in heads for heads in right) for head in scores.layout])
        gaps = scores.values[inside][:, None] - scores.values[~inside]
        auroc = ((gaps > ALIKE) + 0.5 * (np.abs(gaps) <= ALIKE)).mean() if gaps.size else np.nan
        exact = any(frozenset(scores.top(len(heads))) == heads for heads in right)
        return {"AUROC": float(auroc), "exact": exact}
