"""Passes recorded as CUDA graphs: the GPU runs them without waiting for Python.

A small model's pass has a thousand kernels that take less time to run than to launch. A pass that
comes again is captured once, with its gates in a place that stays, and then only replayed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.system.transformers_compat import replaced

MOST = 8  # graphs kept: they share their memory, but each has its own list of kernels

Pass = Callable[[Tensor], Tensor]


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
            if first or self.failure is not None or len(self.captured) >= MOST:
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
        with ExitStack() as stack:
            for file, name in self.makers:
                make = getattr(sys.modules[file], name)
                stack.enter_context(replaced(file, name, self._noting(make)))
            yield

    @contextmanager
    def given_again(self) -> Iterator[None]:
        """Give the noted masks, in their order, to whoever makes masks in this context."""
        masks = iter(self.made)
        with ExitStack() as stack:
            for file, name in self.makers:
                stack.enter_context(replaced(file, name, lambda *_, **__: next(masks)))
            yield

    def _noting(self, make: Callable[..., Any]) -> Callable[..., Any]:
        def note(*args: Any, **kwargs: Any) -> Any:
            mask = make(*args, **kwargs)
            self.made.append(mask)
            return mask

        return note
