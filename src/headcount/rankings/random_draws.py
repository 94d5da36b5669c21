"""Random controls: heads drawn at random from all heads but those under test."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, HeadScores
from headcount.models.model import Model
from headcount.tasks import Task


def random_ranking(model: Model, task: Task, *, seed: int = 0) -> HeadScores:
    """Random scores: the baseline that any other ranking must beat."""
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
    """Draw heads outside `chosen`, as many from each layer as `chosen` has in that layer.

    If a layer has too few other heads, the missing ones are drawn from the nearest layers. Returns
    the heads, and the share of them that had to be drawn from another layer.

    >>> heads, unmatched = draw_matched(HeadLayout((2, 2, 2)), [0, 1, 2])
    >>> heads.tolist(), round(unmatched, 2)
    ([3, 4, 5], 0.67)
    """
    if 2 * len(chosen) > layout.total:
        draw_random(layout, len(chosen), outside=chosen)  # raises an error that gives the reason
    rng = np.random.default_rng(seed)
    spare = {
        layer: list(rng.permutation(np.setdiff1d(np.flatnonzero(layout.layers == layer), chosen)))
        for layer in range(len(layout.counts))
    }
    wanted = layout.layers[np.asarray(chosen, dtype=int)]
    drawn: list[int] = []
    unmatched: list[int] = []
    for layer in wanted:
        if spare[layer]:
            drawn.append(int(spare[layer].pop()))
        else:
            unmatched.append(int(layer))
    for layer in unmatched:
        nearest = min((n for n in spare if spare[n]), key=lambda n: (abs(n - layer), n))
        drawn.append(int(spare[nearest].pop()))
    return np.sort(np.array(drawn, dtype=int)), len(unmatched) / max(len(drawn), 1)
