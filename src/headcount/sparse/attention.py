"""Sparse attention as one of transformers' attention functions.

    s = q·k/√d    P = softmax(s)    O = (P ⊙ A) V    A = 1 where s + b > 0, otherwise 0

P is the softmax over all keys that the model may see, and is not renormalised: an edge that is shut
takes its weight with it. In training, logistic noise may be added to s + b, which opens an edge
with probability σ(s + b), or less of it; A passes the gradient of σ on (straight through).

Scores, weights and gates are queries × keys. They are formed for some queries at a time and again
in the backward pass, so that what is kept between the two is as large as queries and keys alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.sparse.gate_noise import logistic_noise

SPARSE = "sparse"  # the kernel's name in transformers
# Queries × keys (of all rows and heads) at once: few fit a processor's cache, many fill a GPU.
AT_ONCE = {"cpu": 1 << 22}
AT_ONCE_ELSEWHERE = 1 << 27
SHUT = torch.finfo(torch.float32).min  # the score of a key that may not be seen
# What other kernels do to scores, and this one does not.
NOT_OURS = ("softcap", "s_aux", "position_bias")


@dataclass(eq=False)
class Draw:
    """How the gates of one attention are drawn in the next passes, and what came of the last.

    Without a seed there is no noise, and no gradient through the gates: they are what they are.
    `expected` and `open` are sums over the edges of each row and head. The gradient of `expected`
    is that of Σ σ(s + b) + pressure · softplus(s + b).
    """

    bias: Tensor  # one number
    spread: Tensor  # of the noise, one number: with 1 an edge is open with probability σ(s + b)
    seed: Tensor | None = None
    # Of wide-open edges: σ is flat where s + b is large, and its slope alone would leave them open.
    pressure: float = 0.0
    expected: Tensor = field(init=False)  # (rows, heads)
    open: Tensor = field(init=False)  # (rows, heads)
    possible: Tensor = field(init=False)  # (rows,): edges that the mask allows


class _Passes:
    """What passes are asked for beside their output."""

    weights = False
    calls: list[nn.Module] | None = None


def sparse_attention(
    module: nn.Module,
    query: Tensor,  # (rows, heads, queries, size)
    key: Tensor,  # (rows, groups, keys, size)
    value: Tensor,  # (rows, groups, keys, width)
    attention_mask: Tensor | None,  # (rows or 1, heads or 1, queries, keys)
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """The function that transformers calls; the gate bias is in the module's config.

    Returns (rows, queries, heads, width). Shapes are said in words in this file: the checks of the
    tests would break compiled passes apart.
    """
    if _Passes.calls is not None:
        _Passes.calls.append(module)
    _refuse_others(module, dropout, kwargs)
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    queries = query.shape[2]
    causal = bool(causal) and attention_mask is None and queries > 1
    if causal and key.shape[2] > queries:  # a cache with room for more: nobody sees what is behind
        key, value = key[:, :, :queries], value[:, :, :queries]
    if attention_mask is not None and attention_mask.shape[-1] > key.shape[2]:
        attention_mask = attention_mask[..., : key.shape[2]]
    if torch.is_autocast_enabled(query.device.type):
        kind = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(kind), key.to(kind), value.to(kind)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    draw: Draw | None = getattr(module, "sparse_draw", None)
    bias = query.new_full((), _bias(module), dtype=torch.float32) if draw is None else draw.bias
    spread = bias if draw is None else draw.spread  # counts only where there is a seed
    seed = None if draw is None else draw.seed
    pressure = 0.0 if draw is None else draw.pressure
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    output, expected, opened = _Attend.apply(
        query, key, value, attention_mask, bias, seed, spread, scale, causal, pressure
    )
    if draw is not None:
        draw.expected, draw.open = expected, opened
        draw.possible = possible_edges(attention_mask, causal, query, key)
    weights = None
    if _Passes.weights:
        whole = _Part(query, key, attention_mask, bias, seed, spread, scale, causal, range(queries))
        weights = whole.kept().to(query.dtype)
        weights = nn.functional.pad(weights, (0, key.shape[2] - weights.shape[-1]))
    return output.transpose(1, 2).contiguous(), weights


def _bias(module: nn.Module) -> float:
    bias = getattr(getattr(module, "config", None), "gate_bias", None)
    if bias is None:
        raise HeadcountError(
            "Sparse attention needs a gate bias, which comes with models that headcount sparsify "
            "made: load one of those, or choose another attention kernel."
        )
    return float(bias)


def _refuse_others(module: nn.Module, dropout: float, kwargs: dict[str, Any]) -> None:
    for name in NOT_OURS:
        if kwargs.get(name) is not None:
            raise HeadcountError(
                f"{type(module).__name__} changes its attention scores ({name}), which sparse "
                "attention does not: such a model cannot be made sparse."
            )
    if dropout:
        raise HeadcountError(
            f"{type(module).__name__} drops attention weights in training: put the model into "
            "evaluation mode, in which sparse attention is trained too."
        )


class _Part:
    """Scores and gates of some queries."""

    def __init__(
        self,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        bias: Tensor,
        seed: Tensor | None,
        spread: Tensor,
        scale: float,
        causal: bool,
        queries: range,
    ) -> None:
        keys = queries.stop if causal else key.shape[2]
        self.keys = slice(0, keys)
        self.query = query[:, :, queries.start : queries.stop]
        self.key = key[:, :, :keys]
        s = (self.query @ self.key.transpose(-1, -2)).float() * scale  # (rows, heads, some, keys)
        if causal:
            q = torch.arange(queries.start, queries.stop, device=s.device)
            k = torch.arange(keys, device=s.device)
            s = s.masked_fill(k > q[:, None], SHUT)
        elif mask is not None:
            part = mask[:, :, queries.start : queries.stop]  # (rows or 1, heads or 1, some, keys)
            if part.dtype == torch.bool:
                s = s.masked_fill(~part, SHUT)
            else:
                s = (s + part.float()).masked_fill(part < torch.finfo(part.dtype).min / 2, SHUT)
        self.scores = s
        self.certain = s + bias
        self.gates = self.certain
        if seed is not None:
            rows, heads = s.shape[:2]
            noise = logistic_noise(seed, rows, heads, queries, keys)
            self.gates = self.certain + spread * noise
        self.open = self.gates > 0

    def weights(self, logsumexp: Tensor) -> Tensor:
        """P, which sums to 1 over all keys, open or not."""
        return (self.scores - logsumexp).exp()

    def kept(self) -> Tensor:
        """P ⊙ A."""
        return self.scores.softmax(-1).masked_fill(~self.open, 0)


def _parts(query: Tensor, key: Tensor) -> Iterator[range]:
    rows, heads, queries = query.shape[:3]
    most = AT_ONCE.get(query.device.type, AT_ONCE_ELSEWHERE)
    step = max(1, most // (rows * heads * key.shape[2]))
    for start in range(0, queries, step):
        yield range(start, min(start + step, queries))


class _Attend(torch.autograd.Function):
    """(P ⊙ A) V and the edges per row and head; queries × keys are never kept."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        bias: Tensor,
        seed: Tensor | None,
        spread: Tensor,
        scale: float,
        causal: bool,
        pressure: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        outputs, norms, expected, opened = [], [], [], []
        for queries in _parts(query, key):
            part = _Part(query, key, mask, bias, seed, spread, scale, causal, queries)
            norm = part.scores.logsumexp(-1, keepdim=True)  # (rows, heads, some, 1)
            kept = part.weights(norm).masked_fill(~part.open, 0).to(value.dtype)
            outputs.append(kept @ value[:, :, part.keys])
            norms.append(norm)
            expected.append(part.certain.sigmoid().sum((-1, -2)))
            opened.append((part.certain > 0).float().sum((-1, -2)))
        output = torch.cat(outputs, 2)  # (rows, heads, queries, width)
        norm = torch.cat(norms, 2)
        ctx.save_for_backward(query, key, value, mask, bias, seed, spread, output, norm)
        ctx.scale, ctx.causal, ctx.pressure = scale, causal, pressure
        total = torch.stack(opened).sum(0)
        ctx.mark_non_differentiable(total)
        return output, torch.stack(expected).sum(0), total

    @staticmethod
    def backward(
        ctx: Any, d_output: Tensor, d_expected: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        query, key, value, mask, bias, seed, spread, output, norms = ctx.saved_tensors
        d_queries = []
        d_key = torch.zeros_like(key, dtype=torch.float32)
        d_value = torch.zeros_like(value, dtype=torch.float32)
        for queries in _parts(query, key):
            some = slice(queries.start, queries.stop)
            part = _Part(query, key, mask, bias, seed, spread, ctx.scale, ctx.causal, queries)
            p = part.weights(norms[:, :, some])
            kept = p.masked_fill(~part.open, 0)
            d_out = d_output[:, :, some]
            d_weight = (d_out @ value[:, :, part.keys].transpose(-1, -2)).float()
            # Of the softmax: what all of a query's weights have in common is d_out · output.
            common = (d_out.float() * output[:, :, some].float()).sum(-1, keepdim=True)
            d_score = kept * d_weight - p * common
            if seed is not None:
                chance = part.gates.sigmoid()
                d_score = d_score + d_weight * p * chance * (1 - chance)
                chance = part.certain.sigmoid()
                slope = chance * (1 - chance + ctx.pressure)
                d_score = d_score + d_expected[..., None, None] * slope
            d_score = (d_score * ctx.scale).to(query.dtype)
            d_queries.append(d_score @ part.key)
            d_key[:, :, part.keys] += d_score.transpose(-1, -2) @ part.query
            d_value[:, :, part.keys] += kept.to(value.dtype).transpose(-1, -2) @ d_out
        return (
            torch.cat(d_queries, 2),
            d_key.to(key.dtype),
            d_value.to(value.dtype),
            *(None,) * 7,
        )


def possible_edges(mask: Tensor | None, causal: bool, query: Tensor, key: Tensor) -> Tensor:
    """How many edges the mask leaves to each head: (rows,)."""
    rows, _, queries = query.shape[:3]
    if mask is None:
        total = queries * (queries + 1) / 2 if causal else queries * key.shape[2]
        return query.new_full((rows,), total, dtype=torch.float32)
    seen = mask if mask.dtype == torch.bool else mask >= torch.finfo(mask.dtype).min / 2
    return seen[:, 0].float().sum((-1, -2)).expand(rows)


@contextmanager
def _asking(**asked: Any) -> Iterator[None]:
    before = {name: getattr(_Passes, name) for name in asked}
    try:
        for name, value in asked.items():
            setattr(_Passes, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(_Passes, name, value)


def forming_weights() -> AbstractContextManager[None]:
    """Let attention modules return P ⊙ A beside their output inside this context."""
    return _asking(weights=True)


def noting_calls(calls: list[nn.Module]) -> AbstractContextManager[None]:
    """Note the modules that ask for sparse attention inside this context."""
    return _asking(calls=calls)


def register() -> None:
    """Make the kernel known to transformers; a second time changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(SPARSE, sparse_attention)
    AttentionMaskInterface.register(SPARSE, sdpa_mask)
