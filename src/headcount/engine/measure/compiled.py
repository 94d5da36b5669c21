"""Compiled blocks and CUDA graphs: a small model alone does not keep a data-centre GPU busy.

Between matrix products a block runs many element-wise kernels. Compiling the block fuses them,
including the gate. All blocks share one compiled graph, because the gating hook is one function
that reads its numbers from the projection it is called for.

A pass also launches about a thousand kernels that take longer to launch than to run. A pass that
runs repeatedly is therefore captured as a CUDA graph, which reads its gates from a fixed tensor;
the GPU replays the graph without waiting for Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.fast_paths import Trunk
from headcount.models.forward_modes import instead
from headcount.models.gate import PerSite
from headcount.models.sites import HeadSite, plain
from headcount.system.paths import cache_dir
from headcount.system.transformers_compat import replaced

KEPT_CODE = "TORCHINDUCTOR_CACHE_DIR"
GATE, BIAS = "_headcount_gate", "_headcount_bias"
# The compiled graphs of one block: one for each length, with or without gradients, over all tasks
# of a process. Torch's default limit is 8; beyond it a block runs uncompiled, three times slower.
MOST_COMPILED = 64
MOST_CAPTURED = 8  # CUDA graphs: they share their memory, but each has its own list of kernels

RunGates = Callable[[Tensor], Tensor]  # from gates to logits


def can_compile(sites: Sequence[HeadSite]) -> bool:
    """Whether each site's z has the shape (rows, tokens, heads · size), and no block runs twice.

    What runs over several processes is not compiled.
    """
    return all(
        (site.order, site.call, site.ranks) == ("rows", 0, 1)
        and site.width == site.heads * site.size
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
    """Gate every site; the gates are stored on the projections, where compiled blocks read them."""
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
    """Compile the blocks from `first` to before `last` whose `forward` nobody has replaced."""
    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        stack.enter_context(torch._dynamo.config.patch(recompile_limit=MOST_COMPILED))
        stack.enter_context(_kept_code())
        for name in trunk.blocks[first:last]:
            block = named[name]
            if "forward" not in block.__dict__:
                stack.enter_context(
                    instead(block, MethodType(_compiled(type(block).forward), block))
                )
        yield


@contextmanager
def _kept_code() -> Iterator[None]:
    """Let the compiler keep its code in our cache folder, unless the user has chosen a folder.

    Torch would keep it among temporary files, which do not last.
    """
    folder = None
    if KEPT_CODE not in os.environ:
        with suppress(HeadcountError):
            folder = str(cache_dir() / "compiled")
    if folder is None:
        yield
        return
    os.environ[KEPT_CODE] = folder
    try:
        yield
    finally:
        os.environ.pop(KEPT_CODE, None)


@dataclass(eq=False)
class _CapturedPass:
    gates: Tensor  # the graph reads its gates here
    logits: Tensor  # the graph writes its logits here: use them before the next replay
    graph: torch.cuda.CUDAGraph


class Graphs:
    """The CUDA graphs of one batch, by the kind of pass: a kind's second pass is captured."""

    def __init__(self, module: nn.Module, device: torch.device) -> None:
        self.device = device
        self.masks = _Masks(module)
        self.seen: set[Hashable] = set()
        self.captured: dict[Hashable, _CapturedPass] = {}
        self.pool = torch.cuda.graph_pool_handle()
        self.failure: Exception | None = None

    def run(
        self, kind: Hashable, gates: Float[Tensor, "rows heads"], run: RunGates
    ) -> Float[Tensor, "rows tokens vocab"]:
        """The logits of `run(gates)`: a replay if this kind of pass has been captured."""
        if kind not in self.captured:
            first = kind not in self.seen  # the first pass also warms up and compiles
            self.seen.add(kind)
            if first or self.failure is not None or len(self.captured) >= MOST_CAPTURED:
                with self.masks.remember():
                    return run(gates.to(self.device, non_blocking=True))
            try:
                self.captured[kind] = self._capture(gates, run)
            except Exception as error:  # a pass that waits for the GPU cannot be captured
                self.failure = error
                return run(gates.to(self.device, non_blocking=True))
        captured = self.captured[kind]
        captured.gates.copy_(gates, non_blocking=True)
        captured.graph.replay()
        return captured.logits

    def _capture(self, gates: Tensor, run: RunGates) -> _CapturedPass:
        static = gates.to(self.device).clone()
        graph = torch.cuda.CUDAGraph()
        self._rehearse(static, run)
        with self.masks.reuse(), torch.cuda.graph(graph, pool=self.pool):
            logits = run(static)
        return _CapturedPass(static, logits, graph)

    def _rehearse(self, gates: Tensor, run: RunGates) -> None:
        """Run the pass as it will be captured: errors here are milder than during the capture."""
        torch.cuda.synchronize(self.device)
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            with self.masks.reuse(), torch.compiler.set_stance("fail_on_recompile"):
                run(gates)
        finally:
            torch.cuda.set_sync_debug_mode(before)
            torch.cuda.synchronize(self.device)


class _Masks:
    """Remembers the attention masks of the first pass and returns them while a pass is captured.

    During a capture, transformers cannot ask the GPU whether a mask is needed, so it would write
    out masks that it otherwise leaves to the attention kernel. That would be another, slower pass
    than the one that was compiled.
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
    def remember(self) -> Iterator[None]:
        """Remember the masks that are made in this context."""
        self.made.clear()

        def remembering(make: Callable[..., Any]) -> Callable[..., Any]:
            def make_and_remember(*args: Any, **kwargs: Any) -> Any:
                self.made.append(make(*args, **kwargs))
                return self.made[-1]

            return make_and_remember

        with ExitStack() as stack:
            for file, name in self.makers:
                make = getattr(sys.modules[file], name)
                stack.enter_context(replaced(file, name, remembering(make)))
            yield

    @contextmanager
    def reuse(self) -> Iterator[None]:
        """Return the remembered masks, in order, wherever a mask would be made in this context."""
        masks = iter(self.made)
        with ExitStack() as stack:
            for file, name in self.makers:
                stack.enter_context(replaced(file, name, lambda *_, **__: next(masks)))
            yield
