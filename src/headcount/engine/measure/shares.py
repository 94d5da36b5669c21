"""Cut what `evaluate` has to measure into units for workers.

A unit is made of whole passes, the same that one process would make: nothing that is run at once is
torn apart, so no value changes. It is as large as leaves every worker several of them, within
limits: each share of a batch first runs it with all heads, and a dead worker loses what it was at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.ablations import make_stand_in
from headcount.engine.measure.batch import Batch, Padding, make_batches
from headcount.engine.measure.forward import measuring
from headcount.engine.measure.passes import Work
from headcount.engine.measure.plan import Plan
from headcount.engine.measure.workers import Unit
from headcount.metrics import Metric
from headcount.models.model import Model
from headcount.system.files import canonical, digest
from headcount.tasks import Encoded

UNITS_EACH = 8  # for each worker, so that none waits long for the last one
FEWEST, MOST = 4, 64  # passes in a unit

Found = tuple[list[int], list[int], Float[np.ndarray, "sets examples"]]


class Share(NamedTuple):
    """Some passes of one batch: one of several equal parts of those that its head sets need."""

    rows: tuple[int, ...]  # the head sets of all parts
    columns: tuple[int, ...]  # the examples
    part: int
    of: int


@dataclass(frozen=True, eq=False)
class Measuring:
    """What one call of `evaluate` asks; `ranking` is what a mean stand-in is taken over."""

    context: dict[str, Any]  # of the store
    sets: Float[np.ndarray, "sets heads"]
    examples: Sequence[Encoded]
    ranking: Sequence[Encoded]
    metric: Metric
    stand_in: str
    stand_in_tokens: int  # that run at once where stand-ins are made
    plan: Plan
    padding: Padding

    def ready(self, model: Model) -> Callable[[Sequence[Share]], list[Found]]:
        """Measure shares with a model."""
        stand_in = make_stand_in(
            self.stand_in, model, self.examples, self.ranking, self.stand_in_tokens
        )

        found: list[Found] = []
        missing = np.zeros((len(self.sets), len(self.examples)), dtype=bool)

        def keep(rows: list[int], columns: list[int], values: np.ndarray) -> None:
            missing[np.ix_(rows, columns)] = False
            found.append((rows, columns, values))

        # One for all units: it remembers how much fits into memory.
        work = Work(model, self.sets, self.metric, stand_in, self.plan, missing, keep)

        def measure(shares: Sequence[Share]) -> list[Found]:
            found.clear()
            with measuring(model):
                for share in shares:
                    cells = np.ix_(share.rows, share.columns)
                    missing[cells] = True
                    batch = self._batch(share, model)
                    work.rows = np.array(share.rows)
                    work.rows = np.array(work.share(batch, share.part, share.of), dtype=int)
                    work.run(batch)
                    work.flush()
                    missing[cells] = False  # the other parts are not ours
            return list(found)

        return measure

    def _batch(self, share: Share, model: Model) -> Batch:
        (batch,) = make_batches(
            self.examples,
            tokens=1 << 60,  # as it was cut: these examples, in one batch
            device=model.device,
            padding=self.padding,
            places=share.columns,
        )
        return batch

    def units(
        self, work: Work, batches: Iterable[tuple[np.ndarray, Batch]], workers: int
    ) -> list[Unit]:
        """Cut batches, each with the head sets that it is run under, into units."""
        wanted: list[tuple[float, list[int], Batch]] = []  # passes, head sets, examples
        for some, batch in batches:
            for piece in work.pieces(batch):
                columns = list(piece.examples)
                rows = some[work.missing[some][:, columns].any(axis=1)].tolist()
                if rows:
                    wanted.append((self._passes(piece, len(rows)), rows, piece))
        total = sum(passes for passes, _, _ in wanted)
        size = min(max(total / (UNITS_EACH * workers), FEWEST), MOST)
        units: list[Unit] = []
        together: list[Share] = []  # small ones, until they are as much as a unit
        gathered = 0.0
        for passes, rows, piece in wanted:
            of = max(1, round(passes / size))
            shares = [Share(tuple(rows), piece.examples, part, of) for part in range(of)]
            if of > 1:
                units += [self._unit([share]) for share in shares]
                continue
            together += shares
            gathered += passes
            if gathered >= size:
                units.append(self._unit(together))
                together, gathered = [], 0.0
        return units + ([self._unit(together)] if together else [])

    def _passes(self, piece: Batch, rows: int) -> float:
        """About how many passes a piece takes."""
        if not self.plan.fold:
            return rows
        tokens = piece.rows * (piece.ids.shape[1] - self.plan.prefix(piece))
        return rows / max(1, self.plan.tokens // tokens)

    def _unit(self, shares: Sequence[Share]) -> Unit:
        asked = [
            {
                "head_sets": digest(self.sets[list(share.rows)].astype("<f4").tobytes()),
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
        name = f"{self.context['task']}, {self.context['metric']}: {which} under {sets} head sets"
        return Unit(
            digest(canonical({"context": self.context, "asked": asked})), name + part, tuple(shares)
        )
