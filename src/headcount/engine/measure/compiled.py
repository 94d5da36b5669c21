"""Blocks compiled once and run many times, with the gate inside.

On a data-centre GPU small models spend most of their time in element-wise steps between matrix
products; compiling a block fuses them, the gate among them. All blocks share one compiled graph:
the hook is one function, and its numbers are found on the projection that it is called for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from types import MethodType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.fast_paths import Trunk
from headcount.models.forward_modes import instead
from headcount.models.gate import StandIns
from headcount.models.sites import HeadSite, plain

GATE, BIAS = "_headcount_gate", "_headcount_bias"
# Graphs of one block: by lengths, with and without gradients, for every task of a process. Torch
# stops at 8 and then runs uncompiled, three times slower.
GRAPHS = 64


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
    stand_ins: StandIns | None,
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
            z0 = None if stand_ins is None else stand_ins[site.index]
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
