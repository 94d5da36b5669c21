"""Rankings by intervention: what the metric loses when one head is replaced, exactly.

Each head is replaced by its stand-in while all others run on, so later layers react to its absence.
One forward pass per head and example, less what the engine's plans save: the measure against which
first-order estimates such as attribution are held.
"""

from __future__ import annotations

import numpy as np

from headcount.engine.measure.evaluate import evaluate
from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.store import Store
from headcount.tasks import Task


def ablation(
    model: Model,
    task: Task,
    *,
    metric: str = "logprob",
    stand_in: str = "zero",
    store: Store | None = None,
    progress: bool = True,
) -> HeadScores:
    """The metric of the whole model less that without the head, averaged over the ranking part."""
    return _effects(model, task, "ablation", metric, stand_in, store, progress)


def patching(
    model: Model,
    task: Task,
    *,
    metric: str = "logprob",
    stand_in: str = "corrupted",
    store: Store | None = None,
    progress: bool = True,
) -> HeadScores:
    """What the metric loses when a head says what it says on the corrupted twin.

    Only for tasks whose examples have twins of equal length.
    """
    return _effects(model, task, "patching", metric, stand_in, store, progress)


def _effects(
    model: Model,
    task: Task,
    method: str,
    metric: str,
    stand_in: str,
    store: Store | None,
    progress: bool,
) -> HeadScores:
    total = model.layout.total
    gates = np.concatenate([np.ones((1, total)), 1 - np.eye(total)])  # the whole model first
    measured = evaluate(
        model,
        task,
        gates,
        metric=metric,
        stand_in=stand_in,
        part="ranking",
        store=store,
        progress=progress,
    )
    samples = (measured.values[:1] - measured.values[1:]).T  # (examples, heads)
    return HeadScores(
        model.layout,
        samples.mean(0),
        method,
        parameters={"whole": float(measured.values[0].mean()), "stand_in_used": measured.stand_in},
        samples=samples,
    )
