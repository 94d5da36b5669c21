"""The loss of a model on blocks of text, and how many of its edges are open there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from headcount.sparse.attention import Draw

Logits = Float[Tensor, "rows tokens vocab"]


class Loss(NamedTuple):
    """Nats per token, and the share of edges that are open (1 where attention is dense)."""

    loss: float
    edges: float = 1.0
    heads: Sequence[Sequence[float]] = ()  # the same by layer and head


def cross_entropy(logits: Logits, ids: Int[Tensor, "rows tokens"]) -> Float[Tensor, ""]:
    """The mean over all tokens but the first, which nothing predicts."""
    return F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())


# Shapes are said in words here: the checks of the tests would break compiled passes apart.
def training_loss(logits: Tensor, ids: Tensor, teacher: Tensor | None, share: float) -> Tensor:
    """(1 − share) · cross entropy + share · KL(teacher ‖ logits), over the same tokens.

    Logits are (rows, tokens, vocab). The last position, which predicts nothing, is left out of the
    mean and not of the logits: that would copy them all.
    """
    ours = logits.float().log_softmax(-1)
    nats = -ours.gather(-1, F.pad(ids[:, 1:], (0, 1))[..., None]).squeeze(-1)  # (rows, tokens)
    if teacher is not None:
        theirs = teacher.float().log_softmax(-1)
        nats = (1 - share) * nats + share * (theirs.exp() * (theirs - ours)).sum(-1)
    return nats[:, :-1].mean()


def expected_share(draws: list[Draw]) -> Float[Tensor, ""]:
    """E|A|: the share of edges that gates under the whole noise leave open, over heads and rows."""
    shares = [(draw.expected / draw.possible[:, None]).mean() for draw in draws]
    return torch.stack([share.to(shares[0].device) for share in shares]).mean()


def open_share(draws: list[Draw]) -> Float[Tensor, "layers heads"]:
    """The share of edges with s + b > 0 for every head (padded with NaN where layers differ)."""
    rows = [(draw.open / draw.possible[:, None]).mean(0) for draw in draws]
    most = max(len(row) for row in rows)
    padded = [F.pad(row, (0, most - len(row)), value=float("nan")) for row in rows]
    return torch.stack([row.to(rows[0].device) for row in padded])


@torch.no_grad()
def measure(
    run: Callable[[Tensor], Tensor],
    blocks: Int[np.ndarray, "blocks tokens"],
    rows: int,
    draws: list[Draw] | None,
    device: torch.device,
) -> Loss:
    """The mean loss over all blocks, `rows` at a time; with `draws`, the open edges too.

    Where the model is compiled, a last pass of fewer rows is not: another size would be compiled
    for all sizes, and slow down those that come often.
    """
    total = torch.zeros((), device=device)
    edges = torch.zeros((), device=device)  # becomes (layers, heads)
    for start in range(0, len(blocks), rows):
        ids = torch.from_numpy(blocks[start : start + rows]).to(device)
        with torch.compiler.set_stance("default" if len(ids) == rows else "force_eager"):
            logits = run(ids)
        total += cross_entropy(logits, ids) * len(ids)
        if draws is not None:
            edges = edges + open_share(draws).to(device) * len(ids)
    loss = float(total) / len(blocks)
    if draws is None:
        return Loss(loss)
    heads = edges / len(blocks)
    return Loss(loss, float(heads.nanmean()), heads.tolist())
