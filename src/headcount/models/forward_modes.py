"""Contexts that change how a forward pass runs, and caches and clocks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headcount.models.sites import plain

Forward = Callable[..., Any]
PASSES = threading.RLock()
LONG = 2048  # tokens from which cuDNN's attention is worth the time it takes to prepare


@contextmanager
def exactly(module: nn.Module, tokens: int = 0) -> Iterator[None]:
    """Use evaluation mode and full float32 products inside this context, in one thread at a time.

    Modes and hooks belong to the model, so another thread's passes would run under our gates.
    `tokens` is the length of the longest prompt, by which `quick_attention` chooses.
    """
    with PASSES, quick_attention(tokens):
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
def quick_attention(tokens: int = 0) -> Iterator[None]:
    """Keep torch from cuDNN's attention inside this context, unless prompts have `LONG` tokens.

    For every new shape cuDNN prepares for longer (some 0.1 s on an H200) than a pass over short
    prompts takes; over long ones its kernel is the fastest.
    """
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(allowed and tokens >= LONG)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(allowed)


@contextmanager
def scored_logits(module: nn.Module, count: int, folds: int = 1) -> Iterator[None]:
    """Compute logits at the last `count` positions only: of each of `folds` texts in a row."""
    head = plain(module).get_output_embeddings()  # type: ignore[operator]

    def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
        return (last_positions(args[0], count, folds), *args[1:])

    with head.register_forward_pre_hook(hook):
        yield


def last_positions(x: Tensor, count: int, folds: int) -> Tensor:
    """The last `count` positions of each of `folds` equally long texts, one after the other.

    >>> last_positions(torch.arange(6)[None], 1, folds=2)
    tensor([[2, 5]])
    """
    tokens = x.shape[1] // folds
    # A strided input would make torch multiply row by row, reading all weights for each.
    last: Tensor = x.unflatten(1, (folds, tokens))[:, :, tokens - count :].flatten(1, 2)
    return last.contiguous()


@contextmanager
def logits_at(module: nn.Module, positions: Tensor) -> Iterator[None]:
    """Compute the logits of each row at one position only."""
    head = plain(module).get_output_embeddings()  # type: ignore[operator]

    def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
        x = args[0]
        return (x[torch.arange(len(x), device=x.device), positions][:, None], *args[1:])

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
