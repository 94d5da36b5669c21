"""Measure batches of examples under many head sets, as far as memory reaches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.ablations import StandIn
from headcount.engine.measure.batch import Batch
from headcount.engine.measure.executor import Emit
from headcount.engine.measure.forward import check_finite, fits
from headcount.engine.measure.plan import Plan
from headcount.engine.measure.runner import Runner, chunks
from headcount.heads import HeadLayout
from headcount.metrics import Metric
from headcount.models.memory import too_large
from headcount.models.model import Model


class Passes:
    """Measures batches; what is measured goes to `emit` as (head sets, examples, values)."""

    def __init__(
        self,
        model: Model,
        sets: Float[np.ndarray, "sets heads"],
        examples: int,
        metric: Metric,
        stand_in: StandIn,
        plan: Plan,
    ) -> None:
        self.model, self.sets, self.metric = model, sets, metric
        self.stand_in, self.plan = stand_in, plan
        self.starts = first_sites(sets, model.layout)
        self.rows: list[int] = []  # the head sets that are run now
        self.missing = np.zeros((len(sets), examples), dtype=bool)
        # Limits, which fall when memory runs out.
        self.most_tokens, self.most_rows = plan.most_tokens, examples
        self.pending: list[tuple[list[int], list[int], torch.Tensor]] = []
        self.emit: Emit = lambda measured: None
        self.asked = time.monotonic()

    def run(self, batch: Batch, rows: Sequence[int], part: int = 0, of: int = 1) -> None:
        """Measure a batch under head sets, or one of several equal parts of the passes that takes.

        Where memory is short, in smaller pieces.
        """
        self.rows = self._part(batch, rows, part, of)
        self.missing[np.ix_(self.rows, batch.examples)] = True
        length = batch.ids.shape[1]
        pieces = [batch]
        while pieces:
            piece = pieces.pop()
            smaller = self.plan.pieces(piece, batch, self.most_tokens, self.most_rows)
            if len(smaller) > 1:  # memory was short before, perhaps in another batch
                pieces += reversed(smaller)
            elif not fits(self.model, partial(self._run, piece)):
                tried = min(self.plan.tokens, piece.ids.numel() * len(self.rows))
                half = piece.rows // 2
                if tried > length:
                    self.most_tokens = max(length, tried // 2)
                    self.plan = replace(self.plan, tokens=self.most_tokens)
                elif half:
                    self.most_rows = half
                else:
                    raise too_large(self.model, length)
                pieces.append(piece)

    def _part(self, batch: Batch, rows: Sequence[int], part: int, of: int) -> list[int]:
        """The head sets of a part, cut between passes: those that all parts together would make."""
        gated, untouched = self._by_gating(rows)
        if of == 1:
            return gated + untouched
        passes = list(self._passes(self._runner(batch, gated), gated))
        some = passes[len(passes) * part // of : len(passes) * (part + 1) // of]
        return (untouched if part == 0 else []) + [row for rows, _ in some for row in rows]

    @torch.no_grad()
    def _run(self, batch: Batch) -> None:
        columns = list(batch.examples)
        # All of the batch is measured, whatever of it is known.
        missing = self.missing[self.rows][:, columns].any(axis=1)
        gated, untouched = self._by_gating(list(compress(self.rows, missing)))
        if not (gated or untouched):
            return
        runner = self._runner(batch, gated)
        if untouched or self.plan.cuts.trunk is not None or runner.prefix:
            whole = self.metric.function(runner.whole())
            self._finish(untouched, columns, whole.expand(len(untouched), -1))
        for rows, start in self._passes(runner, gated):
            gates = torch.from_numpy(self.sets[rows])
            values = self.metric.function(runner.under(gates, start))
            self._finish(rows, columns, values.view(len(rows), -1))

    def _by_gating(self, rows: Sequence[int]) -> tuple[list[int], list[int]]:
        """Head sets that gate a head, and those that do not."""
        gates = [self.starts[row] < len(self.model.sites) for row in rows]
        return list(compress(rows, gates)), [
            row for row, gate in zip(rows, gates, strict=True) if not gate
        ]

    def _runner(self, batch: Batch, gated: list[int]) -> Runner:
        stand_ins = self.stand_in.provide(batch) if gated else None
        return Runner(self.model, batch, self.plan, stand_ins)

    def _passes(self, runner: Runner, gated: list[int]) -> Iterator[tuple[list[int], int]]:
        """The head sets of each pass, and the site at which it starts."""
        most = max(1, self.plan.tokens // runner.tokens) if self.plan.fold else 1
        starts = [self.starts[row] for row in gated]
        for places, start in chunks(starts, most, len(self.model.sites)):
            yield [gated[place] for place in places], start

    def _finish(
        self, rows: list[int], columns: list[int], values: Float[torch.Tensor, "sets examples"]
    ) -> None:
        if rows:
            self.pending.append((rows, columns, values))
        # Asking a GPU for its results makes it wait for us: once a second is often enough.
        if self.model.device.type == "cpu" or time.monotonic() - self.asked > 1:
            self.flush()

    def flush(self) -> None:
        """Fetch, check and keep what has been measured."""
        pending, self.pending = self.pending, []
        for rows, columns, values in pending:
            check_finite(values, self.model)
            self.missing[np.ix_(rows, columns)] = False
            self.emit((rows, columns, values.double().cpu().numpy()))
        self.asked = time.monotonic()


def first_sites(sets: Float[np.ndarray, "sets heads"], layout: HeadLayout) -> list[int]:
    """The first site at which each head set gates a head; the number of sites where none does.

    >>> first_sites(np.array([[1, 1, 0.5], [1, 1, 1]]), HeadLayout((1, 2)))
    [1, 2]
    """
    gated = sets != 1
    starts = np.where(gated.any(axis=1), layout.layers[gated.argmax(axis=1)], len(layout.counts))
    return [int(start) for start in starts]
