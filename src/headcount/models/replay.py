"""Prove which short cuts through a model reproduce its logits, before any is taken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from headcount.models.gate import gating
from headcount.models.sites import HeadSite, accepted, plain, probe_prompt, run
from headcount.models.slices import tolerance
from headcount.models.trunk import (
    Recording,
    Trunk,
    find_trunk,
    recording,
    replaying,
    scored_only,
    watching,
)

SITES_TRIED = 4  # spread over the model, the last one always among them


@dataclass(frozen=True)
class ShortCuts:
    """What a model can carry; each was shown to leave its logits as they are."""

    head: bool = False  # logits only where they are scored
    trunk: Trunk | None = None  # start at the first gated site
    attention: bool = False  # … and there, from the output projection on
    scored: bool = False  # the end of the last block only where logits are scored
    cache: bool = False  # tokens that all rows share run once, through the key/value cache


@contextmanager
def scored_logits(module: nn.Module, count: int) -> Iterator[None]:
    """Compute logits at the last `count` positions only."""
    head = plain(module).get_output_embeddings()  # type: ignore[operator]

    def hook(_: nn.Module, args: tuple[Any, ...]) -> Any:
        x = args[0]
        # A strided input would make torch multiply row by row, reading all weights for each.
        return (x[:, x.shape[1] - count :].contiguous(), *args[1:])

    handle = head.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def prove_short_cuts(module: nn.Module, sites: Sequence[HeadSite]) -> ShortCuts:
    """Try every short cut on a made-up prompt and keep those that reproduce the logits.

    Replayed passes have the heads of their first site switched off in the second of two folds.
    """
    ids = probe_prompt(module, 2).clone()
    ids[1] = ids[1].flip(0)
    prover = _Prover(module, sites, ids)
    found = ShortCuts()
    if prover.same(ShortCuts(head=True)):
        found = replace(found, head=True)
    ran: list[str] = []
    with watching(module, ran):
        run(module, ids[:1])
    trunk = find_trunk(module, sites, ran)
    if trunk is not None:
        found = prover.replayed(found, trunk)
        scored = replace(found, trunk=trunk, scored=True)
        if found.head and trunk.tokenwise and prover.same(scored):
            found = replace(found, scored=found.trunk is not None)
    return replace(found, cache=prover.caches())


def _spread(sites: Sequence[HeadSite]) -> list[HeadSite]:
    last = len(sites) - 1
    places = {round(i * last / max(SITES_TRIED - 1, 1)) for i in range(SITES_TRIED)}
    return [sites[place] for place in sorted(places, reverse=True)]


class _Prover:
    """The logits of one prompt, in many ways."""

    def __init__(self, module: nn.Module, sites: Sequence[HeadSite], ids: Tensor) -> None:
        self.module, self.sites, self.ids = module, sites, ids
        self.whole = run(module, ids).float()
        # More rows alone round differently, in half precision by a lot.
        again = run(module, ids.repeat(2, 1))[: len(ids)].float()
        rounding = float((again - self.whole).abs().max() / self.whole.abs().max())
        self.limit = max(tolerance(torch.float32) / 10, 4 * rounding)

    def close(self, got: Tensor, expected: Tensor) -> bool:
        if got.shape != expected.shape or not got.isfinite().all():
            return False
        error = (got.float() - expected).abs().max() / expected.abs().max()
        return bool(error <= self.limit)

    def same(self, cuts: ShortCuts, scored: int = 2) -> bool:
        """Whether the logits of the last positions come out right with these cuts."""
        try:
            with ExitStack() as stack:
                stack.enter_context(scored_logits(self.module, scored))
                if cuts.scored and cuts.trunk is not None:
                    stack.enter_context(scored_only(self.module, cuts.trunk, scored))
                got = run(self.module, self.ids)
        except Exception:  # a model that a cut breaks in any way does without it
            return False
        return self.close(got, self.whole[:, -scored:])

    def replayed(self, cuts: ShortCuts, trunk: Trunk) -> ShortCuts:
        """`cuts` with as late a start as reproduces whole passes."""
        try:
            with recording(self.module, trunk, self.sites, rows=2) as kept:
                run(self.module, self.ids)
            run(self.module, self.ids.roll(1, 1))  # nothing left over may help
        except Exception:  # see `same`
            return cuts
        for attention in (True, False):
            if all(self._replays(trunk, site, kept, attention) for site in _spread(self.sites)):
                return replace(cuts, trunk=trunk, attention=attention)
        return cuts

    def _replays(self, trunk: Trunk, site: HeadSite, kept: Recording, attention: bool) -> bool:
        """Whether a pass that starts at `site` gives what a whole gated pass gives."""
        gates = torch.ones(2, sum(s.heads for s in self.sites))
        before = sum(s.heads for s in self.sites[: site.index])
        gates[1, before : before + site.heads] = 0  # a whole site: to be seen in half precision too
        try:
            with gating(self.module, self.sites, gates[1:]):
                expected = torch.cat((self.whole, run(self.module, self.ids).float()))
            with (
                gating(self.module, self.sites, gates.repeat_interleave(2, 0)),
                replaying(self.module, trunk, site, kept, folds=2, attention=attention),
            ):
                got = run(self.module, self.ids.repeat(2, 1))
        except Exception:  # see `same`
            return False
        return self.close(got, expected)

    def caches(self) -> bool:
        """Whether a shared prefix and the rest, through the cache, give what a whole pass gives."""
        ids = self.ids.clone()
        split = ids.shape[1] // 2
        ids[1, :split] = ids[0, :split]
        try:
            expected = run(self.module, ids).float()[:, split:]
            cache = empty_cache(self.module, len(self.sites))
            if cache is None:
                return False
            options = accepted(self.module, past_key_values=cache, use_cache=True)
            if "past_key_values" not in options:
                return False
            self.module(input_ids=ids[:1, :split], **options)
            if not all(layer.get_seq_length() == split for layer in cache.layers):
                return False
            cache.batch_repeat_interleave(2)
            got = self.module(input_ids=ids[:, split:], **options).logits
        except Exception:  # see `same`
            return False
        return self.close(got, expected)


def empty_cache(module: nn.Module, sites: int) -> Any:
    """A growing key/value cache with one plain layer for each site, or None.

    Sliding windows, linear attention and shared keys need caches that cannot be split like this.
    """
    from transformers.cache_utils import DynamicCache, DynamicLayer

    cache = DynamicCache(config=plain(module).config)  # type: ignore[arg-type]
    simple = all(type(layer) is DynamicLayer for layer in cache.layers)
    return cache if simple and len(cache.layers) == sites else None
