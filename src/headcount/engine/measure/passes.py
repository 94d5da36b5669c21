"""Measure batches of examples under many head sets, as far as memory reaches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from jaxtyping import Bool, Float

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
    """The missing values of a sweep, measured batch by batch.

    What is measured is not missing any more, and goes to `emit` as (head sets, examples, values).
    """

    def __init__(
        self,
        model: Model,
        sets: Float[np.ndarray, "sets heads"],
        metric: Metric,
        stand_in: StandIn,
        plan: Plan,
        missing: Bool[np.ndarray, "sets examples"],
        emit: Emit = lambda measured: None,
    ) -> None:
        self.model, self.sets, self.missing, self.emit = model, sets, missing, emit
        self.metric, self.stand_in, self.plan = metric, stand_in, plan
        self.rows = np.arange(len(sets))  # the head sets that are run now
        self.starts = first_sites(sets, model.layout)
        # Limits, which fall when memory runs out.
        self.most_tokens, self.most_rows = 5 * plan.tokens // 4, missing.shape[1]
        self.pending: list[tuple[list[int], list[int], torch.Tensor]] = []
        self.asked = time.monotonic()

    def run(self, batch: Batch) -> None:
        """Measure what is missing of a batch; where memory is short, in smaller pieces."""
        length = batch.ids.shape[1]
        pieces = [batch]
        while pieces:
            piece = pieces.pop()
            smaller = self.pieces(piece, within=batch)
            if len(smaller) > 1:  # memory was short before, perhaps in another batch
                pieces += reversed(smaller)
            elif not fits(self.model, partial(self._run, piece)):
                tried = min(self.plan.tokens, piece.ids.numel() * len(self.rows))
                half = piece.rows // 2
                if tried > length:
                    self.most_tokens = max(length, tried // 2)
                    self.plan = replace(self.plan, tokens=self.most_tokens)
                    pieces.append(piece)
                elif half:
                    self.most_rows = half
                    pieces.append(piece)
                else:
                    raise too_large(self.model, length)

    def pieces(self, batch: Batch, *, within: Batch | None = None) -> list[Batch]:
        """A batch in pieces that are small enough, by the tokens that the one around it shares."""
        around = within or batch
        fresh = around.ids.shape[1] - self.plan.prefix(around)  # of each row; a shared start once
        rows = max(1, min(self.most_tokens // fresh, self.most_rows))
        if batch.rows <= rows:
            return [batch]
        return [batch.part(start, start + rows) for start in range(0, batch.rows, rows)]

    def share(self, batch: Batch, part: int, of: int) -> list[int]:
        """The head sets of one of several equal parts of a batch's passes.

        Parts are cut between passes: run for themselves they make the passes that `run` makes.
        """
        gated, untouched = self._wanted(batch)
        if of == 1:
            return gated + untouched
        runner = self._runner(batch, gated)
        passes = list(self._passes(runner, gated))
        some = passes[len(passes) * part // of : len(passes) * (part + 1) // of]
        return (untouched if part == 0 else []) + [row for rows, _ in some for row in rows]

    @torch.no_grad()
    def _run(self, batch: Batch) -> None:
        columns = list(batch.examples)
        gated, untouched = self._wanted(batch)
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

    def _wanted(self, batch: Batch) -> tuple[list[int], list[int]]:
        """The head sets of which values are missing: those that gate a head, and those that do not.

        All of the batch is measured, whatever of it is known.
        """
        missing = self.rows[self.missing[self.rows][:, list(batch.examples)].any(axis=1)]
        gates = np.array(self.starts)[missing] < len(self.model.sites)
        return missing[gates].tolist(), missing[~gates].tolist()

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
