"""Rankings: from a model and a task to one score per head, higher meaning more important.

One file per method. A method is a factory `method(model, task, *, …) -> HeadScores` in RANKINGS.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headcount.engine.evaluate import MEASUREMENT
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.rankings.attribution import attribution, integrated_gradients
from headcount.rankings.random import random_ranking
from headcount.registry import Registry
from headcount.store import Store
from headcount.tasks import Task, encode

__all__ = ["RANKINGS", "rank"]

RANKINGS: Registry[HeadScores] = Registry("ranking")
RANKINGS.register("random", "Random")(random_ranking)
RANKINGS.register("attribution", "Attribution")(attribution)
RANKINGS.register("integrated-gradients", "Integrated gradients")(integrated_gradients)


def rank(
    model: Model,
    task: Task,
    method: str | Callable[[Model, Task], HeadScores] | HeadScores = "attribution",
    *,
    store: Store | None = None,
    progress: bool = True,
    **settings: Any,
) -> HeadScores:
    """Score every head of `model` for `task`, on the task's ranking part.

    `method` is a name, a function of model and task, or ready scores. With a store, a ranking that
    it holds is not computed again.

    >>> from headcount import load_model, make_task, rank
    >>> model = load_model("smollm2-135m")
    >>> scores = rank(model, make_task("ioi", model.tokenizer, n=8), "attribution")
    >>> scores.values.shape
    (270,)
    """
    if not isinstance(method, str):
        if settings:
            raise HeadcountError(
                f"Settings ({', '.join(settings)}) go with the name of a ranking, not with ready "
                "scores or a function."
            )
        scores = method if isinstance(method, HeadScores) else method(model, task)
        return _fitting(scores, model)
    entry = RANKINGS[method]
    parameters = entry.bind(**settings)
    if "progress" in parameters:
        parameters["progress"] = progress
    context = _context(model, task, method, parameters)
    kept = None if store is None else store.get_document("ranking", context)
    if kept is not None:
        return HeadScores.from_json(kept)
    scores = entry.function(model, task, **parameters)
    provenance = {
        "model": model.name,
        "task": task.name,
        "task_settings": dict(task.parameters),
        **{name: value for name, value in parameters.items() if name != "progress"},
        **scores.parameters,
    }
    scores = replace(scores, method=method, parameters=provenance)
    if store is not None:
        store.put_document("ranking", context, scores.to_json())
    return scores


def _fitting(scores: HeadScores, model: Model) -> HeadScores:
    """Refuse scores of another model, whose numbers would name other heads here."""
    if scores.layout != model.layout:
        raise HeadcountError(
            f'The scores "{scores.method}" belong to another model: they are for '
            f"{scores.layout.total} heads in {len(scores.layout.counts)} layers, and {model.name} "
            f"has {model.layout.total} in {len(model.layout.counts)}."
        )
    return scores


def _context(
    model: Model, task: Task, method: str, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    """All that determines the scores."""
    keys = "".join(one.key for one in encode(task.part("ranking"), model.tokenizer))
    return {
        "model": model.name,
        **model.identity,
        "task": task.name,
        "task_version": task.version,
        "examples": hashlib.sha256(keys.encode()).hexdigest(),
        "method": method,
        **{name: value for name, value in parameters.items() if name != "progress"},
        "measurement": MEASUREMENT,
    }
