"""Contexts that change how a forward pass runs, and caches and clocks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from headcount.models.sites import plain

Forward = Callable[..., Any]
PASSES = threading.RLock()


@contextmanager
def exactly(module: nn.Module) -> Iterator[None]:
    """Use evaluation mode and full float32 products inside this context, in one thread at a time.

    Modes and hooks belong to the model, so another thread's passes would run under our gates.
    """
    with PASSES:
        precision = torch.get_float32_matmul_precision()
        training = [part for part in module.modules() if part.training]
        torch.set_float32_matmul_precision("highest")
        module.eval()
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(precision)
            for part in training:  # not `train()`, which would change every part
                part.training = True


@contextmanager
def scored_logits(module: nn.Module, count: int) -> Iterator[None]:
    """Compute logits at the last `count` positions only."""
    head = plain(module).get_output_embeddings()  # type: ignore[operator]

    def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
        x = args[0]
        # A strided input would make torch multiply row by row, reading all weights for each.
        return (x[:, x.shape[1] - count :].contiguous(), *args[1:])

    with head.register_forward_pre_hook(hook):
        yield


@contextmanager
def instead(module: nn.Module, forward: Forward) -> Iterator[None]:
    """Run `forward` instead of the module's own inside this context."""
    before = {name: own for name, own in vars(module).items() if name == "forward"}
    module.__dict__["forward"] = forward
    try:
        yield
    finally:
        del module.__dict__["forward"]
        module.__dict__.update(before)


def empty_cache(module: nn.Module, sites: int) -> Any:
    """An empty key/value cache with one plain layer for each site, or None.

    Models with sliding windows, linear attention or shared keys need other caches: None.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache(config=plain(module).config)  # type: ignore[arg-type]
    simple = all(type(layer) is DynamicLayer for layer in cache.layers)
    return cache if simple and len(cache.layers) == sites else None


def synchronize(device: torch.device) -> None:
    """Wait until a GPU has finished its work, so that a clock shows the time it took."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
