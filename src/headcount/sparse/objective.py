"""What training minimises: the loss on blocks of text and the share of open edges.

Also the schedules of learning rate, gate bias and noise, and the multiplier of the constraint.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from headcount.sparse.attention import Draw
from headcount.sparse.settings import Settings

MOST = 0.1  # nats of violation that count at most in one step: early violations are large
SMALLEST, LARGEST = 1e-3, 1e2  # bounds of λ, so that it can return soon from an extreme
SMOOTH = 0.5  # weight of the previous violations in their moving average


class Loss(NamedTuple):
    """Nats per token, and the share of edges that are open (1 where attention is dense)."""

    loss: float
    edges: float = 1.0
    heads: Sequence[Sequence[float]] = ()  # the open share by layer and head


# Shapes are given in comments here: shape checks in the tests would break compiled graphs.
def training_loss(logits: Tensor, ids: Tensor, teacher: Tensor | None, share: float) -> Tensor:
    """(1 − share) · cross entropy + share · KL(teacher ‖ logits), over the same tokens.

    Logits are (rows, tokens, vocab). The last position has no next token. It is left out of the
    mean and not of the logits, because slicing the logits would copy them.
    """
    ours = logits.float().log_softmax(-1)
    nats = -ours.gather(-1, F.pad(ids[:, 1:], (0, 1))[..., None]).squeeze(-1)  # (rows, tokens)
    if teacher is not None:
        theirs = teacher.float().log_softmax(-1)
        nats = (1 - share) * nats + share * (theirs.exp() * (theirs - ours)).sum(-1)
    return nats[:, :-1].mean()


def expected_share(draws: list[Draw]) -> Float[Tensor, ""]:
    """E|A|: the expected share of open edges under noise of scale 1, over heads and rows."""
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

    A last pass of fewer rows runs without compilation: after a second batch size, the compiler
    would make one slower graph for all sizes.
    """
    total = torch.zeros((), device=device)
    edges = torch.zeros((), device=device)  # becomes (layers, heads)
    for start in range(0, len(blocks), rows):
        ids = torch.from_numpy(blocks[start : start + rows]).to(device)
        with torch.compiler.set_stance("default" if len(ids) == rows else "force_eager"):
            logits = run(ids)
        # The mean over all tokens but the first, which has no context.
        nats = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), ids[:, 1:].flatten())
        total += nats * len(ids)
        if draws is not None:
            edges = edges + open_share(draws).to(device) * len(ids)
    loss = float(total) / len(blocks)
    if draws is None:
        return Loss(loss)
    heads = edges / len(blocks)
    return Loss(loss, float(heads.nanmean()), heads.tolist())


def learning_rate(settings: Settings, step: int) -> float:
    """A linear rise, then half a cosine down to a tenth.

    >>> s = Settings(steps=100, warm_up=0.1, lr=1.0)
    >>> [round(learning_rate(s, step), 2) for step in (0, 9, 55, 99)]
    [0.1, 1.0, 0.53, 0.1]
    """
    rise = max(1, round(settings.warm_up * settings.steps))
    if step < rise:
        return settings.learning_rate * (step + 1) / rise
    done = (step - rise + 1) / max(1, settings.steps - rise)
    return settings.learning_rate * (0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * done)))


def gate_bias(settings: Settings, step: int) -> float | None:
    """None while every edge is open, then a linear fall from `bias` to 0.

    >>> s = Settings(steps=100, dense_share=0.1, anneal=0.5, bias=4.0)
    >>> [gate_bias(s, step) for step in (0, 10, 30, 50, 99)]
    [None, 4.0, 2.0, 0.0, 0.0]
    """
    first = round(settings.dense_share * settings.steps)
    last = round(settings.anneal * settings.steps)
    if step < first:
        return None
    if step >= last:
        return 0.0
    return settings.bias * (last - step) / (last - first)


def gate_noise(settings: Settings, step: int) -> float:
    """1 until the bias is 0, then a linear fall to `noise`, reached halfway to the end.

    >>> s = Settings(steps=100, anneal=0.2, noise=0.0)
    >>> [gate_noise(s, step) for step in (0, 20, 40, 60, 99)]
    [1.0, 1.0, 0.5, 0.0, 0.0]
    """
    first = round(max(settings.dense_share, settings.anneal) * settings.steps)
    last = (first + settings.steps) // 2
    done = min(max((step - first) / max(1, last - first), 0.0), 1.0)
    return 1.0 - done * (1.0 - settings.noise)


@dataclass
class Multiplier:
    """The multiplier λ of the constraint: it grows while the loss is above its limit.

        min over weights of  edges + λ·(loss − limit),    λ ← λ·exp(rate · mean violation)

    Adam ignores the scale of a loss, so training weights the two terms by 1/(1+λ) and λ/(1+λ).
    """

    limit: float
    rate: float
    value: float
    violation: float = 0.0
    looks: int = 0  # how many losses were observed

    def observe(self, loss: float, limit: float | None = None) -> None:
        """Update the violation from a loss on the constraint's text and the limit at this step."""
        over = loss - (self.limit if limit is None else limit)
        kept = SMOOTH if self.looks else 0.0
        self.violation = kept * self.violation + (1 - kept) * over
        self.looks += 1

    def step(self) -> None:
        """Update λ for one training step.

        >>> m = Multiplier(limit=3.0, rate=0.5, value=1.0)
        >>> m.observe(3.05); m.step(); round(m.value, 3)
        1.025
        """
        bounded = min(max(self.violation, -MOST), MOST)
        self.value = min(max(self.value * math.exp(self.rate * bounded), SMALLEST), LARGEST)

    @property
    def weight(self) -> float:
        """λ/(1+λ)."""
        return self.value / (1 + self.value)
