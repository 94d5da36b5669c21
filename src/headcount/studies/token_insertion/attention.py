"""What an insert does to attention: profiles of the weights, and the affine check of the outputs.

A profile tells how much attention each token of a prompt receives from later ones,

    a_j = mean over i > j of A_ij

for all heads at once. The weights of a layer are reduced as soon as they are there, so that maps of
tokens × tokens are never kept. The queries i are all later tokens, or some of them: with an insert,
say, only the original ones. No later query sees the last token: its profile is NaN.

The affine check is of `Attn_new = λ · Attn + bias`: the insert is said to scale a head's output on
the original tokens by λ < 1, and to add one direction that hardly depends on the token.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.engine.read.attention import attend_each
from headcount.engine.read.collect import collect
from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.models.sites import HeadSite

PEAKS = 5  # tokens that count as the peaks of a profile
QUERIES = 10  # later tokens below which a token's mean attention is left out

EFFECTS = (
    "peak",  # with the insert, the mean of the profile at its peaks
    "peak_without",  # the same without it
    "timing",  # the correlation of the two profiles over the original tokens
    "change",  # the mean size of their difference
    "span",  # the mean of the profile over the inserted tokens
    "original",  # the same over the original ones
    "span_spread",  # its coefficient of variation over the inserted tokens
    "original_spread",  # the same over the original ones
)
AFFINE = ("lambda", "bias", "explained", "spread")


def profiles(
    model: Model,
    sequences: Sequence[Sequence[int]],
    asking: Sequence[Sequence[int]] | None = None,
    *,
    gates: Float[np.ndarray, "heads"] | None = None,
    progress: bool = True,
) -> list[Float[np.ndarray, "heads _"]]:
    """The profile of every head on each sequence, heads in the order of the model's layout.

    `asking` names the queries of each sequence, all unless given; `gates` are those of a head set.

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> ids = model.tokenizer.encode("The capital of France is")
    >>> profiles(model, [ids])[0].shape
    (270, 5)
    """
    if asking is not None and len(asking) != len(sequences):
        raise HeadcountError("Give the queries of every sequence.")

    def reduce(
        site: HeadSite, weights: Float[Tensor, "rows heads keys keys"], places: Sequence[int]
    ) -> Float[Tensor, "rows heads keys"]:
        length = weights.shape[-1]
        queries = torch.zeros(len(places), length, dtype=torch.bool)
        for row, place in enumerate(places):
            queries[row, list(range(length) if asking is None else asking[place])] = True
        later = torch.ones(length, length, dtype=torch.bool).tril(-1)
        chosen = (later & queries[:, :, None]).to(weights.device)  # (rows, queries, keys)
        counts = chosen.sum(1)[:, None]  # (rows, 1, keys)
        sums = weights.float().masked_fill(~chosen[:, None], 0).sum(-2)  # (rows, heads, keys)
        return torch.where(counts > 0, sums / counts.clamp(min=1), torch.nan)

    return attend_each(model, sequences, reduce, gates=gates, label="profiles", progress=progress)


def profile_effects(
    without: Float[np.ndarray, "heads tokens"],
    with_it: Float[np.ndarray, "heads more"],
    original: Sequence[int],
    span: Sequence[int],
    *,
    sinks: int = 1,
) -> dict[str, Float[np.ndarray, "heads"]]:
    """Every entry of EFFECTS for each head, from its profiles without and with an insert.

    The first `sinks` tokens are left out, and those that fewer than QUERIES later ones look at. The
    peaks are those of the mean of both profiles, so that neither is chosen for being high by
    itself.
    """
    heads, tokens = without.shape
    inside = slice(sinks, max(sinks, tokens - QUERIES))
    old, new = without[:, inside], with_it[:, list(original)][:, inside]
    effects = dict.fromkeys(EFFECTS, np.full(heads, np.nan))
    if old.shape[1] > PEAKS:
        at = np.argsort(-(old + new), axis=1, kind="stable")[:, :PEAKS]
        effects["peak"] = np.take_along_axis(new, at, 1).mean(1)
        effects["peak_without"] = np.take_along_axis(old, at, 1).mean(1)
        effects["timing"] = _correlation(old, new)
        effects["change"] = np.abs(new - old).mean(1)
        effects["original"], effects["original_spread"] = new.mean(1), _spread(new)
    seen = [place for place in span if sinks <= place < with_it.shape[1] - QUERIES]
    if len(seen) > 1:
        received = with_it[:, seen]
        effects["span"], effects["span_spread"] = received.mean(1), _spread(received)
    return effects


def _spread(values: Float[np.ndarray, "heads tokens"]) -> Float[np.ndarray, "heads"]:
    """Standard deviation over mean."""
    return np.asarray(values.std(1) / np.maximum(values.mean(1), 1e-30))


def _correlation(
    a: Float[np.ndarray, "heads tokens"], b: Float[np.ndarray, "heads tokens"]
) -> Float[np.ndarray, "heads"]:
    a, b = a - a.mean(1, keepdims=True), b - b.mean(1, keepdims=True)
    sizes = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    return np.asarray((a * b).sum(1) / np.maximum(sizes, 1e-30))


def head_outputs(
    model: Model,
    sequences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    *,
    gates: Float[np.ndarray, "heads"] | None = None,
    progress: bool = True,
) -> list[list[Float[np.ndarray, "_ _ _"]]]:
    """What each head says at some positions of each sequence: by sequence, then by site.

    Each array is (positions, the site's heads, size).
    """
    outputs: list[list[np.ndarray]] = [[] for _ in sequences]
    for count in dict.fromkeys(map(len, positions)):
        places = [place for place, chosen in enumerate(positions) if len(chosen) == count]
        some = [sequences[place] for place in places], [positions[place] for place in places]
        by_site = collect(model, *some, heads=() if gates is None else gates, progress=progress)
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
