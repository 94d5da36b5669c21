"""Key/value heads: which query heads share one, and what a cache keeps of them.

With grouped attention several query heads read the same keys and values. The slices of these query
heads stand side by side in the projection's input, so a key/value head is a wider slice, and a head
site can be gated by key/value heads as well. That is read off a pass of the model, and proven.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.forward_modes import exactly
from headcount.models.sites import (
    HeadSite,
    coarsest_dtype,
    from_rows,
    plain,
    probe_prompt,
    run,
    to_rows,
)
from headcount.models.slices import read_slices, tolerance, visible
from headcount.models.streaming import (
    AttentionCall,
    Streaming,
    attending_by,
    by_module,
    not_streaming,
)


@dataclass(frozen=True)
class KeyValueHeads:
    """The key/value heads of one site, as its attention function is given them."""

    heads: int
    numbers: int  # of the key and the value of one head, for each token
    window: int | None = None  # the tokens that a layer with a sliding window sees and keeps

    def kept(self, tokens: int, streaming: Streaming | None = None) -> int:
        """How many numbers one head keeps of a text of so many tokens, streaming or not.

        >>> KeyValueHeads(2, 128).kept(1000), KeyValueHeads(2, 128).kept(1000, Streaming(16, 64))
        (128000, 10240)
        """
        seen = tokens if self.window is None else min(tokens, self.window)
        return self.numbers * (seen if streaming is None else streaming.kept(seen))


@torch.no_grad()
def read_key_values(module: nn.Module, sites: Sequence[HeadSite]) -> tuple[KeyValueHeads, ...]:
    """The key/value heads of every site, each proven to move its own slice and no other."""
    modules = by_module(module, sites)
    found: dict[int, KeyValueHeads] = {}

    def note(call: AttentionCall) -> Tensor:
        for site in modules.get(id(call.module), []):
            window = call.how.get("sliding_window")
            numbers = call.key.shape[-1] + call.value.shape[-1]
            heads = call.key.shape[1]
            if site.queries > 1 or call.query.shape[1] != site.heads or site.heads % heads:
                raise HeadcountError(
                    f"{site.attention} has {call.query.shape[1]} query and {heads} key/value heads "
                    f"for {site.heads} slices, which are no groups of its heads: gate its query "
                    "heads instead."
                )
            found[site.index] = KeyValueHeads(heads, numbers, window)
        return call.full()

    with exactly(module):
        with attending_by(module, note):
            run(module, probe_prompt(module, 1))
        for site in sites:
            if site.index not in found:
                raise not_streaming(site.attention)
        _prove_groups(module, sites, found)
    return tuple(found[site.index] for site in sites)


def _prove_groups(
    module: nn.Module, sites: Sequence[HeadSite], found: dict[int, KeyValueHeads]
) -> None:
    """Disturb the value of one key/value head in each row, and find its slice.

    At each projection the rows are made equal again, so that the next attention starts clean.
    """
    rows = 1 + max(of_site.heads for of_site in found.values())
    generator = torch.Generator().manual_seed(0)
    limit = visible(coarsest_dtype(module))

    def disturb(call: AttentionCall) -> Tensor:
        value, groups = call.value.clone(), torch.arange(call.value.shape[1])
        scale = float(value.float().std().clamp(min=1e-3)) * 3
        noise = torch.randn(value.shape[2:], generator=generator) * scale
        value[groups + 1, groups] += noise.to(value)
        return call.run(call.query, call.key, value, call.mask)

    def check(site: HeadSite) -> Any:
        def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
            by_row, heads = to_rows(args[0], site.order, rows), found[site.index].heads
            slices = read_slices(by_row[..., site.span], heads, limit)
            if slices is None or (slices.heads, slices.start) != (heads, 0):
                raise HeadcountError(
                    f"Cannot prove the key/value heads of {site.attention}: disturbing one does "
                    "not change one slice of the heads and no other. Gate its query heads instead."
                )
            clean = by_row[:1].expand_as(by_row)
            return (from_rows(clean, site.order, args[0]), *args[1:])

        return hook

    named = dict(plain(module).named_modules())
    with ExitStack() as stack:
        for site in sites:
            if site.call == 0:
                hook = check(site)
                stack.enter_context(named[site.module].register_forward_pre_hook(hook))
        stack.enter_context(attending_by(module, disturb))
        run(module, probe_prompt(module, rows))


def by_key_value_head(
    sites: Sequence[HeadSite], found: Sequence[KeyValueHeads]
) -> tuple[HeadSite, ...]:
    """The same sites with a slice for each key/value head."""
    return tuple(
        replace(
            site,
            heads=of_site.heads,
            size=site.heads * site.size // of_site.heads,
            queries=site.heads // of_site.heads,
        )
        for site, of_site in zip(sites, found, strict=True)
    )


@torch.no_grad()
def prove_streaming(module: nn.Module, sites: Sequence[HeadSite]) -> None:
    """Refuse a model whose logits this attention does not reproduce when it hides nothing.

    `sites` are those of query heads.
    """
    for site in sites:
        if site.queries > 1:
            raise HeadcountError(
                f"{site.attention} has {site.queries} attention patterns for each head, which "
                "streaming attention does not support: choose another ablation."
            )
    with exactly(module):
        ids = probe_prompt(module, 2)
        own = run(module, ids).float()
        everything = Streaming(ids.shape[1], ids.shape[1])
        shut = torch.zeros(1, sum(site.heads for site in sites))
        with everything.mixing(module, sites, shut, always=True) as mixing:
            again = run(module, ids).float()
    missing = [site for site in sites if site.index not in mixing.seen]
    if missing:
        raise not_streaming(missing[0].attention)
    allowed = 10 * tolerance(coarsest_dtype(module)) * float(own.abs().max())
    if not float((own - again).abs().max()) <= allowed:
        raise HeadcountError(
            f"Attention of {type(plain(module)).__name__} is not softmax(q·k) v alone, so its "
            "heads cannot be let stream: choose another ablation."
        )
