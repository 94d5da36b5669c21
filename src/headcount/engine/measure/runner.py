"""Run one batch of examples under many head sets, by the fast paths of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.engine.measure.batch import Batch
from headcount.engine.measure.compiled import Graphs, can_compile, compiled_blocks, static_gating
from headcount.engine.measure.plan import Plan
from headcount.metrics.logits import Scored
from headcount.models.fast_paths import Recording, recording, replaying, scored_end, spread_cache
from headcount.models.forward_modes import empty_cache
from headcount.models.gate import PerSite, gating
from headcount.models.model import Model
from headcount.models.sites import accepted

WASTE = 0.1  # of a pass: what a head set may run in vain to share it with others


@dataclass
class _Stretch:
    """Some columns of the batch that run in one pass, and what their undisturbed pass gave."""

    ids: Int[Tensor, "rows tokens"]
    scored: int  # positions at the end whose logits are wanted; for the prefix, as few as possible
    ablations: PerSite | None
    kept: Recording | None = None


class Runner:
    """One batch, recorded once, then run under as many head sets as wanted.

    Rows of a pass are ordered head set by head set: row f·rows + r is example r under set f.
    """

    def __init__(self, model: Model, batch: Batch, plan: Plan, ablations: PerSite | None) -> None:
        self.model, self.batch, self.plan = model, batch, plan
        self.count = batch.targets.shape[1]
        prefix = plan.prefix(batch)
        self.prefix = prefix = prefix if _equal_rows(ablations, prefix) else 0
        first, rest = (slice(1), slice(prefix)), (slice(None), slice(prefix, None))
        self.head = _Stretch(batch.ids[first], 1, _some(ablations, *first)) if prefix else None
        self.rest = _Stretch(batch.ids[rest], self.count, _some(ablations, *rest))
        self.cache: Any = None  # keys and values of the undisturbed prefix
        # Passes with a cache differ from block to block in what would be compiled.
        self.compile = plan.compile and not prefix and not model.spread and can_compile(model.sites)
        on_gpu = model.device.type == "cuda"
        self.graphs = Graphs(model.module, model.device) if self.compile and on_gpu else None

    @property
    def tokens(self) -> int:
        """Tokens that one more head set adds to a pass."""
        return self.rest.ids.numel()

    def whole(self) -> Scored:
        """Run the model with all its heads; keeps what later passes can start from."""
        cache = None
        if self.head is not None:
            self.cache = self._empty()
            self._recorded(self.head, self.cache)
            cache = spread_cache(self._empty(), self.cache, self.cache, 1, self.batch.rows)
        return self._score(self._recorded(self.rest, cache))

    def under(self, gates: Float[Tensor, "sets heads"], start: int) -> Scored:
        """Run the batch under head sets none of which gates a head before site `start`."""
        folds = len(gates)
        cache = None
        if self.head is not None:
            cache = self._empty()
            self._gated(self.head, gates, start, cache)
            cache = spread_cache(self._empty(), cache, self.cache, folds, self.batch.rows)
        by_row = gates.repeat_interleave(self.batch.rows, 0)
        if self.graphs is not None:
            logits = self.graphs.run(
                (start, folds), by_row, lambda g: self._gated(self.rest, g, start, None)
            )
        else:
            logits = self._gated(self.rest, by_row, start, cache)
        return self._score(logits, folds)

    def _empty(self) -> Any:
        return empty_cache(self.model.module, len(self.model.sites))

    def _score(self, logits: Float[Tensor, "rows tokens vocab"], folds: int = 1) -> Scored:
        batch = self.batch
        if logits.shape[1] != self.count:
            scored = batch.scored.repeat(folds, 1) - self.prefix
            logits = logits.gather(1, scored[..., None].expand(-1, -1, logits.shape[-1]))
        answers = (batch.targets, batch.foils, batch.also)
        return Scored(logits, *(some.repeat(folds, 1) for some in answers))

    def _recorded(self, stretch: _Stretch, cache: Any) -> Tensor:
        model, trunk = self.model, self.plan.fast_paths.trunk
        # A user's compiled graph does not see hooks that came after it.
        with torch.compiler.set_stance("force_eager"):
            if trunk is None:
                return self._run(stretch, stretch.ids, cache)
            with recording(model.module, trunk, model.sites, rows=len(stretch.ids)) as kept:
                logits = self._run(stretch, stretch.ids, cache)
        stretch.kept = kept
        return logits

    def _gated(self, stretch: _Stretch, gates: Tensor, start: int, cache: Any) -> Tensor:
        model, paths = self.model, self.plan.fast_paths
        folds = len(gates) // len(stretch.ids)
        module, sites = model.module, model.sites
        with ExitStack() as stack:
            z0 = _repeat(stretch.ablations, folds)
            if self.compile and paths.trunk is not None:
                on_device = gates.to(model.device)
                stack.enter_context(static_gating(module, sites, on_device, z0, model.dtype))
                first = paths.trunk.block_of[start] + (1 if stretch.kept is not None else 0)
                last = len(paths.trunk.blocks) - (1 if paths.scored else 0)
                stack.enter_context(compiled_blocks(module, paths.trunk, first, last))
            else:
                stack.enter_context(gating(module, sites, gates, ablations=z0))
            if stretch.kept is not None and paths.trunk is not None:
                options: dict[str, Any] = {"folds": folds, "attention": paths.attention}
                replay = replaying(module, paths.trunk, sites[start], stretch.kept, **options)
                stack.enter_context(replay)
            return self._run(stretch, stretch.ids.repeat(folds, 1), cache)

    def _run(self, stretch: _Stretch, ids: Tensor, cache: Any) -> Tensor:
        module, paths = self.model.module, self.plan.fast_paths
        options: dict[str, Any] = {"use_cache": False}
        if cache is not None:
            options = {"past_key_values": cache, "use_cache": True}
        with scored_end(module, paths, stretch.scored):
            output = module(input_ids=ids, **accepted(module, **options))
        logits: Tensor = output.logits
        return logits


def _some(ablations: PerSite | None, rows: slice, columns: slice) -> PerSite | None:
    """The ablations of some rows and positions; one that is for all positions stays whole."""
    if ablations is None:
        return None
    return [
        None if z is None else z[rows] if z.shape[1] == 1 else z[rows, columns] for z in ablations
    ]


def _repeat(ablations: PerSite | None, folds: int) -> PerSite | None:
    if ablations is None or folds == 1:
        return ablations
    return [z if z is None or z.shape[0] == 1 else z.repeat(folds, 1, 1) for z in ablations]


def _equal_rows(ablations: PerSite | None, prefix: int) -> bool:
    """Whether all rows have the same ablations in the prefix, so that one row can serve all."""
    starts = [z[:, :prefix] for z in ablations or () if z is not None and z.shape[1] > 1]
    return all(torch.equal(start, start[:1].expand_as(start)) for start in starts)


def chunks(starts: Sequence[int], most: int, sites: int) -> Iterator[tuple[list[int], int]]:
    """Cut head sets into chunks of up to `most` that start at nearly the same of `sites` sites.

    Yields the places of the sets and the earliest of their starts, from which all of them run: one
    that starts much later is better off in a chunk of its own.

    >>> list(chunks([7, 2, 7, 3, 2], most=2, sites=8))
    [([1, 4], 2), ([3], 3), ([0, 2], 7)]
    """
    chunk: list[int] = []
    for place in sorted(range(len(starts)), key=lambda place: starts[place]):
        first = starts[chunk[0]] if chunk else starts[place]
        wasted = (starts[place] - first) / (sites - first)
        if len(chunk) == most or wasted > WASTE:
            yield chunk, first
            chunk = []
        chunk.append(place)
    if chunk:
        yield chunk, starts[chunk[0]]
