"""The share of open attention edges of each head of a sparse model, on given texts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.forward import measuring
from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.models.sites import accepted, plain
from headcount.sparse.make_sparse import attentions_of, drawing, gate_bias
from headcount.system.progress import progress as progress_bar


@torch.no_grad()
def open_edges(
    model: Model, texts: Sequence[str], *, progress: bool = True
) -> Float[np.ndarray, "heads"]:
    """The share of open edges of each head: of (query, key) pairs with s + b > 0 (score plus bias).

    The pairs of all texts have equal weight, so a long text counts more than a short one.
    """
    bias = gate_bias(model.module)
    if bias is None:
        raise HeadcountError(
            f"{model.name} is dense, so all its edges are open: give a sparse model (headcount "
            "sparsify makes one)."
        )
    sequences = [model.tokenizer.encode(text) for text in texts]
    if not sequences or not all(sequences):
        raise HeadcountError("Give at least one text, each with at least one token.")
    for ids in sequences:
        model.check_readable(ids, "A text")
    names = {id(child): name for name, child in plain(model.module).named_modules()}
    attentions = attentions_of(model.module)
    opened = torch.zeros(model.layout.total, dtype=torch.float64)
    possible = 0.0
    with (
        progress_bar("open edges", len(sequences), show=progress, unit="text") as bar,
        measuring(model),
        drawing(attentions, bias) as draws,
    ):
        by_name = {names[id(a)]: draw for a, draw in zip(attentions, draws, strict=True)}
        for ids in sequences:
            tokens = torch.tensor([ids], device=model.device)
            model.module(input_ids=tokens, **accepted(model.module, use_cache=False))
            shares = []
            for site in model.sites:
                draw = by_name[site.attention]
                assert draw.open is not None
                assert draw.possible is not None
                shares.append((draw.open / draw.possible[:, None])[0].double().cpu())
            edges = len(ids) * (len(ids) + 1) / 2
            opened += torch.cat(shares) * edges
            possible += edges
            bar.update(1)
    return (opened / possible).numpy()
