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

WASTE = 0.1  # share of a pass that a head set may compute needlessly to run together with others


@dataclass
class _Segment:
    """The tokens of a batch that run in one pass, and the recording of their ungated pass."""

    ids: Int[Tensor, "rows tokens"]
    scored: int  # logits are computed at this many last positions; the prefix needs none, so 1
    ablations: PerSite | None
    recording: Recording | None = None


class Runner:
    """Runs one batch: once with all heads, which is recorded, then under many head sets.

    The rows of a pass are ordered by head set: row f·rows + r is example r under head set f. A
    prefix that all rows share runs as a segment of its own, once for each head set.
    """

    def __init__(self, model: Model, batch: Batch, plan: Plan, ablations: PerSite | None) -> None:
        self.model, self.batch, self.plan = model, batch, plan
        self.count = batch.targets.shape[1]
        prefix = plan.prefix(batch)
        self.prefix = prefix = prefix if _equal_rows(ablations, prefix) else 0
        first, rest = (slice(1), slice(prefix)), (slice(None), slice(prefix, None))
        self.shared = _Segment(batch.ids[first], 1, _slice(ablations, *first)) if prefix else None
        self.rest = _Segment(batch.ids[rest], self.count, _slice(ablations, *rest))
        self.cache: Any = None  # keys and values of the ungated prefix
        # With a key/value cache, blocks could not share one compiled graph.
        self.compile = plan.compile and not prefix and not model.spread and can_compile(model.sites)
        on_gpu = model.device.type == "cuda"
        self.graphs = Graphs(model.module, model.device) if self.compile and on_gpu else None

    @property
    def tokens(self) -> int:
        """The tokens that one more head set adds to a pass."""
        return self.rest.ids.numel()

    def whole(self) -> Scored:
        """Run the model with all its heads, and record what gated passes can start from."""
        cache = None
        if self.shared is not None:
            self.cache = self._empty()
            self._recorded(self.shared, self.cache)
            cache = spread_cache(self._empty(), self.cache, self.cache, 1, self.batch.rows)
        return self._score(self._recorded(self.rest, cache))

    def under(self, gates: Float[Tensor, "sets heads"], start: int) -> Scored:
        """Run the batch under head sets that gate no head before site `start`."""
        folds = len(gates)
        cache = None
        if self.shared is not None:
            cache = self._empty()
            self._gated(self.shared, gates, start, cache)
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
        return Scored(logits, *(tokens.repeat(folds, 1) for tokens in answers))

    def _recorded(self, segment: _Segment, cache: Any) -> Tensor:
        model, trunk = self.model, self.plan.fast_paths.trunk
        # A model that the user has compiled would ignore hooks that are registered afterwards.
        with torch.compiler.set_stance("force_eager"):
            if trunk is None:
                return self._run(segment, segment.ids, cache)
            with recording(model.module, trunk, model.sites, rows=len(segment.ids)) as recorded:
                logits = self._run(segment, segment.ids, cache)
        segment.recording = recorded
        return logits

    def _gated(self, segment: _Segment, gates: Tensor, start: int, cache: Any) -> Tensor:
        model, paths = self.model, self.plan.fast_paths
        folds = len(gates) // len(segment.ids)
        module, sites = model.module, model.sites
        with ExitStack() as stack:
            z0 = _repeat(segment.ablations, folds)
            if self.compile and paths.trunk is not None:
                on_device = gates.to(model.device)
                stack.enter_context(static_gating(module, sites, on_device, z0, model.dtype))
                first = paths.trunk.block_of[start] + (1 if segment.recording is not None else 0)
                last = len(paths.trunk.blocks) - (1 if paths.scored else 0)
                stack.enter_context(compiled_blocks(module, paths.trunk, first, last))
            else:
                stack.enter_context(gating(module, sites, gates, ablations=z0))
            if segment.recording is not None and paths.trunk is not None:
                options: dict[str, Any] = {"folds": folds, "attention": paths.attention}
                replay = replaying(module, paths.trunk, sites[start], segment.recording, **options)
                stack.enter_context(replay)
            return self._run(segment, segment.ids.repeat(folds, 1), cache)

    def _run(self, segment: _Segment, ids: Tensor, cache: Any) -> Tensor:
        module, paths = self.model.module, self.plan.fast_paths
        options: dict[str, Any] = {"use_cache": False}
        if cache is not None:
            options = {"past_key_values": cache, "use_cache": True}
        with scored_end(module, paths, segment.scored):
            output = module(input_ids=ids, **accepted(module, **options))
        logits: Tensor = output.logits
        return logits


def _slice(ablations: PerSite | None, rows: slice, columns: slice) -> PerSite | None:
    """The ablations of these rows and columns; an ablation for all positions is not cut."""
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
    """Whether all rows have equal ablations in the prefix, so that it can run once for all rows."""
    starts = [z[:, :prefix] for z in ablations or () if z is not None and z.shape[1] > 1]
    return all(torch.equal(start, start[:1].expand_as(start)) for start in starts)


def chunks(starts: Sequence[int], most: int, sites: int) -> Iterator[tuple[list[int], int]]:
    """Group head sets into chunks of up to `most` whose first gated sites lie close together.

    Yields the indices of a chunk's head sets and the earliest of their sites, from which the whole
    chunk runs; a head set that starts much later goes into another chunk, to save computation.

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
