"""Attention profiles: how much attention each token of a prompt receives from later ones.

    a_j = mean over i > j of A_ij

for all heads at once. The weights of a layer are reduced as soon as they are there, so that maps of
tokens × tokens are never kept. The queries i are all later tokens, or some of them: with an insert,
say, only the original ones. No later query sees the last token: its profile is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.engine.read.attention import reading_attention
from headcount.engine.read.lengths import each_length, run_through
from headcount.errors import HeadcountError
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.models.sites import HeadSite


def received(
    weights: Float[Tensor, "rows heads queries keys"], asking: Bool[Tensor, "rows queries"]
) -> Float[Tensor, "rows heads keys"]:
    """The mean attention on each token from those later ones that are `asking`."""
    queries = weights.shape[-2]
    later = torch.ones(queries, queries, dtype=torch.bool, device=weights.device).tril(-1)
    chosen = later & asking[:, :, None]  # (rows, queries, keys)
    counts = chosen.sum(1)[:, None]  # (rows, 1, keys)
    sums = weights.float().masked_fill(~chosen[:, None], 0).sum(-2)  # (rows, heads, keys)
    return torch.where(counts > 0, sums / counts.clamp(min=1), torch.nan)


@torch.no_grad()
def profiles(
    model: Model,
    sequences: Sequence[Sequence[int]],
    asking: Sequence[Sequence[int]] | None = None,
    *,
    gates: Float[np.ndarray, "heads"] | None = None,
    sinks: int = 0,
    progress: bool = True,
) -> list[Float[np.ndarray, "heads tokens"]]:
    """The profile of every head on each sequence, heads in the order of the model's layout.

    `asking` names the queries of each sequence, all unless given; `gates` are those of a head set;
    the first `sinks` tokens are left out as NaN.

    >>> from headcount import load_model
    >>> model = load_model("smollm2-135m")
    >>> ids = model.tokenizer.encode("The capital of France is")
    >>> profiles(model, [ids])[0].shape
    (270, 5)
    """
    if sinks < 0 or (asking is not None and len(asking) != len(sequences)):
        raise HeadcountError("Give the queries of every sequence, and no negative number of sinks.")
    found: dict[int, np.ndarray] = {}

    def run(chosen: list[int]) -> None:
        length = len(sequences[chosen[0]])
        mask = torch.zeros(len(chosen), length, dtype=torch.bool)
        for row, place in enumerate(chosen):
            mask[row, list(range(length) if asking is None else asking[place])] = True
        mask = mask.to(model.device)
        at_site: dict[int, Tensor] = {}

        def read(site: HeadSite, weights: Tensor) -> None:
            at_site[site.index] = received(weights, mask.to(weights.device))

        under = (
            nullcontext()
            if gates is None
            else gating(model.module, model.sites, torch.from_numpy(gates[None]))
        )
        with reading_attention(model, read), under:
            run_through(model, [sequences[place] for place in chosen])
        table = torch.cat([at_site[site.index].cpu() for site in model.sites], dim=1)
        table[..., :sinks] = torch.nan
        found.update(zip(chosen, table.double().numpy(), strict=True))  # (heads, tokens) each

    each_length(model, sequences, run, label="profiles", progress=progress)
    return [found[place] for place in range(len(sequences))]
