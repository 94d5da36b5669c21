"""Passes made quick on a data-centre GPU, where small models leave most of its time unused.

They spend it in element-wise steps between matrix products: compiling a block fuses them, the gate
among them. All blocks share one compiled graph: the hook is one function, and its numbers are found
on the projection that it is called for.

And a pass has a thousand kernels that take less time to run than to launch. One that comes again is
recorded once as a CUDA graph, with its gates in a place that stays, and then only replayed: the GPU
runs it without waiting for Python.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.fast_paths import Trunk
from headcount.models.forward_modes import instead
from headcount.models.gate import PerSite
from headcount.models.sites import HeadSite, plain
from headcount.system.transformers_compat import replaced

GATE, BIAS = "_headcount_gate", "_headcount_bias"
# Graphs of one block: by lengths, with and without gradients, for every task of a process. Torch
# stops at 8 and then runs uncompiled, three times slower.
GRAPHS = 64
CAPTURED = 8  # graphs kept: they share their memory, but each has its own list of kernels

Pass = Callable[[Tensor], Tensor]


def can_compile(sites: Sequence[HeadSite]) -> bool:
    """Whether all heads lie plainly side by side, as the compiled gate needs them."""
    return all(
        site.order == "rows" and site.call == 0 and site.width == site.heads * site.size
        for site in sites
    )


@contextmanager
def static_gating(
    module: nn.Module,
    sites: Sequence[HeadSite],
    gates: Float[Tensor, "rows heads"],
    ablations: PerSite | None,
    dtype: torch.dtype,
) -> Iterator[None]:
    """Gate every site, by numbers that a compiled block reads from its projection."""
    named = dict(plain(module).named_modules())
    first = 0
    with ExitStack() as stack:
        for site in sites:
            projection = named[site.module]
            g = gates[:, None, first : first + site.heads, None]  # (rows, 1, heads, 1)
            first += site.heads
            projection.__dict__[GATE] = g.to(dtype)
            stack.callback(projection.__dict__.pop, GATE)
            z0 = None if ablations is None else ablations[site.index]
            if z0 is not None:
                b = (1 - g) * z0.float().unflatten(-1, (site.heads, site.size))
                projection.__dict__[BIAS] = b.to(dtype)
                stack.callback(projection.__dict__.pop, BIAS)
            stack.callback(projection.register_forward_pre_hook(_gate).remove)
        yield


def _gate(projection: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    g = projection.__dict__[GATE]
    z = args[0].unflatten(-1, (g.shape[-2], -1))  # (rows, tokens, heads, size)
    bias = projection.__dict__.get(BIAS)
    z = z * g if bias is None else torch.addcmul(bias, z, g)
    return (z.flatten(-2), *args[1:])


@cache
def _compiled(forward: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(forward)


@contextmanager
def compiled_blocks(module: nn.Module, trunk: Trunk, first: int, last: int) -> Iterator[None]:
    """Run the blocks from `first` to before `last` compiled, where they run their class's code."""
    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        stack.enter_context(torch._dynamo.config.patch(recompile_limit=GRAPHS))
        for name in trunk.blocks[first:last]:
            block = named[name]
            if "forward" not in block.__dict__:
                stack.enter_context(
                    instead(block, MethodType(_compiled(type(block).forward), block))
                )
        yield


@dataclass(eq=False)
class _Captured:
    gates: Tensor  # read by the graph
    logits: Tensor  # written by the graph: to be used before the next replay
    graph: torch.cuda.CUDAGraph


class Graphs:
    """The passes of one batch, by their kind; a kind is captured when it comes the second time."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.device = device
        self.masks = _Masks(module)
        self.seen: set[Hashable] = set()
        self.captured: dict[Hashable, _Captured] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.failure: Exception | None = None

    def run(
        self, kind: Hashable, gates: Float[Tensor, "rows heads"], run: Pass
    ) -> Float[Tensor, "rows tokens vocab"]:
        """The logits of `run(gates)`, replayed where this kind of pass has been captured."""
        if kind not in self.captured:
            first = kind not in self.seen  # which also warms up, and compiles
            self.seen.add(kind)
            if first or self.failure is not None or len(self.captured) >= CAPTURED:
                with self.masks.noted():
                    return run(gates.to(self.device, non_blocking=True))
            try:
                self.captured[kind] = self._capture(gates, run)
            except Exception as error:  # a pass that asks the GPU something cannot be captured
                self.failure = error
                return run(gates.to(self.device, non_blocking=True))
        found = self.captured[kind]
        found.gates.copy_(gates, non_blocking=True)
        found.graph.replay()
        return found.logits

    def _capture(self, gates: Tensor, run: Pass) -> _Captured:
        static = gates.to(self.device).clone()
        graph = torch.cuda.CUDAGraph()
        self._rehearse(static, run)
        with self.masks.given_again(), torch.cuda.graph(graph, pool=self.pool):
            logits = run(static)
        return _Captured(static, logits, graph)

    def _rehearse(self, gates: Tensor, run: Pass) -> None:
        """Run the pass as it will be captured, and fail where capturing would: it fails harder."""
        torch.cuda.synchronize(self.device)
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with self.masks.given_again(), torch.compiler.set_stance("fail_on_recompile"):
                run(gates)
        finally:
            torch.cuda.set_sync_debug_mode(before)
            torch.cuda.synchronize(self.device)


class _Masks:
    """The attention masks of a pass, kept from its warm-up.

    While a pass is captured, transformers asks the GPU nothing and writes out masks that it
    otherwise leaves to the attention kernel: another, slower pass than the one that was compiled.
    """

    def __init__(self, module: nn.Module) -> None:
        files = {type(child).__module__ for child in module.modules()}
        self.makers = [
            (file, name)
            for file in sorted(files)
            for name in vars(sys.modules[file])
            if name.startswith("create_") and "mask" in name
        ]
        self.made: list[Any] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """Note the masks that are made in this context."""
        self.made.clear()

        def noting(make: Callable[..., Any]) -> Callable[..., Any]:
            def note(*args: Any, **kwargs: Any) -> Any:
                self.made.append(make(*args, **kwargs))
                return self.made[-1]

            return note

        with ExitStack() as stack:
            for file, name in self.makers:
                make = getattr(sys.modules[file], name)
                stack.enter_context(replaced(file, name, noting(make)))
            yield

    @contextmanager
    def given_again(self) -> Iterator[None]:
        """Give the noted masks, in their order, to whoever makes masks in this context."""
        masks = iter(self.made)
        with ExitStack() as stack:
            for file, name in self.makers:
                stack.enter_context(replaced(file, name, lambda *_, **__: next(masks)))
            yield
