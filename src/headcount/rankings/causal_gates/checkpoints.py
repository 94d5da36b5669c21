"""What is fitted so far, row by row and stage by stage, so that nothing is fitted twice."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.plan import MEASUREMENT
from headcount.models.model import Model
from headcount.rankings.causal_gates.schedule import Schedule, Stage
from headcount.rankings.causal_gates.training import Gradient, State, train
from headcount.store import Store
from headcount.system.files import digest
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Encoded, Task

FIT = 1  # raised when the fit's numbers change: stored gates of another are not reused
SIGNS = {"free": 0.0, "plus": 1.0, "minus": -1.0, "contrast": 1.0}  # of λ
FINISHED, PARTIAL, TICK = "gates", "gates-partial", "tick"  # the first two are kinds of documents

Event = tuple[str, list["Row"], Any]  # what a fit tells as it goes on


@dataclass(frozen=True)
class Row:
    """One fit of one stage: a seed, and the stage's name."""

    seed: int
    stage: str


def push_of(row: Row, schedule: Schedule) -> float:
    """λ of a row: what an open gate earns."""
    return SIGNS[row.stage] * schedule.push


@dataclass(eq=False)
class Rows:
    """How far the rows of a fit are; `tell` hears of everything that is new."""

    schedule: Schedule
    documents: dict[tuple[str, Row], Any] = field(default_factory=dict)
    tell: Callable[[Event], object] = lambda event: None

    def finished(self, row: Row) -> Float[np.ndarray, "heads"] | None:
        """The logits of a row that was fitted to its end."""
        document = self.documents.get((FINISHED, row))
        return None if document is None else np.asarray(document["logits"], dtype=np.float32)

    def pending(self, rows: Sequence[Row]) -> dict[int, list[Row]]:
        """The rows that are not finished, by the updates behind them, the furthest first."""
        groups: dict[int, list[Row]] = {}
        for row in rows:
            if self.finished(row) is None:
                partial = self.documents.get((PARTIAL, row))
                groups.setdefault(0 if partial is None else int(partial["update"]), []).append(row)
        return dict(sorted(groups.items(), reverse=True))

    def note(self, event: Event) -> None:
        """Take in what a fit tells, and pass it on."""
        kind, rows, values = event
        if kind != TICK:
            self.documents |= {(kind, row): value for row, value in zip(rows, values, strict=True)}
        self.tell(event)

    @contextmanager
    def shown(self, label: str, updates: int, *, show: bool) -> Iterator[None]:
        """Show on a bar how far so many updates are."""
        tell = self.tell
        with progress_bar(label, updates, show=show, unit="update") as bar:

            def hear(event: Event) -> None:
                if event[0] == TICK:
                    bar.update(event[2])
                tell(event)

            self.tell = hear
            yield

    def fit(
        self,
        rows: Sequence[Row],
        starts: Sequence[Float[np.ndarray, "heads"]],
        stage: Stage,
        gradient: Callable[[Sequence[Row]], Gradient],
        *,
        device: torch.device,
        where: str,
    ) -> Float[np.ndarray, "rows heads"]:
        """The logits of these rows at the end of a stage, from where they start or were left.

        Rows that are equally far run side by side; `gradient` is made for each such group.
        """
        begin = dict(zip(rows, starts, strict=True))
        for update, group in self.pending(rows).items():
            left = [self.documents[PARTIAL, row] for row in group] if update else []
            state = (
                State.from_json(left, device)
                if update
                else State.at([begin[row] for row in group], device)
            )
            self.note((TICK, group, update))
            train(
                state,
                stage,
                gradient(group),
                np.array([push_of(row, self.schedule) for row in group]),
                where=where,
                tick=lambda updates, group=group: self.note((TICK, group, updates)),  # type: ignore[misc]
                keep=partial(self._interrupted, group),
            )
            ends = [{"logits": document["logits"]} for document in state.to_json()]
            self.note((FINISHED, group, ends))
            self.note((PARTIAL, group, [None] * len(group)))
        return np.stack([logits for row in rows if (logits := self.finished(row)) is not None])

    def _interrupted(self, rows: list[Row], state: State) -> None:
        self.note((PARTIAL, rows, state.to_json()))


class Checkpoints:
    """Where the store keeps the rows of a fit: finished ones, and those left by an interruption."""

    def __init__(
        self,
        store: Store | None,
        model: Model,
        tasks: Sequence[tuple[Task, Sequence[Encoded]]],
        schedule: Schedule,
    ) -> None:
        self.store, self.schedule, self.heads = store, schedule, model.layout.total
        self.common: dict[str, Any] = {}
        if store is not None:  # a fingerprint of large weights takes its time
            examples = ["".join(one.key for one in encoded) for _, encoded in tasks]
            self.common = {
                "model": model.name,
                **model.identity,
                "task": " against ".join(task.name for task, _ in tasks),
                "task_version": [task.version for task, _ in tasks],
                "examples": [digest(keys) for keys in examples],
                "fit": FIT,
                "measurement": MEASUREMENT,
            }

    def load(self, rows: Sequence[Row]) -> Rows:
        """How far these rows are; from now on the store hears of all that is new."""
        loaded = Rows(self.schedule, tell=self.keep)
        for row in rows:
            for kind in (FINISHED, PARTIAL):
                document = self._get(kind, row)
                if document is not None:
                    loaded.documents[kind, row] = document
        return loaded

    def keep(self, event: Event) -> None:
        """Keep what a fit tells."""
        kind, rows, values = event
        if self.store is not None and kind != TICK:
            for row, value in zip(rows, values, strict=True):
                self.store.put_document(kind, self._context(row), value)

    def _get(self, kind: str, row: Row) -> dict[str, Any] | None:
        if self.store is None:
            return None
        document = self.store.get_document(kind, self._context(row))
        whole = isinstance(document, dict) and len(document.get("logits", ())) == self.heads
        return document if whole else None

    def _context(self, row: Row) -> dict[str, Any]:
        stage = "free" if row.stage in ("free", "contrast") else "pushed"
        facts = {**self.schedule.facts(stage), "push": push_of(row, self.schedule)}
        return {**self.common, "schedule": facts, "seed": row.seed, "stage": row.stage}
