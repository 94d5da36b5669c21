"""The one formula: z' = g·z + b at every head site, for one forward pass or many.

`gating` is a context: inside it the model's heads are gated, after it nothing is left behind, also
after an exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.sites import HeadSite, from_rows, plain, to_rows

StandIns = Sequence[Tensor | None]  # per site: z₀ that broadcasts to (rows, tokens, width)


@contextmanager
def gating(
    module: nn.Module,
    sites: Sequence[HeadSite],
    gates: Float[Tensor, "rows heads"] | Float[Tensor, "rows heads tokens"],
    *,
    stand_ins: StandIns | None = None,
    biases: StandIns | None = None,
    every_site: bool = False,
) -> Iterator[None]:
    """Gate the heads of `module` inside this context.

    `gates` holds one number per row and head (in the order of all sites), optionally one per token;
    a single row serves every row of the batch. What an absent head says instead is
    b = (1 − g)·stand-in, zero where no stand-in is given; `biases` sets b itself (steering).
    Sites whose gates are all 1 are left alone unless `every_site` asks for them.
    """
    calls = _Calls()
    start = 0
    with ExitStack() as stack:
        named = dict(plain(module).named_modules())
        for site in sites:
            g = gates[:, start : start + site.heads]
            start += site.heads
            bias = None if biases is None else biases[site.index]
            if not every_site and bias is None and not g.requires_grad and bool((g == 1).all()):
                continue
            stand_in = None if stand_ins is None else stand_ins[site.index]
            hook = _hook(site, g, stand_in, bias, calls)
            handle = named[site.module].register_forward_pre_hook(hook)
            stack.callback(handle.remove)
        stack.callback(plain(module).register_forward_pre_hook(calls.reset).remove)
        # Shared projections run several times in a pass: count their runs, gated or not.
        for name in {site.module for site in sites if site.call > 0}:
            stack.callback(named[name].register_forward_hook(calls.count(name)).remove)
        # A compiled graph does not see hooks that came after it.
        stack.enter_context(_eager())
        yield


@contextmanager
def _eager() -> Iterator[None]:
    """Run compiled modules as plain Python."""
    with torch.compiler.set_stance("force_eager"):
        yield


class _Calls:
    """How often each shared projection ran in the current forward pass."""

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}

    def reset(self, *_: Any) -> None:
        self.runs.clear()

    def count(self, name: str) -> Callable[..., None]:
        def hook(*_: Any) -> None:
            self.runs[name] = self.runs.get(name, 0) + 1

        return hook


def _hook(
    site: HeadSite, gates: Tensor, stand_in: Tensor | None, bias: Tensor | None, calls: _Calls
) -> Callable[[nn.Module, tuple[Any, ...]], Any]:
    placed: dict[torch.device, tuple[Tensor, Tensor | None]] = {}  # one copy for each device

    def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
        if calls.runs.get(site.module, 0) != site.call:
            return None
        x = args[0]
        if x.device not in placed:
            placed[x.device] = _prepare(site, gates, stand_in, bias, x)
        g, b = placed[x.device]
        rows = to_rows(x, site.order, max(g.shape[0], 1))  # (rows, tokens, width)
        z = rows[..., site.span].unflatten(-1, (site.heads, site.size))
        z = z * g if b is None else torch.addcmul(b, z, g)
        z = z.flatten(-2)  # (rows, tokens, heads·size)
        if site.heads * site.size != site.width:
            before, after = rows[..., : site.span.start], rows[..., site.span.stop :]
            z = torch.cat((before, z, after), dim=-1)
        return (from_rows(z, site.order, x), *args[1:])

    return hook


def _prepare(
    site: HeadSite, gates: Tensor, stand_in: Tensor | None, bias: Tensor | None, x: Tensor
) -> tuple[Tensor, Tensor | None]:
    """Bring g and b to the shape (rows, tokens, heads, size or 1) and to the input's dtype."""
    gates = gates.to(x.device, torch.float32)
    by_token = gates[:, :, None] if gates.ndim == 2 else gates  # (rows, heads, tokens or 1)
    g = by_token.transpose(1, 2).unsqueeze(-1)  # (rows, tokens or 1, heads, 1)
    b = bias
    if b is not None:
        b = b.to(x.device, torch.float32)[..., site.span].unflatten(-1, (site.heads, site.size))
    elif stand_in is not None:
        z0 = stand_in.to(x.device, torch.float32)[..., site.span]
        b = (1 - g) * z0.unflatten(-1, (site.heads, site.size))
    return g.to(x.dtype), None if b is None else b.to(x.dtype)
