"""Metrics of the logits under teacher forcing, and their input.

A metric of *whole answers* gives one number per pass, and a pass scores answers that differ in
their last token only. Its `combine` makes one number per example of them (`answer_rows`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from jaxtyping import Float, Int

if TYPE_CHECKING or "torch" in sys.modules:  # listing the metrics must not import torch
    from torch import Tensor

Answers = Literal["target", "one-token", "first-token", "whole"]


@dataclass(frozen=True)
class Scored:
    """A model's logits at the target, for examples whose targets are equally long.

    For metrics of whole answers, `also` holds further last tokens: these answers share all other
    tokens with the target.
    """

    logits: Float[Tensor, "rows tokens vocab"]  # at the positions that predict the target's tokens
    targets: Int[Tensor, "rows tokens"]
    foils: Int[Tensor, "rows foils"]  # the first token of each foil, padded with -1
    also: Int[Tensor, "rows also"] | None = None  # the same for further right answers


Combine = Callable[["Tensor", "Tensor"], "Tensor"]


@dataclass(frozen=True)
class Metric:
    """One number per example.

    key             its name on the command line and in the store
    name            its name on axes and in tables
    function        from `Scored` to one value per row
    differentiable  whether rankings by derivative can use it
    needs_foils     whether examples must have foils
    binary          whether its values are 0 or 1, so that its mean is an accuracy
    answers         what it reads: only the "target", which refuses examples with further right
                    answers; all right and wrong answers, which must have one token ("one-token") or
                    count by their first token ("first-token"); or "whole" answers
    combine         metrics of whole answers: from the values of the right and of the wrong answers,
                    each padded with -inf, to one value per example
    per_token       metrics of whole answers: divide each value by the answer's number of tokens
    measured_as     the name under which values are stored, where metrics share them
    version         raised when its values change, so that stored values are not reused
    """

    key: str
    name: str
    function: Callable[[Scored], Float[Tensor, "rows"]]
    differentiable: bool = True
    needs_foils: bool = False
    binary: bool = False
    answers: Answers = "target"
    combine: Combine | None = None
    per_token: bool = False
    measured_as: str = ""
    version: int = 1

    @property
    def store_facts(self) -> dict[str, str | int]:
        """What the store's keys say about the metric."""
        version = {"metric_version": self.version} if self.version > 1 else {}
        return {"metric": self.measured_as or self.key, **version}


def _token_logprobs(scored: Scored) -> Float[Tensor, "rows tokens"]:
    """log p of each target token, in float32, because half precision loses small differences."""
    logits = scored.logits.float()
    chosen = logits.gather(-1, scored.targets[..., None]).squeeze(-1)
    return chosen - logits.logsumexp(-1)


def _last_logprobs(scored: Scored) -> Float[Tensor, "rows answers"]:
    """log p of each answer of a row, padded with -inf: they differ in their last token only."""
    import torch

    tokens = _token_logprobs(scored)
    if scored.also is None or not scored.also.shape[-1]:
        return tokens.sum(-1, keepdim=True)
    last = scored.logits[:, -1].float()  # (rows, vocab)
    others = last.gather(-1, scored.also.clamp(min=0)) - last.logsumexp(-1, keepdim=True)
    others = others.masked_fill(scored.also < 0, -math.inf)
    return tokens[:, :-1].sum(-1, keepdim=True) + torch.cat((tokens[:, -1:], others), -1)


def _logprob(scored: Scored) -> Float[Tensor, "rows"]:
    """The log-probability that one of a row's answers follows."""
    answers = _last_logprobs(scored)
    return answers[:, 0] if answers.shape[1] == 1 else answers.logsumexp(-1)


def _strongest_logprob(scored: Scored) -> Float[Tensor, "rows"]:
    """The log-probability of the likeliest answer of a row."""
    return _last_logprobs(scored).amax(-1)


def _logprob_per_token(scored: Scored) -> Float[Tensor, "rows"]:
    return _token_logprobs(scored).mean(-1)


def _accuracy(scored: Scored) -> Float[Tensor, "rows"]:
    # Right if every token of an answer is the most likely one, so that greedy decoding writes it.
    greedy = scored.logits.argmax(-1)  # (rows, tokens)
    hits = greedy == scored.targets
    if scored.also is not None:
        hits[:, -1] |= (greedy[:, -1:] == scored.also).any(-1)
    # NaN is neither right nor wrong, but argmax would give a token.
    return hits.all(-1).float().masked_fill(scored.logits.isnan().any(-1).any(-1), math.nan)


def _signed_logprob(scored: Scored) -> Float[Tensor, "rows"]:
    # A text that greedy decoding does not write has a token that is not the likeliest one, and so a
    # log-probability below log 0.5: no number has two meanings.
    logprob = _token_logprobs(scored).sum(-1)
    greedy = (scored.logits.argmax(-1) == scored.targets).all(-1)
    return logprob.where(~greedy, -logprob)


def _first_token_margin(scored: Scored) -> Float[Tensor, "rows"]:
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


def _first_token_choice(scored: Scored) -> Float[Tensor, "rows"]:
    return _positive(_first_token_margin(scored))


def _positive(margin: Tensor) -> Tensor:
    return (margin > 0).to(margin.dtype).masked_fill(margin.isnan(), math.nan)


def _total(right: Tensor, wrong: Tensor) -> Tensor:
    """The log-probability that any right answer follows, from those of the single answers."""
    return right.logsumexp(-1)


def _any(right: Tensor, wrong: Tensor) -> Tensor:
    return right.amax(-1)


def _margin(right: Tensor, wrong: Tensor) -> Tensor:
    """The strongest right answer minus the strongest wrong one."""
    return right.amax(-1) - wrong.amax(-1)


def _margin_choice(right: Tensor, wrong: Tensor) -> Tensor:
    return _positive(_margin(right, wrong))


def _whole(key: str, name: str, combine: Combine, *, per_token: bool = False) -> Metric:
    """A metric that compares the log-probabilities of whole right and wrong answers."""
    binary = combine is _margin_choice
    return Metric(
        key,
        name,
        _strongest_logprob,
        differentiable=not binary,
        needs_foils=True,
        binary=binary,
        answers="whole",
        combine=combine,
        per_token=per_token,
        measured_as="answer_logprob",
    )


def _first_tokens() -> list[Metric]:
    """Metrics of first tokens: for answers of one token and, under their own names, for others."""
    functions = {
        "logit_difference": ("Logit difference, right against wrong answers", _first_token_margin),
        "mass_difference": ("Probability of right answers minus that of wrong ones", _mass_margin),
    }
    metrics = [
        Metric(key, name, function, needs_foils=True, answers="one-token")
        for key, (name, function) in functions.items()
    ]
    metrics += [
        Metric(
            f"first_token_{key}",
            f"{name}, by first tokens",
            function,
            needs_foils=True,
            answers="first-token",
        )
        for key, (name, function) in functions.items()
    ]
    choice = Metric(
        "first_token_choice",
        "Choice accuracy, by first tokens",
        _first_token_choice,
        differentiable=False,
        needs_foils=True,
        binary=True,
        answers="first-token",
    )
    return [*metrics, choice]


LOGIT_METRICS: tuple[Metric, ...] = (
    Metric(
        "logprob",
        "Log-probability of right answer",
        _logprob,
        answers="whole",
        combine=_total,
        version=2,
    ),
    Metric("logprob_per_token", "Log-probability of target per token", _logprob_per_token),
    Metric(
        "accuracy",
        "Accuracy",
        _accuracy,
        differentiable=False,
        binary=True,
        answers="whole",
        combine=_any,
        version=2,
    ),
    _whole("logprob_difference", "Log-probability, right minus wrong answer", _margin),
    _whole(
        "logprob_difference_per_token",
        "Log-probability per token, right minus wrong answer",
        _margin,
        per_token=True,
    ),
    _whole("choice", "Choice accuracy, right against wrong answers", _margin_choice),
    _whole(
        "choice_per_token",
        "Choice accuracy, log-probability per token",
        _margin_choice,
        per_token=True,
    ),
    *_first_tokens(),
)

SIGNED_LOGPROB = Metric(
    "signed_logprob",
    "Log-probability of target, without its minus sign where greedy decoding writes the target",
    _signed_logprob,
    differentiable=False,
)
"""Two answers in one number, for programs that ask for both; it is no metric to choose by name."""
