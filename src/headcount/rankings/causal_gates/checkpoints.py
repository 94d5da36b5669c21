"""What is fitted so far, row by row and stage by stage, so that nothing is fitted twice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.plan import MEASUREMENT
from headcount.models.model import Model
from headcount.rankings.causal_gates.schedule import Row, Schedule
from headcount.rankings.causal_gates.training import Gradient, State, train
from headcount.rankings.ranking import examples_key
from headcount.store import Store
from headcount.tasks import Encoded, Task

FIT = 1  # raised when the fit's numbers change: stored gates of another are not reused
FINISHED, PARTIAL, TICK = "gates", "gates-partial", "tick"  # the first two are kinds of documents

Event = tuple[str, list[Row], Any]  # what a fit tells as it goes on


@dataclass(eq=False)
class Rows:
    """How far the rows of a fit are; `tell` hears of everything that is new."""

    schedule: Schedule
    documents: dict[tuple[str, Row], Any] = field(default_factory=dict)
    tell: Callable[[Event], object] = lambda event: None

    def logits(self, rows: Sequence[Row]) -> Float[np.ndarray, "rows heads"]:
        """The logits of rows that were all fitted to their end."""
        return np.array([self.documents[FINISHED, row]["logits"] for row in rows])

    def pending(self, rows: Sequence[Row]) -> dict[int, list[Row]]:
        """The rows that are not finished, by the updates behind them, the furthest first."""
        groups: dict[int, list[Row]] = {}
        for row in rows:
            if (FINISHED, row) not in self.documents:
                left = self.documents.get((PARTIAL, row))
                groups.setdefault(0 if left is None else int(left["update"]), []).append(row)
        return dict(sorted(groups.items(), reverse=True))

    def note(self, event: Event) -> None:
        """Take in what a fit tells, and pass it on."""
        kind, rows, values = event
        if kind != TICK:
            self.documents |= {(kind, row): value for row, value in zip(rows, values, strict=True)}
        self.tell(event)

    def fit(
        self,
        rows: Sequence[Row],
        starts: Sequence[Float[np.ndarray, "heads"]],
        gradient: Callable[[Sequence[Row]], Gradient],
        *,
        device: torch.device,
        where: str,
    ) -> Float[np.ndarray, "rows heads"]:
        """The logits of rows at the end of their stage, from where they start or were left.

        Rows that are equally far run side by side; `gradient` is made for each such group.
        """
        begin = dict(zip(rows, starts, strict=True))
        for update, group in self.pending(rows).items():
            if update:
                state = State.from_json([self.documents[PARTIAL, row] for row in group], device)
            else:
                state = State.at([begin[row] for row in group], device)
            self.note((TICK, group, update))
            train(
                state,
                self.schedule.stage(group[0]),
                gradient(group),
                np.array([self.schedule.strength(row) for row in group]),
                where=where,
                tick=lambda updates, group=group: self.note((TICK, group, updates)),  # type: ignore[misc]
                keep=lambda state, group=group: self.note((PARTIAL, group, state.to_json())),  # type: ignore[misc]
            )
            ends = [{"logits": document["logits"]} for document in state.to_json()]
            self.note((FINISHED, group, ends))
            self.note((PARTIAL, group, [None] * len(group)))
        return self.logits(rows).astype(np.float32)


def stored_rows(
    store: Store | None,
    model: Model,
    tasks: Sequence[tuple[Task, Sequence[Encoded]]],
    schedule: Schedule,
    rows: Sequence[Row],
) -> Rows:
    """How far the store has these rows, which it hears of from now on.

    It holds finished ones, and those that an interruption left.
    """
    if store is None:  # a fingerprint of large weights takes its time
        return Rows(schedule)
    common = {
        "model": model.name,
        **model.identity,
        "task": " against ".join(task.name for task, _ in tasks),
        "task_version": [task.version for task, _ in tasks],
        "examples": [examples_key(examples) for _, examples in tasks],
        "fit": FIT,
        "measurement": MEASUREMENT,
    }

    def context(row: Row) -> dict[str, Any]:
        return {**common, "schedule": schedule.facts(row), "seed": row.seed, "stage": row.stage}

    def keep(event: Event) -> None:
        kind, some, values = event
        for row, value in zip(some, values, strict=True):
            store.put_document(kind, context(row), value)

    documents = {}
    for row in rows:
        for kind in (FINISHED, PARTIAL):
            document = store.get_document(kind, context(row))
            if isinstance(document, dict) and len(document.get("logits", ())) == model.layout.total:
                documents[kind, row] = document
    return Rows(schedule, documents, tell=keep)
