"""The effect of an insert on attention: attention profiles, and the affine check of head outputs.

The profile of a head is the attention that each token j of a prompt receives from later tokens,

    a_j = mean over i > j of A_ij

It is computed as soon as a layer's weights are known, so that no tokens × tokens map is kept. The
queries i are all later tokens, or a choice of them, such as the original tokens of a prompt with an
insert. The last token has no later query, so its profile is NaN.

Early tokens are seen by queries that have few other tokens to look at, so they receive more even
from a head without any preference. Such a *uniform reader*, A_ij = 1 / (i + 1), goes through the
same functions, and measured effects are compared with its own.

The affine check fits `Attn_new = λ · Attn + bias`. The paper says that an insert scales a head's
output on the original tokens by λ < 1, and adds a direction that hardly depends on the token.
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

PEAKS = 5  # the number of highest tokens that count as the peaks of a profile
QUERIES = 10  # tokens with fewer later tokens are left out: their mean attention is too noisy

EFFECTS = (
    "peak",  # mean of the profile at its peaks, with the insert
    "peak_without",  # mean of the profile at its peaks, without the insert
    "timing",  # correlation of the two profiles over the original tokens
    "change",  # mean absolute difference of the two profiles
    "span",  # mean of the profile over the inserted tokens
    "original",  # mean of the profile over the original tokens
    "span_spread",  # coefficient of variation of the profile over the inserted tokens
    "original_spread",  # coefficient of variation of the profile over the original tokens
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
    """The profile of every head on each sequence; heads are in the order of the model's layout.

    `asking` lists the query positions of each sequence (default: all positions). `gates` are the
    gates of a head set.

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> ids = model.tokenizer.encode("The capital of France is")
    >>> profiles(model, [ids])[0].shape
    (270, 5)
    """
    if asking is not None and len(asking) != len(sequences):
        raise HeadcountError("Give the queries of every sequence: one list for each.")

    def reduce(
        site: HeadSite, weights: Float[Tensor, "rows heads keys keys"], numbers: Sequence[int]
    ) -> Float[Tensor, "rows heads keys"]:
        length = weights.shape[-1]
        queries = torch.zeros(len(numbers), length, dtype=torch.bool)
        for row, number in enumerate(numbers):
            queries[row, list(range(length) if asking is None else asking[number])] = True
        later = torch.ones(length, length, dtype=torch.bool).tril(-1)
        chosen = (later & queries[:, :, None]).to(weights.device)  # (rows, queries, keys)
        counts = chosen.sum(1)[:, None]  # (rows, 1, keys)
        sums = weights.float().masked_fill(~chosen[:, None], 0).sum(-2)  # (rows, heads, keys)
        return torch.where(counts > 0, sums / counts.clamp(min=1), torch.nan)

    return attend_each(model, sequences, reduce, gates=gates, label="profiles", progress=progress)


def uniform_profile(
    tokens: int, asking: Sequence[int] | None = None
) -> Float[np.ndarray, "1 tokens"]:
    """The profile of a uniform reader, which attends to all tokens up to its own equally.

    >>> uniform_profile(4).round(3).tolist()  # (1/2 + 1/3 + 1/4) / 3, (1/3 + 1/4) / 2, 1/4, nothing
    [[0.361, 0.292, 0.25, nan]]
    """
    asks = np.zeros(tokens)
    asks[slice(None) if asking is None else list(asking)] = 1.0
    given = asks / np.arange(1, tokens + 1)  # by each query to each token up to its own
    sums, counts = (np.cumsum(some[::-1])[::-1] - some for some in (given, asks))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)[None]


def profile_effects(
    without: Float[np.ndarray, "heads tokens"],
    with_it: Float[np.ndarray, "heads more"],
    original: Sequence[int],
    span: Sequence[int],
    *,
    sinks: int = 1,
) -> dict[str, Float[np.ndarray, "heads"]]:
    """Every entry of EFFECTS for each head, from its profiles without and with an insert.

    The first `sinks` tokens are left out, and tokens with fewer than QUERIES later tokens. The
    peaks are those of the mean of both profiles: peaks of one profile would be high by selection in
    that profile alone.
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
    usable = [position for position in span if sinks <= position < with_it.shape[1] - QUERIES]
    if len(usable) > 1:
        received = with_it[:, usable]
        effects["span"], effects["span_spread"] = received.mean(1), _spread(received)
    return effects


def _spread(values: Float[np.ndarray, "heads tokens"]) -> Float[np.ndarray, "heads"]:
    """The coefficient of variation: standard deviation over mean."""
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
    """The output of each head at the given positions: a list of arrays, one per site.

    Each array is (positions, the site's heads, size).
    """
    outputs: list[list[np.ndarray]] = [[] for _ in sequences]
    for count in dict.fromkeys(map(len, positions)):
        numbers = [number for number, chosen in enumerate(positions) if len(chosen) == count]
        batch = [sequences[number] for number in numbers], [positions[n] for n in numbers]
        by_site = collect(model, *batch, heads=() if gates is None else gates, progress=progress)
        for row, number in enumerate(numbers):
            outputs[number] = [z[row] for z in by_site]
    return outputs


def affine_fit(
    old: Float[np.ndarray, "tokens heads size"], new: Float[np.ndarray, "tokens heads size"]
) -> tuple[Float[np.ndarray, "heads"], ...]:
    """Fit new = λ · old + bias for each head: λ, the size of the bias, R², and the spread.

    Least squares over tokens, with one λ and one bias vector for all tokens. The size of the bias
    is its length over the mean length of `old`. R² is the share of the variance of `new` that
    λ · old explains. The spread is the standard deviation of `new` over that of `old`. It is needed
    besides λ because any change of `new` that is unrelated to `old` lowers λ (regression to the
    mean): only outputs that really shrink have both λ and spread below 1. For a head with the same
    output at all tokens, such as one whose edges are all shut, nothing can be scaled: NaN.
    """
    old, new = old.astype(np.float64), new.astype(np.float64)
    means = old.mean(0), new.mean(0)  # (heads, size)
    a, b = old - means[0], new - means[1]
    variation = (a**2).sum((0, 2))  # (heads,)
    variation[variation == 0] = np.nan
    factor = (a * b).sum((0, 2)) / variation
    bias = np.linalg.norm(means[1] - factor[:, None] * means[0], axis=1)
    size = bias / np.maximum(np.linalg.norm(old, axis=2).mean(0), 1e-30)
    residual = ((b - factor[:, None] * a) ** 2).sum((0, 2))
    explained = 1 - residual / np.maximum((b**2).sum((0, 2)), 1e-30)
    spread = np.sqrt((b**2).sum((0, 2)) / variation)
    return factor, size, explained, spread
