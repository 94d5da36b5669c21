"""An attention function in which single edges come from the corrupted prompt.

What a head says at query i is a sum over edges: z_i = Σ_j P_ij v_j. An edge that is not kept says
what it says on the corrupted prompt, Pᶜ_ij vᶜ_j, so that

    z_i = Σ_j m_ij · P_ij v_j + (1 − m_ij) · Pᶜ_ij vᶜ_j        m_ij = 1 where the edge is kept

The corrupted prompt has as many tokens, so its edges align. It runs first, and its queries, keys
and values are kept; weights are formed again for some queries at a time, so memory grows with
queries + keys for each row. In sparse models a closed edge has the weight 0 on either side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.gate import require_one_process
from headcount.models.model import Model
from headcount.models.sites import HeadSite, plain
from headcount.sparse.attention import (
    AT_ONCE,
    AT_ONCE_ELSEWHERE,
    SPARSE,
    Attend,
    QueryPart,
    prepared,
    query_parts,
    refuse_others,
    scale_of,
)
from headcount.system.transformers_compat import kernel_of, other_attention, replaced

EDGES = "headcount-edges"  # the kernel's name in transformers
KNOWN_KERNELS = ("sdpa", "eager", "flash_attention_2", "flash_attention_3", SPARSE)

_pass: EdgePass | None = None  # the pass that is running; set by `attending`


@dataclass(eq=False)
class Call:
    """What one attention call was given: enough to form its weights again."""

    query: Tensor  # (rows, heads, tokens, size)
    key: Tensor  # (rows, heads, tokens, size)
    value: Tensor  # (rows, heads, tokens, width)
    mask: Tensor | None
    bias: Tensor  # one number: infinity opens every edge
    scale: float
    causal: bool

    def part(self, queries: range) -> tuple[QueryPart, Tensor]:
        """The scores of some queries, and their weights, 0 at closed edges."""
        scored = (self.query, self.key, self.mask, self.bias, None, self.bias)
        part = QueryPart(*scored, self.scale, self.causal, queries)
        weights = part.scores.softmax(-1).masked_fill(~part.open, 0)
        return part, weights.to(self.value.dtype)  # (rows, heads, some, keys)

    def output(self) -> Tensor:
        """P v, (rows, heads, tokens, width), in little memory also for the backward pass."""
        scored = (self.query, self.key, self.mask, self.bias, None, self.bias)
        out: Tensor = Attend.apply(self.value, *scored, (self.scale, self.causal, 0.0))[0]
        return out


@dataclass(eq=False)
class EdgePass:
    """One pass of the model: what it does at each head site, and what it leaves there.

    corrupted  the calls and outputs of the corrupted pass by site; empty while that pass runs
    share      of each edge's own contribution, the rest is the corrupted one: a number that gets
               gradients
    order      the place of each edge in the order of its row: (rows, heads, queries, keys)
    kept       how many of its first edges each copy of the rows keeps; copies follow each other
    """

    sites: dict[int, list[HeadSite]]  # by the identity of the attention module
    corrupted: dict[int, tuple[Call, Tensor]] = field(default_factory=dict)
    share: Tensor | None = None
    order: Tensor | None = None
    kept: Tensor | None = None
    calls: dict[int, Call] = field(default_factory=dict)
    outputs: dict[int, Tensor] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)

    def site(self, module: nn.Module) -> HeadSite:
        """The site of the attention call that is running."""
        run = self.runs.get(id(module), 0)
        self.runs[id(module)] = run + 1
        for site in self.sites.get(id(module), []):
            if site.call == run:
                return site
        raise HeadcountError(
            f"{type(module).__name__} runs attention that is no head site, so single edges of this "
            "model cannot be kept: keep whole heads instead (heads-kept)."
        )


def edge_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls; returns (rows, tokens, heads, width)."""
    now = _pass
    if now is None:
        raise HeadcountError(f"The kernel {EDGES} runs inside headcount's own passes only.")
    refuse_others(module, dropout, kwargs)
    site = now.site(module)
    query, key, value, mask, causal = prepared(module, query, key, value, attention_mask, is_causal)
    bias = getattr(getattr(module, "config", None), "gate_bias", None)
    opened = query.new_full((), float("inf") if bias is None else float(bias), dtype=torch.float32)
    call = Call(query, key, value, mask, opened, scale_of(query, scaling), causal)
    if now.kept is not None:
        output = _kept(now, site, call)
    else:
        output = call.output()
        if now.share is not None:
            output = now.share * output + (1 - now.share) * now.corrupted[site.index][1]
        now.calls[site.index], now.outputs[site.index] = call, output
    return output.transpose(1, 2).contiguous(), None


def _kept(now: EdgePass, site: HeadSite, call: Call) -> Tensor:
    """The output with the first edges of each row's order kept: (copies · rows, heads, …)."""
    assert now.kept is not None
    assert now.order is not None
    corrupted, _ = now.corrupted[site.index]
    copies, rows = len(now.kept), len(corrupted.query)
    start = sum(s.heads for other in now.sites.values() for s in other if s.index < site.index)
    order = now.order[:, start : start + site.heads]
    outputs = []
    for queries in _some_queries(call.query):
        part, weights = call.part(queries)
        others = corrupted.part(queries)[1]
        placed = order[:, :, queries.start : queries.stop, part.keys]  # (rows, heads, some, keys)
        kept = placed < now.kept[:, None, None, None, None]  # (copies, rows, heads, some, keys)
        own = weights.unflatten(0, (copies, rows)) * kept
        theirs = (others * ~kept) @ corrupted.value[:, :, part.keys]
        mixed = own @ call.value.unflatten(0, (copies, rows))[:, :, :, part.keys] + theirs
        outputs.append(mixed.flatten(0, 1))
    return torch.cat(outputs, 2)


def _some_queries(query: Tensor) -> Iterator[range]:
    """Queries a few at a time: kept and corrupted weights are there at once."""
    rows, heads, queries, _ = query.shape
    most = AT_ONCE.get(query.device.type, AT_ONCE_ELSEWHERE) // 4
    step = max(1, most // (rows * heads * queries))
    for start in range(0, queries, step):
        yield range(start, min(start + step, queries))


def edge_scores(
    calls: dict[int, Call], corrupted: dict[int, tuple[Call, Tensor]], slopes: dict[int, Tensor]
) -> list[Tensor]:
    """∂metric/∂m of every edge, by site: (rows, heads, queries, keys).

    `slopes` are ∂metric/∂z, (rows, heads, queries, width): an edge's derivative is slope · (P v −
    Pᶜ vᶜ) of that edge.
    """
    scores = []
    for index in sorted(calls):
        call, (other, _), slope = calls[index], corrupted[index], slopes[index]
        rows, heads, tokens, _ = call.query.shape
        table = torch.zeros(rows, heads, tokens, tokens, device=slope.device)
        for queries in query_parts(call.query, call.key):
            span = slice(queries.start, queries.stop)
            for sign, one in ((1.0, call), (-1.0, other)):
                part, weights = one.part(queries)
                along = slope[:, :, span] @ one.value[:, :, part.keys].transpose(-1, -2)
                table[:, :, span, part.keys] += sign * (weights * along).float()
        scores.append(table)
    return scores


@contextmanager
def attending(model: Model, now: EdgePass) -> Iterator[None]:
    """Run the model with this attention function, for one pass."""
    with ExitStack() as stack:
        stack.enter_context(other_attention(model.module, lambda config, kernel: EDGES))
        stack.enter_context(replaced(__name__, "_pass", now))
        yield


def sites_of(model: Model) -> dict[int, list[HeadSite]]:
    """The head sites by the identity of their attention module; refuses what has no edges."""
    named = dict(plain(model.module).named_modules())
    found: dict[int, list[HeadSite]] = {}
    require_one_process(model.sites, "Keeping single edges")
    for site in model.sites:
        module = named[site.attention]
        kernel = kernel_of(getattr(module, "config", None))
        if site.queries != 1 or kernel not in KNOWN_KERNELS:
            raise HeadcountError(
                f"Attention of {model.name} does not run through transformers' attention functions "
                "(one pattern for each head), so its edges cannot be kept one by one: keep whole "
                "heads instead (heads-kept)."
            )
        found.setdefault(id(module), []).append(site)
    return found


def register() -> None:
    """Register the kernel with transformers; a second call changes nothing."""
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(EDGES, edge_attention)
    AttentionMaskInterface.register(EDGES, sdpa_mask)


def edges_of(heads: int, lengths: Sequence[int]) -> int:
    """The number of edges of the longest of these prompts: each query sees itself and all before.

    >>> edges_of(4, [2, 3])
    24
    """
    return heads * max(length * (length + 1) // 2 for length in lengths)
