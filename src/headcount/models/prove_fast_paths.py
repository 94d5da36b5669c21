"""Prove which fast paths reproduce a model's logits, before any of them is used."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from headcount.models.fast_paths import (
    FastPaths,
    Recording,
    Trunk,
    find_trunk,
    recording,
    replaying,
    scored_end,
    spread_cache,
    watching,
)
from headcount.models.forward_modes import empty_cache, exactly
from headcount.models.gate import gating
from headcount.models.late import (
    at_positions,
    depends_on_length,
    late_gates,
    late_inputs,
    may_run_late,
    read_only,
)
from headcount.models.sites import HeadSite, accepted, coarsest_dtype, probe_prompt, run
from headcount.models.slices import tolerance

GATED = 4  # sites whose heads the proof switches off; a late start is tried at every site
SCORED = 3  # positions that the proof scores; not equal to its number of rows


@torch.no_grad()
def prove_fast_paths(module: nn.Module, sites: Sequence[HeadSite]) -> FastPaths:
    """Try every fast path on a made-up prompt and keep those that reproduce the logits."""
    with exactly(module):
        prover = _Prover(module, sites)
        paths = FastPaths(head=prover.ends(FastPaths(head=True)))
        trunk = find_trunk(module, sites, prover.ran)
        if trunk is not None:
            paths = prover.starts_late(paths, trunk)
        if paths.head and paths.trunk is not None and paths.trunk.tokenwise:
            paths = replace(paths, scored=prover.ends(replace(paths, scored=True)))
        return replace(paths, cache=prover.caches(paths))


@torch.no_grad()
def prove_scored_logits(module: nn.Module, sites: Sequence[HeadSite]) -> bool:
    """Whether logits can be computed at the scored positions only: three passes, not some sixty."""
    with exactly(module):
        return _Prover(module, sites).ends(FastPaths(head=True))


@torch.no_grad()
def prove_late(module: nn.Module, sites: Sequence[HeadSite], paths: FastPaths) -> bool:
    """Whether late passes (see `late`) reproduce the logits of whole passes."""
    if not (paths.cache and may_run_late(module)):
        return False
    with exactly(module):
        return _Prover(module, sites).runs_late(paths)


class _Prover:
    """Compares the logits of two made-up prompts with and without fast paths.

    Some passes hold the prompts twice, in two folds: in the second, the heads of one site are off.
    """

    def __init__(self, module: nn.Module, sites: Sequence[HeadSite]) -> None:
        ids = probe_prompt(module, 2).clone()
        ids[1] = ids[1].flip(0)
        self.module, self.sites, self.ids = module, sites, ids
        self.ran: list[str] = []  # the modules of one pass
        with watching(module, self.ran):
            self.whole = run(module, ids).float()
        last = len(sites) - 1
        chosen = {round(i * last / (GATED - 1)) for i in range(GATED)}
        self.gated_sites = [sites[index] for index in sorted(chosen)]  # includes the last site
        # A batch with more rows rounds differently, in half precision by a lot: allow that much, up
        # to a bound, since a larger difference is not rounding.
        again = run(module, ids.repeat(2, 1))[: len(ids)].float()
        rounding = float((again - self.whole).abs().max() / self.whole.abs().max())
        usual = tolerance(coarsest_dtype(module))
        self.half = usual > 1e-3  # deep models in half precision differ by several times that
        self.most = 5 * usual if self.half else usual
        self.limit = min(max(4 * rounding, usual / 10), self.most)

    @property
    def cached_limit(self) -> float:
        """The allowed difference of passes over a cache, whose attention takes other kernels.

        In half precision these round differently, by some hundredths of the largest logit.
        """
        return self.most if self.half else self.limit

    def close(self, got: Tensor, expected: Tensor, limit: float | None = None) -> bool:
        """Whether logits are the same up to rounding."""
        if got.shape != expected.shape or not got.isfinite().all():
            return False
        limit, change = self.limit if limit is None else limit, got.float() - expected
        if change.abs().max() > limit * expected.abs().max():
            return False
        # Where much is allowed at one logit, all of them must agree better than that: rounding is
        # spread evenly, while a mistaken position or a missing token changes most logits.
        wide = self.half and limit >= self.most
        return not wide or bool(change.norm() <= limit / 2 * expected.norm())

    def gated_limit(self, expected: Tensor) -> float:
        """The difference that is allowed where a site is off in the second half of the rows.

        A model without the heads of its first site may amplify rounding a hundredfold. A wrong
        prefix would change much more than a thousandth of the gate's effect.
        """
        whole, gated = expected.chunk(2)
        effect = float((gated - whole).abs().max() / expected.abs().max())
        return max(self.limit, min(effect / 1000, 10 * self.most))

    def folds(self, site: HeadSite) -> Float[Tensor, "folds heads"]:
        """Gates that leave the first fold alone and switch off a whole site in the second.

        The effect of a single head could vanish in the rounding of half precision.
        """
        gates = torch.ones(2, sum(s.heads for s in self.sites))
        before = sum(s.heads for s in self.sites[: site.index])
        gates[1, before : before + site.heads] = 0
        return gates

    def expected(
        self, site: HeadSite, ids: Tensor, whole: Float[Tensor, "rows tokens vocab"]
    ) -> Float[Tensor, "folds tokens vocab"]:
        """The logits of both folds without fast paths; `whole` are those of the first."""
        with gating(self.module, self.sites, self.folds(site)[1:]):
            return torch.cat((whole, run(self.module, ids).float()))

    def replayed(
        self,
        paths: FastPaths,
        site: HeadSite,
        kept: Recording | None,
        ids: Tensor,
        cache: Any = None,
        gated: bool = True,
    ) -> Float[Tensor, "rows tokens vocab"]:
        """The logits of both folds by a pass that starts at `site`, if there is a recording."""
        module, gates = self.module, self.folds(site).repeat_interleave(len(ids), 0)
        with ExitStack() as stack:
            if gated:
                stack.enter_context(gating(module, self.sites, gates))
            if paths.trunk is not None and kept is not None:
                late = replaying(
                    module, paths.trunk, site, kept, folds=2, attention=paths.attention
                )
                stack.enter_context(late)
            return self.cached(ids.repeat(2, 1), cache)

    def cached(self, ids: Tensor, cache: Any) -> Float[Tensor, "rows tokens vocab"]:
        """The logits of `ids`, which follow the tokens in `cache` if there is one."""
        if cache is None:
            return run(self.module, ids)
        options = {"past_key_values": cache, "use_cache": True}
        logits: Tensor = self.module(input_ids=ids, **accepted(self.module, **options)).logits
        return logits

    def ends(self, paths: FastPaths) -> bool:
        """Whether these fast paths reproduce the logits of the last positions."""
        try:
            with scored_end(self.module, paths, SCORED):
                got = run(self.module, self.ids)
        except Exception:  # a fast path that breaks the model in any way is not used
            return False
        return self.close(got, self.whole[:, -SCORED:])

    def starts_late(self, paths: FastPaths, trunk: Trunk) -> FastPaths:
        """`paths` plus the latest start that reproduces whole passes, tried at every site."""
        gated = {site.index: self.expected(site, self.ids, self.whole) for site in self.gated_sites}
        untouched = self.whole.repeat(2, 1, 1)
        for attention in (True, False):
            late = replace(paths, trunk=trunk, attention=attention)
            try:
                with recording(self.module, trunk, self.sites, rows=2) as kept:
                    run(self.module, self.ids)
                # Run another prompt first, so that state kept between passes cannot help; test
                # sites from last to first for the same reason.
                run(self.module, self.ids.roll(1, 1).repeat(2, 1))
                if all(
                    self.close(
                        self.replayed(late, site, kept, self.ids, gated=site.index in gated),
                        gated.get(site.index, untouched),
                    )
                    for site in reversed(self.sites)
                ):
                    return late
            except Exception:  # see `ends`
                continue
        return paths

    def caches(self, paths: FastPaths) -> bool:
        """Whether a shared prefix, kept in the cache, and the rest reproduce whole passes."""
        if depends_on_length(self.module):
            return False
        ids = self.ids.clone()
        split = ids.shape[1] // 2
        ids[1, :split] = ids[0, :split]
        prefix, rest = ids[:1, :split], ids[:, split:]
        try:
            undisturbed = empty_cache(self.module, len(self.sites))
            if undisturbed is None or "past_key_values" not in accepted(
                self.module, past_key_values=undisturbed
            ):
                return False
            with self._recorded(paths, rows=1) as prefix_record:
                self.cached(prefix, undisturbed)
            if not all(layer.get_seq_length() == split for layer in undisturbed.layers):
                return False
            with self._recorded(paths, rows=2) as rest_record:
                cache = empty_cache(self.module, len(self.sites))
                got = self.cached(rest, spread_cache(cache, undisturbed, undisturbed, 1, 2))
            whole = run(self.module, ids).float()
            if not self.close(got, whole[:, split:], self.cached_limit):
                return False
            for site in self.gated_sites:
                expected = self.expected(site, ids, whole)[:, split:]
                cache, fresh = (empty_cache(self.module, len(self.sites)) for _ in range(2))
                self.replayed(paths, site, prefix_record, prefix, cache)
                spread_cache(fresh, cache, undisturbed, 2, 2)
                got = self.replayed(paths, site, rest_record, rest, fresh)
                limit = max(self.cached_limit, self.gated_limit(expected))
                if not self.close(got, expected, limit):
                    return False
        except Exception:  # see `ends`
            return False
        return True

    def runs_late(self, paths: FastPaths) -> bool:
        """Whether passes over the last tokens alone reproduce whole passes, from a few sites."""
        module, split = self.module, self.ids.shape[1] // 2
        early, late = self.ids[:, :split], self.ids[:, split:]
        tokens = late.shape[1]
        acting = range(tokens - 1)  # gates need not act up to the end
        whole_acting = range(split, split + tokens - 1)
        try:
            cache = empty_cache(module, len(self.sites))
            self.cached(early, cache)
            cache, dtype = read_only(cache), coarsest_dtype(module)
            with self._recorded(paths, rows=2) as kept:
                got = module(**late_inputs(cache, late, 1, dtype)).logits
            if not self.close(got, self.whole[:, split:], self.cached_limit):
                return False
            for site in self.gated_sites:
                off = self.folds(site)[1:]
                with gating(module, self.sites, at_positions(off, whole_acting, split + tokens)):
                    expected = torch.cat((self.whole, run(module, self.ids).float()))
                with ExitStack() as stack:
                    gates = late_gates(self.folds(site), acting, tokens)
                    stack.enter_context(gating(module, self.sites, gates))
                    if paths.trunk is not None and kept is not None:
                        how: dict[str, Any] = {"folds": 2, "attention": paths.attention}
                        replay = replaying(module, paths.trunk, site, kept, along="tokens", **how)
                        stack.enter_context(replay)
                    got = module(**late_inputs(cache, late, 2, dtype)).logits
                got = got.unflatten(1, (2, tokens)).transpose(0, 1).flatten(0, 1)
                expected = expected[:, split:]
                limit = max(self.cached_limit, self.gated_limit(expected))
                if not self.close(got, expected, limit):
                    return False
        except Exception:  # see `ends`
            return False
        return True

    def _recorded(self, paths: FastPaths, rows: int) -> AbstractContextManager[Recording | None]:
        trunk = paths.trunk
        return nullcontext() if trunk is None else recording(self.module, trunk, self.sites, rows)
