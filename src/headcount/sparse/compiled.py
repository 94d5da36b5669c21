"""Compile a model's blocks for training, which merges the gates' arithmetic into a few kernels.

All blocks have the same code, so that one compilation serves them all. Where compiling fails,
training goes on without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

Function = Callable[..., Any]

GRAPHS = 32  # compiled graphs allowed: dense, sparse, teacher, each with several batch sizes


def blocks_of(module: nn.Module, attentions: Sequence[nn.Module]) -> list[nn.Module]:
    """The block around each attention: the outermost numbered module that holds it."""
    names = {id(child): name for name, child in module.named_modules()}
    blocks: dict[str, nn.Module] = {}
    for attention in attentions:
        parts = names[id(attention)].split(".")
        end = next((i for i, part in enumerate(parts) if part.isdigit()), None)
        if end is not None:
            name = ".".join(parts[: end + 1])
            blocks[name] = module.get_submodule(name)
    return list(blocks.values())


@contextmanager
def compiled(
    module: nn.Module, attentions: Sequence[nn.Module], say: Callable[[str], None]
) -> Iterator[Callable[[Function], Function]]:
    """Compile the model's blocks when they first run, inside this context.

    Yields a function that compiles other functions in the same way, or returns them unchanged where
    nothing can be compiled.
    """
    blocks = blocks_of(module, attentions)
    if not _works(next(module.parameters()).device):
        say("torch.compile does not work here, so training runs without it.")
        yield lambda function: function
        return
    # The backward pass computes scores again to save memory. The compiler would notice the repeated
    # work and keep the scores instead, so common-subexpression elimination is switched off.
    from torch._functorch import config as joint

    config = torch._dynamo.config
    try:
        for block in blocks:
            block.compile()
        with config.patch(recompile_limit=GRAPHS, suppress_errors=True), joint.patch(cse=False):
            yield partial(torch.compile, dynamic=False)
    finally:
        for block in blocks:
            block._compiled_call_impl = None


def _works(device: torch.device) -> bool:
    """Whether anything can be compiled for this device, which needs a compiler and Triton."""
    try:
        result = torch.compile(lambda x: (x * 2).sin().sum())(torch.ones(8, device=device))
        return bool(result.isfinite())
    except Exception:  # whatever the compiler lacks, training works without it
        return False
