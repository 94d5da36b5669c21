"""The training of causal gates: Adam on every row at once, as if each were alone.

What is fitted so far is kept, row by row and stage by stage, so that nothing is fitted twice.
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

FIT = 1  # raised when the fit's numbers change: stored gates of another are not reused
FINISHED, PARTIAL, TICK = "gates", "gates-partial", "tick"  # the first two are kinds of documents
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8  # Adam's usual ones
CHECK = 50  # updates between two looks for NaN: each look waits for the device
KEEP = 100  # updates between two checkpoints

# From logits M and the number of the update to the gradient, in M, of each row's mean log-
# probability term, negated.
Gradient = Callable[[Tensor, int], Tensor]
# What makes it from the prompts of each task, and from which of them each row sees in each update.
MakeGradient = Callable[[GatedPasses, Sequence[LoadedPrompts], Sequence[np.ndarray]], Gradient]
Event = tuple[str, list[Row], Any]  # what a fit tells as it goes on


@dataclass(eq=False)
class State:
    """Logits and Adam's averages after so many updates, in float32 whatever the model's dtype."""

    logits: Float[Tensor, "rows heads"]
    mean: Float[Tensor, "rows heads"]
    square: Float[Tensor, "rows heads"]
    update: int = 0

    @classmethod
    def at(cls, logits: Sequence[np.ndarray], device: torch.device) -> State:
        """The state before the first update, from one row of logits each."""
        start = torch.from_numpy(np.stack(logits).astype(np.float32)).to(device)
        return cls(start, torch.zeros_like(start), torch.zeros_like(start))

    def to_json(self) -> list[dict[str, Any]]:
        """One JSON object per row, which `from_json` reads back bit for bit."""
        found = [t.double().cpu().tolist() for t in (self.logits, self.mean, self.square)]
        return [
            {"update": self.update, "logits": logits, "mean": mean, "square": square}
            for logits, mean, square in zip(*found, strict=True)
        ]

    @classmethod
    def from_json(cls, rows: Sequence[dict[str, Any]], device: torch.device) -> State:
        """Read rows that were written after the same update."""
        logits, mean, square = (
            torch.tensor([row[name] for row in rows], dtype=torch.float32, device=device)
            for name in ("logits", "mean", "square")
        )
        return cls(logits, mean, square, int(rows[0]["update"]))

    def step(self, gradient: Float[Tensor, "rows heads"], stage: Stage) -> None:
        """One update of Adam, which treats every number alone; clipping treats every row alone."""
        if stage.clip is not None:
            norm = torch.linalg.vector_norm(gradient, dim=1, keepdim=True)
            gradient = gradient * (stage.clip / (norm + 1e-6)).clamp(max=1)
        update = self.update + 1
        mean = self.mean.lerp(gradient, 1 - BETA_1)
        square = (BETA_2 * self.square).addcmul_(gradient, gradient, value=1 - BETA_2)
        root = (square.sqrt() / (1 - BETA_2**update) ** 0.5).add_(EPSILON)
        rate = stage.rate(self.update) / (1 - BETA_1**update)
        logits = self.logits.addcdiv(mean, root, value=-rate)
        # All at once: whoever interrupts finds the state before or after an update.
        self.logits, self.mean, self.square, self.update = logits, mean, square, update


def push(
    logits: Float[Tensor, "rows heads"], strength: Float[Tensor, "rows"]
) -> Float[Tensor, "rows heads"]:
    """The gradient of −λ · mean over heads(clamp(M, −4, 4)), λ being a row's strength."""
    inside = (logits.abs() <= CLAMP).float()
    return -strength[:, None] * inside / logits.shape[1]


def improbability(logprobs: Tensor, _: slice) -> Tensor:
    """What a plain fit makes small, prompt by prompt."""
    return -logprobs


def fidelity(
    run: GatedPasses,
    prompts: Sequence[LoadedPrompts],
    orders: Sequence[Int[np.ndarray, "rows updates batch"]],
) -> Gradient:
    """The gradient of −mean over a row's batch(mean over target tokens of log p), of one task."""
    ((its, order),) = zip(prompts, orders, strict=True)

    def gradient(logits: Tensor, update: int) -> Tensor:
        # Divided after the sum: small numbers would be lost on their way back in half precision.
        total = run.gradient(logits, lay_out(its, order[:, update]), improbability)
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
    """Bring `state` to the end of the stage, in place.

    `tick` is told of each update, `keep` is given the state every now and then, and when somebody
    interrupts.
    """
    pushed = torch.tensor(strength, dtype=torch.float32, device=state.logits.device)
    try:
        while state.update < stage.updates:
            slope = gradient(state.logits, state.update)
            state.step(slope + push(state.logits, pushed), stage)
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
