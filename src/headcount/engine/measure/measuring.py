"""The work of a sweep as executors take it: what one unit holds, and how it is measured.

A unit is made of whole passes, the same that one process would make: nothing that is run at once is
torn apart, so no value changes. For workers it is as large as leaves each of them several, within
limits: each share of a batch first runs it with all heads, and a dead worker loses what it was at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from headcount.engine.measure.ablations import make_stand_in
from headcount.engine.measure.batch import Batch, make_batches
from headcount.engine.measure.executor import Emit, Unit
from headcount.engine.measure.forward import measuring
from headcount.engine.measure.passes import Passes
from headcount.engine.measure.plan import SHORTEST_PREFIX, Plan
from headcount.metrics import Metric
from headcount.models.model import Model
from headcount.system.files import canonical, digest
from headcount.tasks import Encoded

UNITS_EACH = 8  # for each worker, so that none waits long for the last one
FEWEST, MOST = 4, 64  # passes in a unit

# Values of some head sets (rows) and examples (columns).
Measured = tuple[list[int], list[int], Float[np.ndarray, "sets examples"]]


class Share(NamedTuple):
    """Some passes of one batch: one of several equal parts of those that its head sets need."""

    rows: tuple[int, ...]  # the head sets of all parts
    columns: tuple[int, ...]  # the examples
    part: int = 0
    of: int = 1


@dataclass(frozen=True, eq=False)
class MeasuringJob:
    """What is common to all units of a sweep; a mean stand-in is taken over `ranking`."""

    gates: Float[np.ndarray, "sets heads"]
    examples: Sequence[Encoded]
    ranking: Sequence[Encoded]
    metric: Metric
    ablation: str
    ablation_tokens: int  # that run at once where stand-ins are made
    plan: Plan

    def ready(self, model: Model) -> Callable[[Sequence[Share], Emit], None]:
        """Measure shares with a model."""
        stand_in = make_stand_in(
            self.ablation, model, self.examples, self.ranking, self.ablation_tokens
        )
        # One for all units: it remembers how much fits into memory.
        examples = len(self.examples)
        passes = Passes(model, self.gates, examples, self.metric, stand_in, self.plan)

        def measure(shares: Sequence[Share], emit: Emit) -> None:
            passes.emit = emit
            with measuring(model):
                try:
                    for share in shares:
                        # As it was cut: these examples, in one batch.
                        (batch,) = self._batches(model, share.columns, tokens=1 << 60)
                        passes.run(batch, share.rows, share.part, share.of)
                finally:
                    passes.flush()  # also when interrupted: what is measured is kept

        return measure

    def _batches(self, model: Model, examples: Sequence[int], tokens: int = 0) -> list[Batch]:
        return make_batches(
            self.examples,
            tokens=tokens or self.plan.tokens,
            device=model.device,
            places=examples,
            shared_once=SHORTEST_PREFIX if self.plan.cuts.cache else None,
        )

    def parts(
        self,
        model: Model,
        asked: Bool[np.ndarray, "sets examples"],
        missing: Bool[np.ndarray, "sets examples"],
    ) -> list[tuple[np.ndarray, Batch]]:
        """Batches, each with the head sets that it is run under.

        Head sets that all examples want run on many at once, those of single examples on each.
        """
        common = asked.all(axis=1)
        together = self._batches(model, np.flatnonzero(missing[common].any(axis=0)).tolist())
        alone = np.flatnonzero(missing[~common].any(axis=0)).tolist()
        apart = [batch for place in alone for batch in self._batches(model, [place])]
        return [
            *((np.flatnonzero(common), batch) for batch in together),
            *((np.flatnonzero(~common), batch) for batch in apart),
        ]

    def units(
        self,
        context: dict[str, Any],
        missing: Bool[np.ndarray, "sets examples"],
        parts: Iterable[tuple[np.ndarray, Batch]],
        workers: int,
    ) -> list[Unit]:
        """Cut batches into units: one each for this process, finer ones for workers."""
        wanted: list[tuple[float, list[int], Batch]] = []  # passes, head sets, examples
        for some, batch in parts:
            pieces = [batch]
            if workers:
                pieces = self.plan.pieces(batch, batch, self.plan.most_tokens, batch.rows)
            for piece in pieces:
                rows = some[missing[some][:, list(piece.examples)].any(axis=1)].tolist()
                if rows:
                    wanted.append((self._passes(piece, len(rows)), rows, piece))
        if not workers:
            return [
                self._unit(context, [Share(tuple(rows), piece.examples)])
                for _, rows, piece in wanted
            ]
        total = sum(count for count, _, _ in wanted)
        size = min(max(total / (UNITS_EACH * workers), FEWEST), MOST)
        units: list[Unit] = []
        together: list[Share] = []  # small ones, until they are as much as a unit
        gathered = 0.0
        for count, rows, piece in wanted:
            of = max(1, round(count / size))
            shares = [Share(tuple(rows), piece.examples, part, of) for part in range(of)]
            if of > 1:
                units += [self._unit(context, [share]) for share in shares]
                continue
            together += shares
            gathered += count
            if gathered >= size:
                units.append(self._unit(context, together))
                together, gathered = [], 0.0
        return units + ([self._unit(context, together)] if together else [])

    def _passes(self, piece: Batch, rows: int) -> float:
        """About how many passes a piece takes."""
        if not self.plan.fold:
            return rows
        tokens = piece.rows * (piece.ids.shape[1] - self.plan.prefix(piece))
        return rows / max(1, self.plan.tokens // tokens)

    def _unit(self, context: dict[str, Any], shares: Sequence[Share]) -> Unit:
        asked = [
            {
                "head_sets": digest(self.gates[list(share.rows)].astype("<f4").tobytes()),
                "examples": [self.examples[column].key for column in share.columns],
                "share": [share.part, share.of],
            }
            for share in shares
        ]
        columns = [column for share in shares for column in share.columns]
        first = self.examples[columns[0]].example.id
        which = first if len(columns) == 1 else f"{first} and {len(columns) - 1} more"
        part = f", part {shares[0].part + 1} of {shares[0].of}" if shares[0].of > 1 else ""
        sets = len({row for share in shares for row in share.rows})
        name = f"{context['task']}, {self.metric.key}: {which} under {sets} head sets{part}"
        return Unit(digest(canonical({"context": context, "asked": asked})), name, tuple(shares))
