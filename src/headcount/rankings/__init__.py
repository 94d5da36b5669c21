"""Rankings: from a model and a task to one score per head, higher meaning more important.

One file per method. A method is a factory `method(model, task, *, …) -> HeadScores` in RANKINGS.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from headcount.engine.measure.forecast import forecast
from headcount.engine.measure.plan import MEASUREMENT
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.rankings.ablation import ablation, patching
from headcount.rankings.attribution import attribution, integrated_gradients
from headcount.rankings.causal_gates.rankings import facilitation, interference, irrelevance
from headcount.rankings.foresee import FITTED, MEASURED, foresee_ranking
from headcount.rankings.patterns import attention_induction, attention_previous, attention_retrieval
from headcount.rankings.probe import probe, probe_context
from headcount.rankings.random_draws import random_ranking
from headcount.registry import Registry
from headcount.store import Store
from headcount.tasks import Task, encode

__all__ = ["RANKINGS", "rank"]

RANKINGS: Registry[HeadScores] = Registry("ranking")
RANKINGS.register("random", "Random")(random_ranking)
RANKINGS.register("attribution", "Attribution")(attribution)
RANKINGS.register("integrated-gradients", "Integrated gradients")(integrated_gradients)
RANKINGS.register("ablation", "Ablation")(ablation)
RANKINGS.register("patching", "Patching")(patching)
RANKINGS.register("probe", "Probe")(probe)
RANKINGS.register("attention-induction", "Attention: induction")(attention_induction)
RANKINGS.register("attention-previous", "Attention: previous token")(attention_previous)
RANKINGS.register("attention-retrieval", "Attention: retrieval")(attention_retrieval)
RANKINGS.register("facilitation", "Facilitation")(facilitation)
RANKINGS.register("irrelevance", "Irrelevance")(irrelevance)
RANKINGS.register("interference", "Interference")(interference)

# What determines a ranking's scores besides model, task and settings.
_FURTHER: dict[str, Callable[[Model, Task, Mapping[str, Any]], dict[str, Any]]] = {
    "probe": probe_context
}
# How a ranking is computed, not what comes out: no part of its provenance.
_MEANS = ("progress", "store")


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
    means = {"progress": progress, "store": store}
    parameters |= {name: value for name, value in means.items() if name in parameters}
    context = _context(model, task, method, parameters)
    kept = None if store is None else store.get_document("ranking", context)
    if kept is not None:
        return HeadScores.from_json(kept)
    expected = forecast()
    if expected is not None and method not in (*MEASURED, *FITTED):
        scores = foresee_ranking(expected, model, task, method, parameters)
    else:
        scores = entry.function(model, task, **parameters)
    provenance = {
        "model": model.name,
        "task": task.name,
        "task_settings": dict(task.parameters),
        **{name: value for name, value in parameters.items() if name not in _MEANS},
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
    further = _FURTHER[method](model, task, parameters) if method in _FURTHER else {}
    keys = "".join(one.key for one in encode(task.part("ranking"), model.tokenizer))
    return {
        "model": model.name,
        **model.identity,
        "task": task.name,
        "task_version": task.version,
        "examples": hashlib.sha256(keys.encode()).hexdigest(),
        "method": method,
        **{name: value for name, value in parameters.items() if name not in _MEANS},
        "measurement": MEASUREMENT,
        **({"further": further} if further else {}),
    }
