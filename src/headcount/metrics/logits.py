"""Metrics of the logits under teacher forcing, and their input."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float, Int

if TYPE_CHECKING or "torch" in sys.modules:  # listing the metrics must not import torch
    from torch import Tensor


@dataclass(frozen=True)
class Scored:
    """A model's logits at the target, for examples whose targets are equally long."""

    logits: Float[Tensor, "rows tokens vocab"]  # at the positions that predict the target's tokens
    targets: Int[Tensor, "rows tokens"]
    foils: Int[Tensor, "rows foils"]  # the first token of each foil, padded with -1
    also: Int[Tensor, "rows also"] | None = None  # the same for further right answers


@dataclass(frozen=True)
class Metric:
    """One number per example.

    key             its name on the command line and in the store
    name            its name on axes and in tables
    function        from `Scored` to one value per row
    differentiable  whether rankings by derivative can use it
    needs_foils     whether examples must have foils, whose first token is not the target's
    binary          whether its values are 0 or 1, so that its mean is an accuracy
    """

    key: str
    name: str
    function: Callable[[Scored], Float[Tensor, "rows"]]
    differentiable: bool = True
    needs_foils: bool = False
    binary: bool = False


def _token_logprobs(scored: Scored) -> Float[Tensor, "rows tokens"]:
    """log p of each target token, in float32, because half precision loses small differences."""
    logits = scored.logits.float()
    chosen = logits.gather(-1, scored.targets[..., None]).squeeze(-1)
    return chosen - logits.logsumexp(-1)


def _logprob(scored: Scored) -> Float[Tensor, "rows"]:
    return _token_logprobs(scored).sum(-1)


def _logprob_mean(scored: Scored) -> Float[Tensor, "rows"]:
    return _token_logprobs(scored).mean(-1)


def _accuracy(scored: Scored) -> Float[Tensor, "rows"]:
    # Right if every target token is the most likely one, so that greedy decoding writes the target.
    right = (scored.logits.argmax(-1) == scored.targets).all(-1).float()
    # NaN is neither right nor wrong, but argmax would give a token.
    return right.masked_fill(scored.logits.isnan().any(-1).any(-1), math.nan)


def _foil_margin(scored: Scored) -> Float[Tensor, "rows"]:
    """The logit of the strongest right answer minus that of the strongest wrong one.

    Only first tokens count, so tasks whose right and wrong answers share a first token are refused.
    """
    first = scored.logits[:, 0].float()  # (rows, vocab)
    right, wrong = (
        first.gather(-1, ids.clamp(min=0)).masked_fill(ids < 0, -math.inf).amax(-1)
        for ids in (_right(scored), scored.foils)
    )
    return right - wrong


def _mass_margin(scored: Scored) -> Float[Tensor, "rows"]:
    """The probability of all right answers minus that of all wrong ones, by first tokens."""
    shares = scored.logits[:, 0].float().softmax(-1)  # (rows, vocab)
    right, wrong = (
        shares.gather(-1, ids.clamp(min=0)).masked_fill(ids < 0, 0).sum(-1)
        for ids in (_right(scored), scored.foils)
    )
    return right - wrong


def _right(scored: Scored) -> Int[Tensor, "rows answers"]:
    """The first tokens of the target and of all other right answers, padded with -1."""
    import torch

    first = scored.targets[:, :1]
    return first if scored.also is None else torch.cat((first, scored.also), -1)


def _choice(scored: Scored) -> Float[Tensor, "rows"]:
    margin = _foil_margin(scored)
    return (margin > 0).float().masked_fill(margin.isnan(), math.nan)


LOGIT_METRICS = (
    Metric("logprob", "Log-probability of target", _logprob),
    Metric("logprob_mean", "Mean log-probability per target token", _logprob_mean),
    Metric("accuracy", "Accuracy", _accuracy, differentiable=False, binary=True),
    Metric(
        "logit_difference", "Logit difference, target against foil", _foil_margin, needs_foils=True
    ),
    Metric(
        "mass_difference",
        "Probability of right answers minus that of wrong ones",
        _mass_margin,
        needs_foils=True,
    ),
    Metric(
        "choice",
        "Choice accuracy, target against foils",
        _choice,
        differentiable=False,
        needs_foils=True,
        binary=True,
    ),
)
