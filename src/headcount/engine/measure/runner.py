"""Run one batch of examples under many head sets, by the fast paths of a plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.engine.measure.batch import LONG, Batch
from headcount.engine.measure.compiled import Graphs, can_compile, compiled_blocks, static_gating
from headcount.engine.measure.plan import Plan
from headcount.engine.measure.positions import acting
from headcount.engine.measure.recorded import SetsAndStart, most_starts, stretches
from headcount.metrics.logits import Scored
from headcount.models.fast_paths import (
    Recording,
    in_pieces,
    recording,
    replaying,
    scored_end,
    skipping,
    spread_cache,
)
from headcount.models.forward_modes import empty_cache
from headcount.models.gate import Ablations, gating
from headcount.models.late import LATE_TOKENS, at_positions, late_gates, late_inputs, read_only
from headcount.models.model import Model
from headcount.models.sites import accepted, coarsest_dtype
from headcount.models.streaming import Streaming

PIECE = 4096  # tokens on which an MLP runs at once, in passes that fill a cache
WASTE = 0.1  # share of a pass that a head set may compute needlessly to run together with others


@dataclass
class _Segment:
    """The tokens of a batch that run in one pass, and the recording of their ungated pass."""

    ids: Int[Tensor, "rows tokens"]
    scored: int  # logits are computed at this many last positions; the prefix needs none, so 1
    ablations: Ablations | None
    recording: Recording | None = None


class Runner:
    """Runs one batch: with all heads, which is recorded where it saves work, and under head sets.

    The rows of a pass are ordered by head set: row f·rows + r is example r under head set f. A
    prefix that all rows share runs as a segment of its own, once for each head set. Where gates act
    only on late positions, all positions before them run once for all head sets.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        plan: Plan,
        ablations: Ablations | None,
        positions: str = "all",
    ) -> None:
        self.model, self.batch, self.plan = model, batch, plan
        self.count = batch.targets.shape[1]
        # Where gates act, or None if they act everywhere.
        self.acting = None if positions == "all" else acting(positions, *batch.lengths)
        self.late = plan.late_start(positions, *batch.lengths)
        prefix = plan.prefix(batch)
        self.prefix = prefix = prefix if _equal_rows(ablations, prefix) else 0
        first, rest = (slice(1), slice(prefix)), (slice(None), slice(prefix or self.late, None))
        self.shared = _Segment(batch.ids[first], 1, _slice(ablations, *first)) if prefix else None
        self.rest = _Segment(batch.ids[rest], self.count, _slice(ablations, *rest))
        self.cache: Any = None  # keys and values of the ungated prefix, or of all earlier positions
        # With a key/value cache, blocks could not share one compiled graph.
        self.compile = plan.compile and not prefix and not model.spread and can_compile(model.sites)
        # Long texts keep a GPU busy without graphs, which would hold their memory.
        captured = self.compile and model.device.type == "cuda" and batch.ids.shape[1] < LONG
        self.graphs = Graphs(model.module, model.device) if captured else None

    def folds(self, tokens: int) -> int:
        """How many head sets run side by side in a pass of up to `tokens` tokens."""
        if not self.plan.fold:
            return 1
        rows, length = self.rest.ids.shape
        if self.late:
            return max(1, min(tokens // (rows * length), LATE_TOKENS // length))
        return max(1, self.plan.tokens_at_once(self.batch.ids.shape[1], tokens) // (rows * length))

    def run(
        self, passes: Sequence[SetsAndStart], sets: Float[np.ndarray, "sets heads"], whole: bool
    ) -> Iterator[tuple[list[int] | None, Scored]]:
        """Carry out passes, each given by its head sets and the site where they start.

        Yields the head sets of each pass and its logits; with `whole`, also the logits of the model
        with all its heads, for which it yields None in place of head sets.
        """
        trunk = self.plan.fast_paths.trunk
        if trunk is None or self.prefix or self.late:
            if whole or self.prefix or self.late:
                yield None, self.whole([start for _, start in passes])
            for rows, start in passes:
                yield rows, self.under(torch.from_numpy(sets[rows]), start)
            return
        most = most_starts(self.model, self.rest.ids.numel())
        for stretch in stretches(passes, trunk, self.plan.fast_paths.attention, whole, most):
            if stretch.runs:
                scored = self.whole(stretch.starts, stretch.last)
                if stretch.last is None:
                    yield None, scored
            for rows, start in stretch.passes:
                yield rows, self.under(torch.from_numpy(sets[rows]), start)

    def whole(self, starts: Sequence[int], last: int | None = None) -> Scored:
        """Run the model with all its heads, and record what passes that start there need.

        If this was done before up to some block, go on from there. With `last`, stop after that
        block: the logits then mean nothing.
        """
        cache = None
        if self.shared is not None:
            self.cache = self._empty()
            self._recorded(self.shared, self.cache, starts, last)
            cache = spread_cache(self._empty(), self.cache, self.cache, 1, self.batch.rows)
        if self.late:
            self.cache = self._empty()
            early = _Segment(self.batch.ids[:, : self.late], 1, None)
            paths = self.plan.fast_paths
            with ExitStack() as stack:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
                if paths.scored and paths.trunk is not None and self.late > PIECE:
                    # The cache takes memory that a pass without one has for its MLPs.
                    stack.enter_context(in_pieces(self.model.module, paths.trunk, PIECE))
                self._run(early, early.ids, self.cache)
            read_only(self.cache)
        return self._score(self._recorded(self.rest, cache, starts, last))

    def under(self, gates: Float[Tensor, "sets heads"], start: int) -> Scored:
        """Run the batch under head sets that gate no head before site `start`."""
        folds = len(gates)
        cache = None
        if self.shared is not None:
            cache = self._empty()
            self._gated(self.shared, gates, start, cache)
            cache = spread_cache(self._empty(), cache, self.cache, folds, self.batch.rows)
        by_row = self._by_row(gates)
        if self.graphs is not None:
            logits = self.graphs.run(
                (start, folds), by_row, lambda g: self._gated(self.rest, g, start, None)
            )
        else:
            logits = self._gated(self.rest, by_row, start, cache)
        return self._score(logits, folds)

    def _by_row(self, gates: Float[Tensor, "sets heads"]) -> Tensor:
        """The gates of every row of a pass, and of every token where they do not act on all."""
        length = self.rest.ids.shape[1]
        if self.acting is None:
            return gates.repeat_interleave(self.batch.rows, 0)
        acting = range(self.acting.start - self.late, self.acting.stop - self.late)
        if self.late:
            return late_gates(gates, acting, length)
        return at_positions(gates.repeat_interleave(self.batch.rows, 0), acting, length)

    def _empty(self) -> Any:
        return empty_cache(self.model.module, len(self.model.sites))

    def _score(self, logits: Float[Tensor, "rows tokens vocab"], folds: int = 1) -> Scored:
        batch = self.batch
        if logits.shape[1] != self.count:
            scored = batch.scored.repeat(folds, 1) - self.prefix - self.late
            logits = logits.gather(1, scored[..., None].expand(-1, -1, logits.shape[-1]))
        answers = (batch.targets, batch.foils, batch.also)
        return Scored(logits, *(tokens.repeat(folds, 1) for tokens in answers))

    def _recorded(
        self, segment: _Segment, cache: Any, starts: Sequence[int], last: int | None
    ) -> Tensor:
        model, trunk = self.model, self.plan.fast_paths.trunk
        # A model that the user has compiled would ignore hooks that are registered afterwards.
        with torch.compiler.set_stance("force_eager"):
            if trunk is None:
                return self._run(segment, segment.ids, cache)
            module, rows, done = model.module, len(segment.ids), Recording(len(segment.ids))
            if segment.recording is not None:  # keep only where the pass goes on
                done = segment.recording.end()
            segment.recording = None
            where: dict[str, Any] = {"starts": sorted(set(starts)), "last": last}
            with (
                skipping(module, trunk, done.blocks_run, done),
                recording(module, trunk, model.sites, rows, **where) as recorded,
            ):
                logits = self._run(segment, segment.ids, cache)
        segment.recording = recorded
        return logits

    def _gated(self, segment: _Segment, gates: Tensor, start: int, cache: Any) -> Tensor:
        model, paths = self.model, self.plan.fast_paths
        rows, tokens = segment.ids.shape
        folds = gates.shape[-1] // tokens if self.late else len(gates) // rows
        module, sites = model.module, model.sites
        with ExitStack() as stack:
            z0 = _repeat(segment.ablations, folds, 1 if self.late else 0)
            if self.compile and paths.trunk is not None and not isinstance(z0, Streaming):
                on_device = gates.to(model.device)
                stack.enter_context(static_gating(module, sites, on_device, z0, model.dtype))
                first = paths.trunk.block_of[start] + (1 if segment.recording is not None else 0)
                last = len(paths.trunk.blocks) - (1 if paths.scored else 0)
                stack.enter_context(compiled_blocks(module, paths.trunk, first, last))
            else:
                stack.enter_context(gating(module, sites, gates, ablations=z0))
            if segment.recording is not None and paths.trunk is not None:
                options: dict[str, Any] = {"folds": folds, "attention": paths.attention}
                options["along"] = "tokens" if self.late else "rows"
                replay = replaying(module, paths.trunk, sites[start], segment.recording, **options)
                stack.enter_context(replay)
            ids = segment.ids if self.late else segment.ids.repeat(folds, 1)
            return self._run(segment, ids, cache, folds)

    def _run(self, segment: _Segment, ids: Tensor, cache: Any, folds: int = 1) -> Tensor:
        module, late = self.model.module, bool(self.late) and segment is self.rest
        inputs: dict[str, Any] = {"use_cache": False}
        if cache is not None:
            inputs = {"past_key_values": cache, "use_cache": True}
        inputs = {"input_ids": ids, **accepted(module, **inputs)}
        if late:
            inputs = late_inputs(self.cache, ids, folds, coarsest_dtype(module))
        with scored_end(module, self.plan.fast_paths, segment.scored, folds if late else 1):
            logits: Tensor = module(**inputs).logits
        # A late pass has its head sets as tokens: (rows, folds · positions, vocab).
        return logits.unflatten(1, (folds, -1)).transpose(0, 1).flatten(0, 1) if late else logits


def _slice(ablations: Ablations | None, rows: slice, columns: slice) -> Ablations | None:
    """The ablations of these rows and columns; an ablation for all positions is not cut."""
    if ablations is None or isinstance(ablations, Streaming):
        return ablations
    return [
        None if z is None else z[rows] if z.shape[1] == 1 else z[rows, columns] for z in ablations
    ]


def _repeat(ablations: Ablations | None, folds: int, axis: int) -> Ablations | None:
    """Repeat ablations along their rows (axis 0) or tokens (axis 1), where they have several."""
    if ablations is None or folds == 1 or isinstance(ablations, Streaming):
        return ablations
    copies = (folds, 1, 1) if axis == 0 else (1, folds, 1)
    return [z if z is None or z.shape[axis] == 1 else z.repeat(copies) for z in ablations]


def _equal_rows(ablations: Ablations | None, prefix: int) -> bool:
    """Whether all rows have equal ablations in the prefix, so that it can run once for all rows."""
    if isinstance(ablations, Streaming):
        return True
    starts = [z[:, :prefix] for z in ablations or () if z is not None and z.shape[1] > 1]
    return all(torch.equal(start, start[:1].expand_as(start)) for start in starts)


def chunks(
    starts: Sequence[int], most: int, sites: int, free: int = 0
) -> Iterator[tuple[list[int], int]]:
    """Group head sets into chunks of up to `most` whose first gated sites lie close together.

    Yields the indices of a chunk's head sets and the earliest of their sites, from which the whole
    chunk runs; a head set that starts much later goes into another chunk, to save computation. Up
    to `free` head sets take no longer than one, so that they are not divided.

    >>> list(chunks([7, 2, 7, 3, 2], most=2, sites=8))
    [([1, 4], 2), ([3], 3), ([0, 2], 7)]
    >>> list(chunks([7, 2, 7, 3, 2], most=5, sites=8, free=4))
    [([1, 4, 3, 0], 2), ([2], 7)]
    """
    chunk: list[int] = []
    for place in sorted(range(len(starts)), key=lambda place: starts[place]):
        first = starts[chunk[0]] if chunk else starts[place]
        wasted = (starts[place] - first) / (sites - first)
        if len(chunk) == most or (wasted > WASTE and len(chunk) >= free):
            yield chunk, first
            chunk = []
        chunk.append(place)
    if chunk:
        yield chunk, starts[chunk[0]]
