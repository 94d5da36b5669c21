"""Find the head sites of any causal LM by watching it run, with no knowledge of its architecture.

A head site is the input of an attention block's output projection, where the heads still stand
side by side. One forward pass finds them all. Its rows hold the same prompt; inside every attention
call, row r has query head r − 1 disturbed. The first linear module to receive rows that differ is
the output projection, and the columns in which row r differs are the slice of head r − 1. There the
rows are made equal again, so that the next attention starts clean.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from headcount.errors import HeadcountError
from headcount.models.slices import (
    QUANTISED,
    is_projection,
    read_slices,
    rows_differ,
    tolerance,
)

TOKENS = 11  # of the probing prompt: a prime, so that no other size of a model is mistaken for it

# How a projection's input lies in memory: (rows, tokens, …), (rows·tokens, …) or (tokens, rows, …);
# the axes behind these are read as one, the width.
Order = Literal["rows", "flat", "tokens"]


@dataclass(frozen=True)
class HeadSite:
    """One attention block's output projection and the slices of its input that are heads."""

    index: int
    module: str  # the projection's name inside the model
    call: int  # how many times that module ran before in the same pass: blocks may be shared
    heads: int
    size: int  # numbers per head
    width: int  # numbers in the projection's input
    start: int = 0  # where the first head begins
    order: Order = "rows"
    queries: int = 1  # query heads that share a slice: 2 in differential attention
    coupled: bool = False  # a norm over all heads stands between attention and projection

    @property
    def span(self) -> slice:
        """The columns that are heads: usually all."""
        return slice(self.start, self.start + self.heads * self.size)


@dataclass(frozen=True)
class Found:
    """A head site with what the probing pass saw there."""

    site: HeadSite
    owner: str  # the module in which the attention ran
    projection: nn.Module
    z: Float[Tensor, "tokens width"]  # the projection's input, undisturbed
    shape: tuple[int, ...]  # of the projection's input in the probing pass
    call_args: tuple[Any, ...]  # of the projection, after its first
    call_kwargs: Mapping[str, Any]
    leak: float  # largest change outside a head's own slice, relative to the change inside


def plain(module: nn.Module) -> nn.Module:
    """The module behind a `torch.compile` wrapper, or the module itself."""
    inner = getattr(module, "_orig_mod", module)
    return inner if isinstance(inner, nn.Module) else module


def accepted(module: nn.Module, **options: Any) -> dict[str, Any]:
    """Those of `options` that the module's forward names or takes through **kwargs."""
    parameters = inspect.signature(plain(module).forward).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        # Wrappers (PEFT) pass everything on to a model that does name its arguments.
        return options
    return {name: value for name, value in options.items() if name in parameters}


def probe_prompt(module: nn.Module, rows: int, tokens: int = TOKENS) -> Int[Tensor, "rows tokens"]:
    """Distinct token ids from the middle of the vocabulary, the same in every row."""
    embeddings = plain(module).get_input_embeddings()  # type: ignore[operator]
    vocabulary = int(embeddings.weight.shape[0])
    ids = (torch.arange(tokens) * 7 + vocabulary // 3) % vocabulary
    return ids.expand(rows, tokens).to(embeddings.weight.device)


@torch.no_grad()
def run(module: nn.Module, ids: Int[Tensor, "rows tokens"]) -> Float[Tensor, "rows tokens vocab"]:
    """The logits of an ordinary forward pass without padding and without a cache."""
    options = accepted(module, use_cache=False)
    with torch.compiler.set_stance("force_eager"):
        output = module(input_ids=ids, **options)
    logits: Tensor = output.logits
    return logits


def find_sites(module: nn.Module) -> list[Found]:
    """Return the head sites of `module` in the order in which they run, or refuse it by name."""
    with _attention_visible(module):
        counting = _Watcher(module, rows=2, disturb=False)
        counting.run()
        if not counting.calls:
            raise HeadcountError(
                f"{type(plain(module)).__name__} has no heads to measure: no softmax attention was "
                "seen to run in it (linear attention and state-space layers have no heads)."
            )
        heads = max(call.heads for call in counting.calls)
        watcher = _Watcher(module, rows=heads + 1, disturb=True)
        watcher.run()
    return watcher.finish()


@contextmanager
def _attention_visible(module: nn.Module) -> Iterator[None]:
    """Use an attention kernel that runs inside torch while the sites are looked for.

    Flash and flex kernels never reach a torch function. Which columns belong to which head does not
    depend on the kernel: all return heads in the same place.
    """
    model = plain(module)
    config = getattr(model, "config", None)
    kernel = getattr(config, "_attn_implementation", None)
    if kernel in (None, "eager", "sdpa") or not hasattr(model, "set_attn_implementation"):
        yield
        return
    model.set_attn_implementation("sdpa")  # type: ignore[operator]
    try:
        yield
    finally:
        model.set_attn_implementation(kernel)  # type: ignore[operator]


@dataclass
class _Call:
    """One softmax attention: the module in which it ran, its query heads and its queries."""

    module: str
    heads: int
    queries: int


class _AttentionMode(TorchFunctionMode):
    """Sees every softmax attention that runs inside it and may disturb one head per row."""

    def __init__(self, rows: int, disturb: bool, seen: Callable[[int, int], None]) -> None:
        super().__init__()
        self.rows = rows
        self.disturb = disturb
        self.seen = seen
        self.generator = torch.Generator().manual_seed(0)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            out = func(*args, **kwargs)
            return self._attention(out, out.shape[-2])
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
        """Scores of queries over keys: (rows, heads…, queries, keys) or (rows·heads, …)."""
        if scores.ndim < 3 or scores.shape[0] % self.rows:
            return False
        queries, keys = scores.shape[-2:]
        if scores.ndim == 3 and queries != TOKENS:
            return False
        # Sinks add keys and soft prompts add queries; routers' last axis is shorter than TOKENS or
        # they have no row of their own for each head.
        return TOKENS <= queries <= keys

    def _attention(self, tensor: Tensor, queries: int) -> Tensor:
        """Report the call; with `disturb`, add noise to head r − 1 of each row r."""
        heads = tensor.numel() // (self.rows * queries * tensor.shape[-1])
        self.seen(heads, queries)
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
    """Runs one probing pass and notes where the disturbed heads come out."""

    module: nn.Module
    rows: int
    disturb: bool
    calls: list[_Call] = field(default_factory=list)
    pending: list[_Call] = field(default_factory=list)
    found: list[Found] = field(default_factory=list)
    refusal: str = ""
    _stack: list[str] = field(default_factory=list)
    _runs: dict[str, int] = field(default_factory=dict)
    _trying: bool = False

    def run(self) -> None:
        ids = probe_prompt(self.module, self.rows)
        mode = _AttentionMode(self.rows, self.disturb, self._seen)
        with ExitStack() as stack:
            for name, module in plain(self.module).named_modules(remove_duplicate=True):
                enter = module.register_forward_pre_hook(self._entering(name), with_kwargs=True)
                leave = module.register_forward_hook(self._leaving(name), always_call=True)
                stack.callback(enter.remove)
                stack.callback(leave.remove)
            stack.enter_context(mode)
            run(self.module, ids)

    def finish(self) -> list[Found]:
        if self.pending and not self.refusal:
            self._refuse_pending()
        if self.refusal:
            raise HeadcountError(self.refusal)
        return self.found

    def _refuse_pending(self) -> None:
        name = self.pending[0].module or "the model"
        self.refusal = (
            f"Cannot prove the heads of {name}: no linear output projection receives what its "
            "attention computes, so its heads cannot be gated."
        )

    def _seen(self, heads: int, queries: int) -> None:
        if self._trying:
            return
        call = _Call(self._stack[-1] if self._stack else "", heads, queries)
        self.calls.append(call)
        if self.disturb:
            if self.pending and self.pending[0].module != call.module and not self.refusal:
                self._refuse_pending()
            self.pending.append(call)

    def _leaving(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            if not self._trying and self._stack and self._stack[-1] == name:
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
            x = args[0]
            tokens = self.pending[0].queries if self.pending else TOKENS
            order = input_order(x, self.rows, tokens)
            if order is None or not x.is_floating_point():
                return None
            by_row = to_rows(x, order, self.rows)
            if not rows_differ(by_row):
                return None
            if not self.pending:
                if order == "flat":
                    return None  # experts receive their tokens in an order of their own
                self.refusal = (
                    f"Cannot prove the heads that run before {name}: part of what they compute "
                    "takes another way than through their output projection."
                )
                return None
            if not self._is_projection(module, x, args[1:], kwargs):
                return None
            self._settle(name, call, module, x, order, args[1:], kwargs)
            clean = by_row[:1].expand_as(by_row)
            return (from_rows(clean, order, x), *args[1:]), kwargs

        return hook

    def _is_projection(
        self, module: nn.Module, x: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> bool:
        self._trying = True
        plain_weights = any(p.is_floating_point() for p in module.parameters())
        limit = tolerance(x.dtype) if plain_weights else max(tolerance(x.dtype), QUANTISED)
        try:
            return is_projection(lambda inputs: module(inputs, *args, **kwargs), x, limit)
        except Exception:  # any module may be asked here: one that cannot answer is no projection
            return False
        finally:
            self._trying = False

    def _settle(
        self,
        name: str,
        call: int,
        module: nn.Module,
        x: Tensor,
        order: Order,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        by_row = to_rows(x, order, self.rows)
        queries = self.pending[0].heads
        owner = self.pending[0].module or name
        self.pending.clear()
        slices = read_slices(by_row, queries)
        if slices is None:
            self.refusal = (
                f"Cannot prove the heads of {owner}: {name}, the first linear layer to receive "
                f"what its attention computes, does not take one slice for each of {queries} "
                "query heads."
            )
            return
        site = HeadSite(
            index=len(self.found),
            module=name,
            call=call,
            heads=slices.heads,
            size=slices.size,
            width=by_row.shape[-1],
            start=slices.start,
            order=order,
            queries=queries // slices.heads,
            coupled=slices.coupled,
        )
        z = by_row[0].clone()
        self.found.append(Found(site, owner, module, z, tuple(x.shape), args, kwargs, slices.leak))


def input_order(x: Tensor, rows: int, tokens: int) -> Order | None:
    """How rows and tokens lie in a projection's input, or None where they do not."""
    if x.ndim >= 3 and x.shape[:2] == (rows, tokens):
        return "rows"
    if x.ndim >= 2 and x.shape[0] == rows * tokens:
        return "flat"
    if x.ndim >= 3 and x.shape[:2] == (tokens, rows):
        return "tokens"
    return None


def to_rows(x: Tensor, order: Order, rows: int) -> Float[Tensor, "rows tokens width"]:
    """See a projection's input as (rows, tokens, width)."""
    if order == "tokens":
        return x.flatten(2).transpose(0, 1)
    if order == "flat":
        return x.reshape(rows, x.shape[0] // rows, -1)
    return x.flatten(2)


def from_rows(x: Float[Tensor, "rows tokens width"], order: Order, like: Tensor) -> Tensor:
    """Undo `to_rows`: lay `x` out as the projection's input `like` was."""
    return (x.transpose(0, 1) if order == "tokens" else x).reshape(like.shape).contiguous()
