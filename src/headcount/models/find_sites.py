"""Find the head sites of any causal LM by watching it run, with no knowledge of its architecture.

A head site is the input of an attention block's output projection, where the heads still stand
side by side. One forward pass finds them all. Its rows hold the same prompt; inside every attention
call, row r has query head r − 1 disturbed. The first linear module to receive rows that differ is
the output projection, and the columns in which row r differs are the slice of head r − 1. There the
rows are made equal again, so that the next attention starts clean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headcount.errors import HeadcountError
from headcount.models.sites import (
    TOKENS,
    HeadSite,
    Order,
    coarsest_dtype,
    from_rows,
    input_order,
    plain,
    probe_prompt,
    run,
    to_rows,
)
from headcount.models.slices import is_projection, linear_limit, read_slices, rows_differ, visible
from headcount.system.transformers_compat import other_attention

# Kernels of their own, which never call a torch function that can be watched.
UNSEEN = ("flash", "flex", "paged")


@dataclass(frozen=True)
class ProbedSite:
    """A head site with what the probing pass saw there."""

    site: HeadSite
    projection: nn.Module
    z: Float[Tensor, "tokens width"]  # the projection's input, undisturbed
    shape: tuple[int, ...]  # of the projection's input in the probing pass
    rows: int  # of the probing pass: one more than heads, or two
    call_args: tuple[Any, ...]  # the projection's further arguments
    call_kwargs: Mapping[str, Any]
    leak: float  # largest change outside a head's own slice, relative to the change inside


def find_sites(module: nn.Module) -> list[ProbedSite]:
    """Return the head sites of `module` in the order in which they run, or refuse it by name."""
    # Which columns belong to which head does not depend on these kernels: all return heads in the
    # same place. A function that somebody else has registered may do anything, so it runs itself.
    with other_attention(module, _seen):
        counting = _Watcher(module, rows=2, disturb=False)
        counting.run()
        if not counting.calls:
            raise HeadcountError(
                f"{type(plain(module)).__name__} has no heads that can be measured: no part of it "
                "was seen to attend from token to token by torch's softmax or "
                "scaled_dot_product_attention (linear attention and state-space layers have no "
                "heads, and attention that is normalised by hand, as Reformer's is, cannot be "
                "watched)."
            )
        rows = max(call.heads for call in counting.calls) + 1
        rows += rows == TOKENS  # rows and tokens must not be mistaken for each other
        watcher = _Watcher(module, rows=rows, disturb=True)
        watcher.run()
    return watcher.finish()


def _seen(config: Any, kernel: str) -> str:
    """The kernel itself, or eager attention in place of one that cannot be watched."""
    from_the_hub = "/" in kernel
    sparse = hasattr(config, "dense_kernel")  # headcount's own, which closes edges of a dense one
    unseen = any(name in kernel for name in UNSEEN) or from_the_hub or sparse
    return "eager" if unseen else kernel


@dataclass
class _Call:
    """One softmax attention: the module in which it ran, its query heads and its queries."""

    module: str
    heads: int
    queries: int  # one for each token, unless a model adds a prompt of its own or works on patches


class _AttentionMode(TorchFunctionMode):
    """Sees every softmax attention that runs inside it and may disturb one head per row."""

    def __init__(self, rows: int, disturb: bool, report: Callable[[int, int], None]) -> None:
        super().__init__()
        self.rows = rows
        self.disturb = disturb
        self.report = report
        self.generator = torch.Generator().manual_seed(0)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            out = func(*args, **kwargs)
            # Prompts packed into one row leave no row for each head: those count as mixers.
            return out if out.shape[0] % self.rows else self._attention(out, out.shape[-2])
        if func in _SOFTMAX:
            scores = args[0] if args else kwargs["input"]
            dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
            if dim in (-1, scores.ndim - 1) and self._is_attention(scores):
                disturbed = self._attention(scores, scores.shape[-2])
                if args:
                    args = (disturbed, *args[1:])
                else:
                    kwargs = {**kwargs, "input": disturbed}
        return func(*args, **kwargs)

    def _is_attention(self, scores: Tensor) -> bool:
        """Whether these are attention scores: (rows, heads…, queries, keys) or (rows·heads, …)."""
        if scores.ndim < 3 or scores.shape[0] % self.rows:
            return False
        queries, keys = scores.shape[-2:]
        if scores.ndim == 3 and scores.shape[0] == self.rows and keys != TOKENS:
            return False  # a router: (rows, tokens, experts)
        if scores.ndim > 3 and scores.shape[1] != TOKENS:
            return True  # also across patches; (rows, tokens, n, n) mixes n streams of each token
        return TOKENS <= queries <= keys  # sinks add keys, soft prompts add queries

    def _attention(self, tensor: Tensor, queries: int) -> Tensor:
        """Report the call; with `disturb`, add noise to head r − 1 of each row r."""
        heads = tensor.numel() // (self.rows * queries * tensor.shape[-1])
        self.report(heads, queries)
        if not self.disturb:
            return tensor
        by_head = tensor.reshape(self.rows, heads, queries, tensor.shape[-1]).clone()
        finite = by_head[by_head.isfinite()]
        large = finite.abs() < torch.finfo(tensor.dtype).max / 4  # masks may be finite but huge
        scale = finite[large].float().std().clamp(min=1e-3)
        noise = torch.randn(by_head.shape[2:], generator=self.generator) * scale.cpu() * 3
        chosen = torch.arange(heads)
        by_head[chosen + 1, chosen] += noise.to(by_head)
        return by_head.reshape(tensor.shape)


_SOFTMAX = {torch.softmax, F.softmax, Tensor.softmax, torch._C._nn.__dict__.get("softmax")} - {None}


@dataclass
class _Watcher:
    """Runs one probing pass and notes which projections receive the disturbed heads."""

    module: nn.Module
    rows: int
    disturb: bool
    calls: list[_Call] = field(default_factory=list)
    pending: list[_Call] = field(default_factory=list)
    probed: list[ProbedSite] = field(default_factory=list)
    refusal: str = ""
    _stack: list[str] = field(default_factory=list)
    _runs: dict[str, int] = field(default_factory=dict)
    _trying: bool = False
    _limit: float = 0.0

    def run(self) -> None:
        self._limit = visible(coarsest_dtype(self.module))
        with ExitStack() as stack:
            for name, module in plain(self.module).named_modules(remove_duplicate=True):
                enter, leave = self._entering(name), self._leaving(name)
                stack.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
                stack.enter_context(module.register_forward_hook(leave, always_call=True))
            stack.enter_context(_AttentionMode(self.rows, self.disturb, self._note_call))
            logits = run(self.module, probe_prompt(self.module, self.rows))
        if self.disturb and not self.pending and rows_differ(logits, self._limit):
            self._refuse_bypass("the logits")

    def finish(self) -> list[ProbedSite]:
        if self.pending:
            self._refuse_pending()
        if self.refusal:
            raise HeadcountError(self.refusal)
        return [
            replace(p, site=replace(p.site, runs=self._runs[p.site.module])) for p in self.probed
        ]

    def _refuse(self, owner: str, why: str) -> None:
        # Only the first refusal is told: the others follow from it.
        self.refusal = self.refusal or f"Cannot prove the heads of {owner}: {why}."

    def _refuse_pending(self) -> None:
        self._refuse(
            self.pending[0].module or "the model",
            "no linear output projection receives what its attention computes, so its heads "
            "cannot be gated",
        )

    def _refuse_bypass(self, seen_at: str) -> None:
        if not self.probed:
            owner = type(plain(self.module)).__name__
            why = f"equal prompts differ at {seen_at} before any attention (is dropout on?)"
            self._refuse(owner, why)
            return
        site = self.probed[-1].site
        why = f"part of their output reaches {seen_at} without passing through "
        self._refuse(site.attention, why + site.module)

    def _note_call(self, heads: int, queries: int) -> None:
        if self._trying:
            return
        call = _Call(self._stack[-1] if self._stack else "", heads, queries)
        self.calls.append(call)
        if self.disturb:
            if self.pending and self.pending[0].module != call.module:
                self._refuse_pending()
            self.pending.append(call)

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if not self._trying and self._stack[-1:] == [name]:
                self._stack.pop()

        return hook

    def _entering(self, name: str) -> Callable[..., Any]:
        def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if self._trying:
                return None
            self._stack.append(name)
            call = self._runs.get(name, 0)
            self._runs[name] = call + 1
            if not self.disturb or self.refusal or not args or not isinstance(args[0], Tensor):
                return None
            x, further = args[0], args[1:]
            order = input_order(x, self.rows, self.pending[0].queries if self.pending else TOKENS)
            if order is None or not x.is_floating_point():
                return None
            by_row = to_rows(x, order, self.rows)
            if not rows_differ(by_row, self._limit):
                return None
            if not self.pending:
                if order != "flat":  # experts receive tokens in another order
                    self._refuse_bypass(name)
                return None
            if not self._is_projection(module, x, further, kwargs):
                return None
            site, leak = self._settle(name, call, order, by_row)
            if site is not None:
                observed = (by_row[0].clone(), tuple(x.shape), self.rows, further, kwargs, leak)
                self.probed.append(ProbedSite(site, module, *observed))
            clean = by_row[:1].expand_as(by_row)
            return (from_rows(clean, order, x), *further), kwargs

        return hook

    def _is_projection(
        self, module: nn.Module, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        self._trying = True
        limit = linear_limit(module, x.dtype)
        try:
            return is_projection(lambda inputs: module(inputs, *args, **kwargs), x, limit)
        except Exception:  # any module may be tried here: one that raises is no projection
            return False
        finally:
            self._trying = False

    def _settle(
        self, name: str, call: int, order: Order, by_row: Tensor
    ) -> tuple[HeadSite | None, float]:
        """The site of the pending attention, whose projection is `name`, and its leak."""
        queries = max(call.heads for call in self.pending)
        owner = self.pending[0].module or name
        self.pending.clear()
        slices = read_slices(by_row, queries, self._limit)
        if slices is None:
            self._refuse(
                owner,
                f"{name}, the first linear layer to receive what its attention computes, does not "
                f"take one slice for each of {queries} query heads",
            )
            return None, 0.0
        site = HeadSite(
            index=len(self.probed),
            module=name,
            attention=owner,
            call=call,
            heads=slices.heads,
            size=slices.size,
            width=by_row.shape[-1],
            start=slices.start,
            order=order,
            queries=queries // slices.heads,
            coupled=slices.coupled,
        )
        return site, slices.leak
