"""The training of causal gates: Adam on all rows of gates at once, each independent of the others.

Finished rows and checkpoints are stored row by row and stage by stage, so no row is fitted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.engine.measure.plan import MEASUREMENT
from headcount.errors import HeadcountError
from headcount.models.model import Model
from headcount.rankings.causal_gates.passes import GatedPasses, LoadedPrompts, lay_out
from headcount.rankings.causal_gates.schedule import CLAMP, Row, Schedule, Stage
from headcount.rankings.ranking import examples_key
from headcount.store import Store
from headcount.tasks import Encoded, Task

FIT = 1  # raise this when the numbers of a fit change, so that old gates are not reused
FINISHED, PARTIAL, TICK = "gates", "gates-partial", "tick"  # events; the store keeps the first two
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's defaults
CHECK = 50  # updates between two checks for NaN: each check waits for the device
KEEP = 100  # updates between two checkpoints

# From logits M and the number of the update to the gradient in M of each row's loss without its
# push (the λ term).
Gradient = Callable[[Tensor, int], Tensor]
# Makes the gradient function from the prompts of each task and the examples of each row and update.
MakeGradient = Callable[[GatedPasses, Sequence[LoadedPrompts], Sequence[np.ndarray]], Gradient]
Event = tuple[str, list[Row], Any]  # the kind of event, the rows that it concerns, and its data


@dataclass(eq=False)
class State:
    """Logits and Adam's averages after `update` updates, in float32 for any dtype of the model."""

    logits: Float[Tensor, "rows heads"]
    mean: Float[Tensor, "rows heads"]
    square: Float[Tensor, "rows heads"]
    update: int = 0

    @classmethod
    def at(cls, logits: Sequence[np.ndarray], device: torch.device) -> State:
        """The state before the first update, from the initial logits of each row."""
        start = torch.from_numpy(np.stack(logits).astype(np.float32)).to(device)
        return cls(start, torch.zeros_like(start), torch.zeros_like(start))

    def to_json(self) -> list[dict[str, Any]]:
        """One JSON object per row, which `from_json` reads back bit for bit."""
        tables = [t.double().cpu().tolist() for t in (self.logits, self.mean, self.square)]
        return [
            {"update": self.update, "logits": logits, "mean": mean, "square": square}
            for logits, mean, square in zip(*tables, strict=True)
        ]

    @classmethod
    def from_json(cls, rows: Sequence[dict[str, Any]], device: torch.device) -> State:
        """Read rows that were all written after the same update."""
        logits, mean, square = (
            torch.tensor([row[name] for row in rows], dtype=torch.float32, device=device)
            for name in ("logits", "mean", "square")
        )
        return cls(logits, mean, square, int(rows[0]["update"]))

    def step(self, gradient: Float[Tensor, "rows heads"], stage: Stage) -> None:
        """One update of Adam, which acts on each number separately; clipping acts on each row."""
        if stage.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient = gradient * (stage.clip / (norm + 1e-6)).clamp(max=1)
        update = self.update + 1
        mean = self.mean.lerp(gradient, 1 - BETA_1)
        square = (BETA_2 * self.square).addcmul_(gradient, gradient, value=1 - BETA_2)
        root = (square.sqrt() / (1 - BETA_2**update) ** 0.5).add_(EPSILON)
        rate = stage.rate(self.update) / (1 - BETA_1**update)
        logits = self.logits.addcdiv(mean, root, value=-rate)
        # One assignment, so that an interruption leaves the state before or after the update.
        self.logits, self.mean, self.square, self.update = logits, mean, square, update


def push(
    logits: Float[Tensor, "rows heads"], strength: Float[Tensor, "rows"]
) -> Float[Tensor, "rows heads"]:
    """The gradient of −λ · mean over heads(clamp(M, −4, 4)), λ being a row's strength."""
    inside = (logits.abs() <= CLAMP).float()
    return -strength[:, None] * inside / logits.shape[1]


def improbability(logprobs: Tensor, _: slice) -> Tensor:
    """The loss of each prompt in a fit of causal gates: the negative log-probability."""
    return -logprobs


def fidelity(
    run: GatedPasses,
    prompts: Sequence[LoadedPrompts],
    orders: Sequence[Int[np.ndarray, "rows updates batch"]],
) -> Gradient:
    """The gradient of −mean over a row's batch(mean over target tokens of log p), of one task."""
    ((loaded, order),) = zip(prompts, orders, strict=True)

    def gradient(logits: Tensor, update: int) -> Tensor:
        # Divide after the sum: in half precision, the backward pass would lose small numbers.
        total = run.gradient(logits, lay_out(loaded, order[:, update]), improbability)
        return total.div_(order.shape[2])

    return gradient


def train(
    state: State,
    stage: Stage,
    gradient: Gradient,
    strength: Float[np.ndarray, "rows"],
    *,
    where: str = "",
    tick: Callable[[int], object] = lambda _: None,
    keep: Callable[[State], object] | None = None,
) -> None:
    """Train `state` to the end of the stage, in place.

    `tick(1)` is called after each update; `keep(state)` at every checkpoint and when the user
    interrupts.
    """
    strengths = torch.tensor(strength, dtype=torch.float32, device=state.logits.device)
    try:
        while state.update < stage.updates:
            slope = gradient(state.logits, state.update)
            state.step(slope + push(state.logits, strengths), stage)
            tick(1)
            if state.update % CHECK == 0 or state.update == stage.updates:
                _require_finite(state, where)
            if keep is not None and state.update % KEEP == 0 and state.update < stage.updates:
                keep(state)
    except KeyboardInterrupt:
        if keep is not None and bool(state.logits.isfinite().all()):
            keep(state)
        raise


def _require_finite(state: State, where: str) -> None:
    if not bool(state.logits.isfinite().all()):
        raise HeadcountError(
            f"The gates{where} diverged: after {state.update} updates some are not numbers (NaN), "
            "because the model's logits are not finite under some gates; load the model in another "
            "dtype (float32 is safest), or check its weights."
        )


@dataclass(eq=False)
class Rows:
    """The finished rows and checkpoints of a fit; `tell` is called with every new event."""

    schedule: Schedule
    documents: dict[tuple[str, Row], Any] = field(default_factory=dict)
    tell: Callable[[Event], object] = lambda event: None

    def logits(self, rows: Sequence[Row]) -> Float[np.ndarray, "rows heads"]:
        """The logits of rows that are all finished."""
        return np.array([self.documents[FINISHED, row]["logits"] for row in rows])

    def pending(self, rows: Sequence[Row]) -> dict[int, list[Row]]:
        """The unfinished rows, grouped by the number of updates done, most updates first."""
        groups: dict[int, list[Row]] = {}
        for row in rows:
            if (FINISHED, row) not in self.documents:
                partial = self.documents.get((PARTIAL, row))
                groups.setdefault(0 if partial is None else int(partial["update"]), []).append(row)
        return dict(sorted(groups.items(), reverse=True))

    def note(self, event: Event) -> None:
        """Add the documents of an event, and pass the event to `tell`."""
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
        """The logits of rows at the end of their stage, trained from `starts` or their checkpoints.

        Rows with the same number of updates done run side by side; `gradient` makes the gradient
        function of such a group.
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
    """The finished rows and checkpoints that the store holds; new ones will be written to it."""
    if store is None:  # skip the fingerprint below, which takes time for large weights
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
        kind, rows, values = event
        for row, value in zip(rows, values, strict=True):
            store.put_document(kind, context(row), value)

    documents = {}
    for row in rows:
        for kind in (FINISHED, PARTIAL):
            document = store.get_document(kind, context(row))
            if isinstance(document, dict) and len(document.get("logits", ())) == model.layout.total:
                documents[kind, row] = document
    return Rows(schedule, documents, tell=keep)
