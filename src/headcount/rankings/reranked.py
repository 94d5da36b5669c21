"""Rank heads again on resampled prompts: how much of a curve is the chance of its ranking."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float, Int

from headcount.heads import HeadScores
from headcount.stats.resampling import FEWEST


def ranked_again(
    scores: HeadScores, clusters: Int[np.ndarray, "examples 2"], seed: int
) -> Float[np.ndarray, "heads"] | None:
    """The scores on ranking prompts that were drawn again; None without scores by prompt.

    With at least five templates whole templates are drawn, else single prompts.

    >>> from headcount.heads import HeadLayout
    >>> samples = np.array([[1.0, 0.0], [0.0, 2.0]])
    >>> both = HeadScores.averaged(HeadLayout((2,)), samples, "by hand")
    >>> ranked_again(both, np.array([[0, 0], [0, 1]]), seed=1).shape
    (2,)
    """
    samples = scores.samples
    if samples is None or len(samples) != len(clusters):
        return None
    _, templates = np.unique(clusters[:, 0], return_inverse=True)
    units = templates if templates.max() + 1 >= FEWEST else np.arange(len(samples))
    rng = np.random.default_rng([seed, len(samples)])
    drawn = np.bincount(rng.integers(units.max() + 1, size=units.max() + 1))
    drawn = np.pad(drawn, (0, units.max() + 1 - len(drawn)))
    weights = drawn[units]
    return np.asarray((weights @ samples) / weights.sum())
