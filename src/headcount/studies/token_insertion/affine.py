"""The affine check of what an insert does to the outputs of heads.

`Attn_new = λ · Attn + bias`: the insert is said to scale a head's output on the original tokens by
λ < 1, and to add one direction that hardly depends on the token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from headcount.engine.read.collect import collect
from headcount.models.model import Model

AFFINE = ("lambda", "bias", "explained", "spread")


def head_outputs(
    model: Model,
    sequences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    gates: Float[np.ndarray, "heads"] | None = None,
    *,
    progress: bool = True,
) -> list[list[Float[np.ndarray, "_ _ _"]]]:
    """What each head says at some positions of each sequence: by sequence, then by site.

    Each array is (positions, the site's heads, size).
    """
    outputs: list[list[np.ndarray]] = [[] for _ in sequences]
    by_count: dict[int, list[int]] = {}
    for place, chosen in enumerate(positions):
        by_count.setdefault(len(chosen), []).append(place)
    for places in by_count.values():
        some = [sequences[place] for place in places], [positions[place] for place in places]
        by_site = collect(model, *some, gates=gates, progress=progress)
        for row, place in enumerate(places):
            outputs[place] = [z[row] for z in by_site]
    return outputs


def affine_fit(
    old: Float[np.ndarray, "tokens heads size"], new: Float[np.ndarray, "tokens heads size"]
) -> tuple[Float[np.ndarray, "heads"], ...]:
    """All of AFFINE for each head: λ, size of the added direction, R², spread of λ · old + bias.

    Least squares over tokens, with one number λ and one vector for all of them; the vector's
    length is given in units of the mean length of `old`. R² is the share of what varies in `new`
    that λ · old explains. Any change of `new` that has nothing to do with `old` lowers λ, as
    regression to the mean does; so the spread is given too, how far `new` varies over how far `old`
    does: outputs that shrink have both below 1. A head that says the same everywhere, as one whose
    edges are all shut, has nothing that could be scaled: all its numbers are NaN.
    """
    old, new = old.astype(np.float64), new.astype(np.float64)
    means = old.mean(0), new.mean(0)  # (heads, size)
    a, b = old - means[0], new - means[1]
    varies = (a**2).sum((0, 2))  # (heads,)
    varies[varies == 0] = np.nan
    factor = (a * b).sum((0, 2)) / varies
    bias = np.linalg.norm(means[1] - factor[:, None] * means[0], axis=1)
    size = bias / np.maximum(np.linalg.norm(old, axis=2).mean(0), 1e-30)
    left = ((b - factor[:, None] * a) ** 2).sum((0, 2))
    explained = 1 - left / np.maximum((b**2).sum((0, 2)), 1e-30)
    spread = np.sqrt((b**2).sum((0, 2)) / varies)
    return factor, size, explained, spread
