"""Sparse attention as one of transformers' attention functions.

    s = q·k/√d    P = softmax(s)    O = (P ⊙ A) V    A = 1 where s + b > 0, otherwise 0

P is the softmax over all keys that the mask allows, and is not renormalised: the weight of a closed
edge is lost. In training, logistic noise is added to s + b; with noise of scale 1 an edge is open
with probability σ(s + b). The gradient of A is that of σ (a straight-through estimator).

Scores, weights and gates are queries × keys matrices. They are computed for some queries at a time,
and again in the backward pass, so that memory grows with queries + keys, not with queries × keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.system.transformers_compat import CHANGED_SCORES, replaced

SPARSE = "sparse"  # the kernel's name in transformers
# Queries × keys (of all rows and heads) at once: few, to fit a CPU's cache; many, to fill a GPU.
AT_ONCE = {"cpu": 1 << 22}
AT_ONCE_ELSEWHERE = 1 << 27
SHUT = torch.finfo(torch.float32).min  # the score of a key that the mask hides
# Constants of lowbias32, a 32-bit hash in which each input bit flips half of the output bits.
FIRST = 0x7FEB352D
SECOND = 0x846CA68B - (1 << 32)
GOLDEN = 0x9E3779B1 - (1 << 32)

# Set by `forming_weights` and `noting_calls`.
_form_weights = False
_calls: list[nn.Module] | None = None


@dataclass(eq=False)
class Draw:
    """How the gates of one attention are drawn in the next passes, and the edges of the last pass.

    Without a seed the gates have no noise and pass no gradient.
    `expected` and `open` are sums over the edges of each row and head. The gradient of `expected`
    is that of Σ σ(s + b) + pressure · softplus(s + b).
    """

    bias: Tensor  # one number
    spread: Tensor  # scale of the noise: with 1 an edge is open with probability σ(s + b)
    seed: Tensor | None = None
    # Closes wide-open edges: where s + b is large, σ is flat and gives almost no gradient.
    pressure: float = 0.0
    expected: Tensor = field(init=False)  # (rows, heads)
    open: Tensor = field(init=False)  # (rows, heads)
    possible: Tensor = field(init=False)  # (rows,): edges that the mask allows


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

    Returns (rows, queries, heads, width). Shapes are given in comments in this file: shape
    checks in the tests would break compiled graphs.
    """
    if _calls is not None:
        _calls.append(module)
    refuse_others(module, dropout, kwargs)
    query, key, value, attention_mask, causal = prepared(
        module, query, key, value, attention_mask, is_causal
    )
    draw: Draw | None = getattr(module, "sparse_draw", None)
    gates = draw or Draw(bias := query.new_full((), _bias(module), dtype=torch.float32), bias)
    scale = scale_of(query, scaling)
    scored = (query, key, attention_mask, gates.bias, gates.seed, gates.spread)
    output, expected, opened = Attend.apply(value, *scored, (scale, causal, gates.pressure))
    if draw is not None:
        draw.expected, draw.open = expected, opened
        draw.possible = _possible_edges(attention_mask, causal, query, key)
    weights = None
    if _form_weights:
        part = QueryPart(*scored, scale, causal, range(query.shape[2]))
        weights = part.scores.softmax(-1).masked_fill(~part.open, 0).to(query.dtype)
        weights = nn.functional.pad(weights, (0, key.shape[2] - weights.shape[-1]))
    return output.transpose(1, 2).contiguous(), weights


def prepared(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    is_causal: bool | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, bool]:
    """Query, key, value and mask with a key for each query head, and whether attention is causal.

    The end of a preallocated cache, which no query sees, is cut off.
    """
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    queries = query.shape[2]
    causal = bool(causal) and mask is None and queries > 1
    if causal and key.shape[2] > queries:
        key, value = key[:, :, :queries], value[:, :, :queries]
    if mask is not None and mask.shape[-1] > key.shape[2]:
        mask = mask[..., : key.shape[2]]
    if torch.is_autocast_enabled(query.device.type):
        kind = torch.get_autocast_dtype(query.device.type)
        query, key, value = query.to(kind), key.to(kind), value.to(kind)
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    return query, key, value, mask, causal


def scale_of(query: Tensor, scaling: float | None) -> float:
    """The factor of the scores: 1/√d unless the model has another."""
    return float(query.shape[-1] ** -0.5 if scaling is None else scaling)


def _bias(module: nn.Module) -> float:
    bias = getattr(getattr(module, "config", None), "gate_bias", None)
    if bias is None:
        raise HeadcountError(
            "Sparse attention needs a gate bias, which comes with models that headcount sparsify "
            "made: load one of those, or choose another attention kernel."
        )
    return float(bias)


def refuse_others(module: nn.Module, dropout: float, kwargs: dict[str, Any]) -> None:
    """Refuse arguments that change attention in a way that this file does not compute."""
    for name in CHANGED_SCORES:
        if kwargs.get(name) is not None:
            raise HeadcountError(
                f"{type(module).__name__} changes its attention scores ({name}), which sparse "
                "attention does not support: choose another model."
            )
    if dropout:
        raise HeadcountError(
            f"{type(module).__name__} uses dropout on attention weights: put the model into "
            "evaluation mode (sparse attention is trained in this mode too)."
        )


class QueryPart:
    """Scores and gates of a range of queries."""

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
        """P, which sums to 1 over all keys, whether their edges are open or not."""
        return (self.scores - logsumexp).exp()


def query_parts(query: Tensor, key: Tensor) -> Iterator[range]:
    """Queries a few at a time, so that their scores take little memory."""
    rows, heads, queries = query.shape[:3]
    most = AT_ONCE.get(query.device.type, AT_ONCE_ELSEWHERE)
    step = max(1, most // (rows * heads * key.shape[2]))
    for start in range(0, queries, step):
        yield range(start, min(start + step, queries))


class Attend(torch.autograd.Function):
    """(P ⊙ A) V and the edges per row and head; no queries × keys matrix is kept for backward."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        value: Tensor,
        query: Tensor,
        key: Tensor,
        mask: Tensor | None,
        bias: Tensor,
        seed: Tensor | None,
        spread: Tensor,
        constants: tuple[float, bool, float],
    ) -> tuple[Tensor, Tensor, Tensor]:
        scale, causal, ctx.pressure = constants
        ctx.scale, ctx.causal = scale, causal
        outputs, norms, expected, opened = [], [], [], []
        for queries in query_parts(query, key):
            part = QueryPart(query, key, mask, bias, seed, spread, scale, causal, queries)
            norm = part.scores.logsumexp(-1, keepdim=True)  # (rows, heads, some, 1)
            kept = part.weights(norm).masked_fill(~part.open, 0).to(value.dtype)
            outputs.append(kept @ value[:, :, part.keys])
            norms.append(norm)
            expected.append(part.certain.sigmoid().sum((-1, -2)))
            opened.append((part.certain > 0).float().sum((-1, -2)))
        output = torch.cat(outputs, 2)  # (rows, heads, queries, width)
        norm = torch.cat(norms, 2)
        ctx.save_for_backward(value, query, key, mask, bias, seed, spread, output, norm)
        total = torch.stack(opened).sum(0)
        ctx.mark_non_differentiable(total)
        return output, torch.stack(expected).sum(0), total

    @staticmethod
    def backward(  # noqa: D102
        ctx: Any, d_output: Tensor, d_expected: Tensor, _: Tensor
    ) -> tuple[Tensor | None, ...]:
        value, query, key, mask, bias, seed, spread, output, norms = ctx.saved_tensors
        d_queries = []
        d_key = torch.zeros_like(key, dtype=torch.float32)
        d_value = torch.zeros_like(value, dtype=torch.float32)
        for queries in query_parts(query, key):
            span = slice(queries.start, queries.stop)
            part = QueryPart(query, key, mask, bias, seed, spread, ctx.scale, ctx.causal, queries)
            p = part.weights(norms[:, :, span])
            kept = p.masked_fill(~part.open, 0)
            d_out = d_output[:, :, span]
            d_weight = (d_out @ value[:, :, part.keys].transpose(-1, -2)).float()
            # Gradient of the softmax: Σ over keys of weight · d_weight is d_out · output.
            common = (d_out.float() * output[:, :, span].float()).sum(-1, keepdim=True)
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
        of_scores = (torch.cat(d_queries, 2), d_key.to(key.dtype))
        return (d_value.to(value.dtype), *of_scores, *(None,) * 5)


def _hashed(x: Tensor) -> Tensor:
    # int32 products wrap around; the masks make right shifts unsigned.
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * FIRST
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * SECOND
    return x ^ ((x >> 16) & 0xFFFF)


def logistic_noise(seed: Tensor, rows: int, heads: int, queries: range, keys: int) -> Tensor:
    """logit(u), u uniform between 0 and 1, for these queries: (rows, heads, queries, keys).

    The noise is a hash of seed and position, so that the backward pass can compute the same numbers
    again instead of storing them, whatever the chunks, the device or the compiler.

    >>> noise = logistic_noise(torch.tensor(5, dtype=torch.int32), 1, 2, range(3), 4)
    >>> part = logistic_noise(torch.tensor(5, dtype=torch.int32), 1, 2, range(1, 3), 4)
    >>> torch.equal(noise[:, :, 1:], part)
    True
    """

    def positions(n: int, first: int = 0) -> Tensor:
        """GOLDEN · (first, first + 1, …), with constants of 32 bits, which GPU compilers need."""
        steps = torch.arange(n, dtype=torch.int32, device=seed.device)
        return GOLDEN * steps + ((GOLDEN * first + (1 << 31)) % (1 << 32) - (1 << 31))

    x = _hashed(seed + positions(rows))  # (rows,)
    x = _hashed(x[:, None] + positions(heads))  # (rows, heads)
    x = _hashed(x[..., None] + positions(len(queries), queries.start))  # (rows, heads, queries)
    x = _hashed(x[..., None] + positions(keys))  # (rows, heads, queries, keys)
    # 23 bits plus one half: never 0 or 1, and exact in float32.
    u = (((x >> 9) & 0x7FFFFF).float() + 0.5) * 2.0**-23
    return u.log() - torch.log1p(-u)


def _possible_edges(mask: Tensor | None, causal: bool, query: Tensor, key: Tensor) -> Tensor:
    """How many edges the mask allows per head: (rows,)."""
    rows, _, queries = query.shape[:3]
    if mask is None:
        total = queries * (queries + 1) / 2 if causal else queries * key.shape[2]
        return query.new_full((rows,), total, dtype=torch.float32)
    seen = mask if mask.dtype == torch.bool else mask >= torch.finfo(mask.dtype).min / 2
    return seen[:, 0].float().sum((-1, -2)).expand(rows)


def forming_weights() -> AbstractContextManager[None]:
    """Let attention modules also return P ⊙ A inside this context."""
    return replaced(__name__, "_form_weights", True)


def noting_calls(calls: list[nn.Module]) -> AbstractContextManager[None]:
    """Append every module that runs sparse attention inside this context to `calls`."""
    return replaced(__name__, "_calls", calls)


def register() -> None:
    """Register the kernel with transformers; a second call changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(SPARSE, sparse_attention)
    AttentionMaskInterface.register(SPARSE, sdpa_mask)
