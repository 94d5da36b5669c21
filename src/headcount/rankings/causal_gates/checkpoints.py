"""Where a fit of causal gates keeps its rows, stage by stage, so that nothing is fitted twice."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from headcount.tasks import Encoded, Task

FIT = 1  # raised when the fit's numbers change: stored gates of another are not reused
SIGNS = {"free": 0.0, "plus": 1.0, "minus": -1.0, "contrast": 1.0}  # of λ


@dataclass(frozen=True)
class Row:
    """One fit of one stage: a seed, and the stage's name."""

    seed: int
    stage: str


class Shelf:
    """Where a fit keeps its rows: finished ones, and those that an interruption left behind."""

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
            names = [task.name for task, _ in tasks]
            self.common = {
                "model": model.name,
                **model.identity,
                "task": " against ".join(names),
                "task_version": [task.version for task, _ in tasks],
                "examples": [_digest(encoded) for _, encoded in tasks],
                "fit": FIT,
                "measurement": MEASUREMENT,
            }

    def finished(self, row: Row) -> Float[np.ndarray, "heads"] | None:
        """The logits of a row that was fitted before."""
        found = self._get("gates", row)
        return None if found is None else np.asarray(found["logits"], dtype=np.float32)

    def partial(self, row: Row) -> dict[str, Any] | None:
        """The state in which an interruption left a row."""
        return self._get("gates-partial", row)

    def pending(self, rows: Sequence[Row]) -> dict[int, list[Row]]:
        """The rows that are not finished, by the updates behind them, the furthest first."""
        groups: dict[int, list[Row]] = {}
        for row in rows:
            if self.finished(row) is None:
                partial = self.partial(row)
                groups.setdefault(0 if partial is None else int(partial["update"]), []).append(row)
        return dict(sorted(groups.items(), reverse=True))

    def finish(self, rows: Sequence[Row], state: State) -> None:
        """Keep the logits of finished rows."""
        self._put("gates", rows, [{"logits": one["logits"]} for one in state.to_json()])
        self._put("gates-partial", rows, [None] * len(rows))

    def interrupt(self, rows: Sequence[Row], state: State) -> None:
        """Keep the state of rows that are not finished."""
        self._put("gates-partial", rows, state.to_json())

    def push(self, row: Row) -> float:
        """λ of a row: what an open gate earns."""
        return SIGNS[row.stage] * self.schedule.push

    def _get(self, kind: str, row: Row) -> dict[str, Any] | None:
        found = None if self.store is None else self.store.get_document(kind, self._context(row))
        known = isinstance(found, dict) and len(found.get("logits", ())) == self.heads
        return found if known else None

    def _put(self, kind: str, rows: Sequence[Row], values: Sequence[Any]) -> None:
        if self.store is not None:
            for row, value in zip(rows, values, strict=True):
                self.store.put_document(kind, self._context(row), value)

    def _context(self, row: Row) -> dict[str, Any]:
        stage = "free" if row.stage in ("free", "contrast") else "pushed"
        facts = {**self.schedule.facts(stage), "push": self.push(row)}
        return {**self.common, "schedule": facts, "seed": row.seed, "stage": row.stage}


def fit_rows(
    shelf: Shelf,
    rows: Sequence[Row],
    starts: Sequence[Float[np.ndarray, "heads"]],
    stage: Stage,
    gradient: Callable[[Sequence[Row]], Gradient],
    *,
    device: torch.device,
    where: str,
    tick: Callable[[int], object],
) -> Float[np.ndarray, "rows heads"]:
    """The logits of these rows at the end of a stage, from where they start or were left.

    Rows that are equally far run side by side; `gradient` is made for each such group.
    """
    found = {row: shelf.finished(row) for row in rows}
    begin = dict(zip(rows, starts, strict=True))
    for update, group in shelf.pending(rows).items():
        parts = [part for row in group if (part := shelf.partial(row)) is not None]
        state = (
            State.from_json(parts, device)
            if update
            else State.at([begin[row] for row in group], device)
        )
        tick(update)
        train(
            state,
            stage,
            gradient(group),
            np.array([shelf.push(row) for row in group]),
            where=where,
            tick=tick,
            keep=partial(shelf.interrupt, group),
        )
        shelf.finish(group, state)
        found |= dict(zip(group, state.logits.cpu().numpy(), strict=True))
    return np.stack([logits for logits in found.values() if logits is not None])


def _digest(encoded: Sequence[Encoded]) -> str:
    return hashlib.sha256("".join(one.key for one in encoded).encode()).hexdigest()
