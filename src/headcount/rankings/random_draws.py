"""Controls: heads drawn at random, from outside the heads under test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, HeadScores
from headcount.models.model import Model
from headcount.tasks import Task


def random_ranking(model: Model, task: Task, *, seed: int = 0) -> HeadScores:
    """Heads in a random order: what any other ranking must beat."""
    values = np.random.default_rng(seed).random(model.layout.total)
    return HeadScores(model.layout, values, "random")


def draw_random(
    layout: HeadLayout, count: int, *, outside: Sequence[int] = (), seed: int = 0
) -> Int[np.ndarray, "count"]:
    """Draw `count` head numbers from those that are not in `outside`.

    >>> sorted(draw_random(HeadLayout((2, 2)), 2, outside=[0, 3]).tolist())
    [1, 2]
    """
    rest = np.setdiff1d(np.arange(layout.total), np.asarray(outside, dtype=int))
    if count > len(rest):
        raise HeadcountError(
            f"Cannot draw {count} random heads outside the {len(outside)} heads under test: only "
            f"{len(rest)} of {layout.total} are left; use smaller counts."
        )
    return np.random.default_rng(seed).choice(rest, count, replace=False)


def draw_matched(
    layout: HeadLayout, chosen: Sequence[int], *, seed: int = 0
) -> tuple[Int[np.ndarray, "count"], float]:
    """Draw as many heads from each layer as `chosen` has there, none of them in `chosen`.

    Where a layer has too few others, the nearest layers fill in. Returns the heads and the share of
    them that lies in another layer than it should.

    >>> heads, unmatched = draw_matched(HeadLayout((2, 2, 2)), [0, 1, 2])
    >>> heads.tolist(), round(unmatched, 2)
    ([3, 4, 5], 0.67)
    """
    if 2 * len(chosen) > layout.total:
        draw_random(layout, len(chosen), outside=chosen)  # refuses, with the reason
    rng = np.random.default_rng(seed)
    spare = {
        layer: list(rng.permutation(np.setdiff1d(np.flatnonzero(layout.layers == layer), chosen)))
        for layer in range(len(layout.counts))
    }
    wanted = layout.layers[np.asarray(chosen, dtype=int)]
    drawn: list[int] = []
    homeless: list[int] = []
    for layer in wanted:
        if spare[layer]:
            drawn.append(int(spare[layer].pop()))
        else:
            homeless.append(int(layer))
    for layer in homeless:
        nearest = min((n for n in spare if spare[n]), key=lambda n: (abs(n - layer), n))
        drawn.append(int(spare[nearest].pop()))
    return np.sort(np.array(drawn, dtype=int)), len(homeless) / max(len(drawn), 1)
