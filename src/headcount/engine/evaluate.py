"""The evaluator: one value for every head set and example."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from headcount.engine.batch import Batch, Padding, make_batches
from headcount.engine.forward import check_finite, measuring, score
from headcount.engine.stand_in import StandIn, make_stand_in
from headcount.heads import check_gates
from headcount.metrics import Metric, get_metric
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.progress import progress as progress_bar
from headcount.store import Store, StoreContext
from headcount.tasks import Encoded, Task, encode, require_foils
from headcount.tasks.task import Part

MEASUREMENT = 1  # raised when the engine's numbers change: stored values of another are not reused


@dataclass(frozen=True, eq=False)
class Values:
    """One value per head set and example, and what is needed to average them honestly."""

    values: Float[np.ndarray, "sets examples"]
    examples: tuple[str, ...]
    clusters: Int[np.ndarray, "examples"]
    metric: Metric
    stand_in: str

    def mean(self) -> Float[np.ndarray, "sets"]:
        """The mean over examples of each head set."""
        return np.asarray(self.values.mean(axis=1))


def default_tokens(model: Model) -> int:
    """How many tokens a batch holds unless told otherwise: more do not pay on such a device."""
    return 512 if model.device.type == "cpu" else 32_768


def evaluate(
    model: Model,
    task: Task,
    gates: Any,
    *,
    metric: str | Metric = "logprob",
    stand_in: str = "zero",
    part: Part = "test",
    store: Store | None = None,
    tokens: int | None = None,
    padding: Padding = "none",
    progress: bool = True,
) -> Values:
    """Measure `metric` on every example of one part of `task` under each head set.

    `gates` has one row per head set and one number per head: 1 leaves a head alone, 0 replaces it
    by its stand-in, any other number scales it. With a store, what it holds is not computed again.

    >>> from headcount import evaluate, load_model, make_task
    >>> model = load_model("smollm2-135m")
    >>> task = make_task("ioi", model.tokenizer, n=20)
    >>> values = evaluate(model, task, model.layout.gates(off=[]), metric="accuracy")
    >>> bool(values.mean() > 0.7)
    True
    """
    sets = check_gates(gates, model.layout)
    chosen = get_metric(metric)
    examples = encode(task.part(part), model.tokenizer)
    if chosen.needs_foils:
        require_foils(examples, f"the metric {chosen.key}")
    tokens = tokens or default_tokens(model)
    ranking = encode(task.part("ranking"), model.tokenizer) if stand_in == "mean" else []
    filler = make_stand_in(stand_in, model, examples, ranking, tokens)
    shelf = None
    values = np.full((len(sets), len(examples)), np.nan)
    if store is not None:
        shelf = store.context(_context(model, task, chosen, filler), layout=model.layout)
        values = shelf.read(sets, [one.key for one in examples])
    batches = make_batches(examples, tokens=tokens, device=model.device, padding=padding)
    missing = int(np.isnan(values).sum())
    with (
        progress_bar(f"{task.name}: {chosen.key}", missing, show=progress) as bar,
        measuring(model),
    ):
        for number, row in enumerate(sets):
            for batch in _unfinished(batches, values[number]):
                measured = _measure(model, batch, row, chosen, filler)
                values[number, batch.examples] = measured
                if shelf is not None:
                    _keep(shelf, row, [examples[e] for e in batch.examples], measured)
                bar.update(batch.rows)
    clusters = task.part(part).clusters
    names = tuple(one.example.id for one in examples)
    return Values(values, names, clusters, chosen, filler.description)


@torch.no_grad()
def _measure(
    model: Model,
    batch: Batch,
    gates: Float[np.ndarray, "heads"],
    metric: Metric,
    stand_in: StandIn,
) -> Float[np.ndarray, "rows"]:
    z0 = stand_in.provide(batch) if (gates != 1).any() else None
    with gating(model.module, model.sites, torch.from_numpy(gates)[None], stand_ins=z0):
        values = metric.function(score(model, batch))
    check_finite(values, model)
    return values.double().cpu().numpy()


def _unfinished(batches: Sequence[Batch], values: Float[np.ndarray, "examples"]) -> Iterator[Batch]:
    return (batch for batch in batches if np.isnan(values[list(batch.examples)]).any())


def _keep(
    shelf: StoreContext,
    gates: Float[np.ndarray, "heads"],
    examples: Sequence[Encoded],
    values: Float[np.ndarray, "rows"],
) -> None:
    keys = [one.key for one in examples]
    shelf.write(gates[None], keys, [one.example.id for one in examples], values[None])


def _context(model: Model, task: Task, metric: Metric, stand_in: StandIn) -> dict[str, Any]:
    """Everything but gates and examples that determines a value."""
    return {
        "model": model.name,
        **model.identity,
        "task": task.name,
        "task_version": task.version,
        "metric": metric.key,
        "stand_in": stand_in.identity,
        "measurement": MEASUREMENT,
    }
