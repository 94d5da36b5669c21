"""The evaluator: one value for every head set and example."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.engine.measure.ablations import StandIn, make_stand_in
from headcount.engine.measure.batch import Batch, Padding, make_batches
from headcount.engine.measure.forecast import forecast, placeholders
from headcount.engine.measure.foreseen import foresee_beside, foresee_values
from headcount.engine.measure.forward import measuring
from headcount.engine.measure.passes import Work
from headcount.engine.measure.plan import (
    MEASUREMENT,
    SHORTEST_PREFIX,
    Plan,
    best_plan,
    default_tokens,
)
from headcount.engine.measure.rates import timing
from headcount.engine.measure.shares import Measuring
from headcount.engine.measure.workers import workers
from headcount.engine.write.answers import answers, writing_context
from headcount.engine.write.decode import Scope, check_scope
from headcount.errors import HeadcountError
from headcount.heads import check_gates
from headcount.metrics import Metric, get_metric
from headcount.metrics.text import TextMetric, Written
from headcount.models.model import Model
from headcount.store import Store, StoreContext
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Encoded, Task, encode, require_foils
from headcount.tasks.task import Part

LOG = logging.getLogger("headcount.plan")  # every plan, in words, before it is carried out


@dataclass(frozen=True, eq=False)
class Values:
    """One value per head set and example, and what is needed to average them honestly."""

    values: Float[np.ndarray, "sets examples"]
    examples: tuple[str, ...]
    clusters: Int[np.ndarray, "examples"]
    metric: Metric | TextMetric
    stand_in: str

    def mean(self) -> Float[np.ndarray, "sets"]:
        """The mean over examples of each head set."""
        return np.asarray(self.values.mean(axis=1))


def evaluate(
    model: Model,
    task: Task,
    gates: Any,
    *,
    metric: str | Metric | TextMetric = "logprob",
    stand_in: str = "zero",
    part: Part = "test",
    scope: Scope = "all",
    only: Bool[np.ndarray, "sets examples"] | None = None,
    store: Store | None = None,
    plan: Plan | None = None,
    padding: Padding = "none",
    progress: bool = True,
) -> Values:
    """Measure `metric` on every example of one part of `task` under each head set.

    `gates` has one row per head set and one number per head: 1 leaves a head alone, 0 replaces it
    by its stand-in, any other number scales it. With a store, what it holds is not computed again.
    Where examples have head sets of their own, `only` says which set is for which example; all
    other values are then NaN unless the store knows them.
    Metrics of texts let the model write, greedily; `scope` "decode" then gates only what comes
    after the first new token.

    >>> from headcount import evaluate, load_model, make_task
    >>> model = load_model("smollm2-135m")
    >>> task = make_task("ioi", model.tokenizer, n=20)
    >>> values = evaluate(model, task, model.layout.gates(off=[]), metric="accuracy")
    >>> bool(values.mean() > 0.7)
    True
    """
    sets, place = np.unique(check_gates(gates, model.layout) + 0, axis=0, return_inverse=True)
    chosen = get_metric(metric)
    check_scope(scope)
    if isinstance(chosen, TextMetric):
        _require_plain(chosen, stand_in, padding, only)
        return _evaluate_texts(model, task, gates, chosen, part, scope, store, progress)
    if scope != "all":
        raise HeadcountError(
            f'Scope "{scope}" is about what a model writes, and {chosen.key} is read off the '
            "logits of given answers: choose a metric of texts, such as exact_match."
        )
    examples = encode(task.part(part), model.tokenizer)
    if chosen.needs_foils:
        require_foils(examples, f"the metric {chosen.key}")
    if padding != "none" and not model.pads(padding):
        raise HeadcountError(
            f"{model.name} gives other values when prompts are padded on the {padding}: leave "
            "padding at none."
        )
    ranking = encode(task.part("ranking"), model.tokenizer) if stand_in == "mean" else []
    at_once = default_tokens(model) if plan is None else plan.tokens
    filler = make_stand_in(stand_in, model, examples, ranking, at_once)
    shelf = None
    values = np.full((len(sets), len(examples)), np.nan)
    helpers = workers()
    context = {}
    if store is not None or helpers is not None:  # a fingerprint takes its time
        context = _context(model, task, chosen, filler)
    if store is not None:
        shelf = store.context(context, layout=model.layout)
        values = shelf.read(sets, [one.key for one in examples])
    asked = _asked(only, values.shape, place.reshape(-1))
    missing = np.isnan(values) & asked
    if missing.any():
        ahead = sum(examples[e].length for e in missing.nonzero()[1])
        if (expected := forecast()) is not None:
            foresee_beside(expected, model, sets, examples, asked, missing, filler, ranking)
            foresee_values(expected, model, sets, examples, asked, missing, values, shelf)
            names = tuple(one.example.id for one in examples)
            clusters = task.part(part).clusters
            return Values(values[place.reshape(-1)], names, clusters, chosen, filler.description)
        way = plan or best_plan(model, ahead)
        kept = _Kept(sets, examples, values, missing, shelf)
        work = Work(model, sets, chosen, filler, way, missing, kept.keep)

        def batches_of(places: list[int]) -> list[Batch]:
            return make_batches(
                examples,
                tokens=way.tokens,
                device=model.device,
                padding=padding,
                places=places,
                shared_once=SHORTEST_PREFIX if way.cuts.cache and padding == "none" else None,
            )

        # Head sets that all examples want run on many at once, those of single examples on each.
        common = asked.all(axis=1)
        batches = batches_of(np.flatnonzero(missing[common].any(axis=0)).tolist())
        alone = np.flatnonzero(missing[~common].any(axis=0)).tolist()
        batches_alone = [batch for place in alone for batch in batches_of([place])]
        _tell(way, batches + batches_alone, missing, int(asked.sum() - missing.sum()))
        parts = [(np.flatnonzero(common), batch) for batch in batches]
        parts += [(np.flatnonzero(~common), batch) for batch in batches_alone]
        with progress_bar(
            f"{task.name}: {chosen.key}", int(missing.sum()), show=progress
        ) as kept.bar:
            if helpers is not None:
                job = Measuring(
                    context, sets, examples, ranking, chosen, stand_in, at_once, way, padding
                )
                units = job.units(work, parts, helpers.count(model))
                for _, found in helpers.do(model, job, units):
                    for some in found:
                        kept.keep(*some)
            else:
                with measuring(model), timing(model, ahead):
                    try:
                        for work.rows, batch in parts:
                            work.run(batch)
                    finally:
                        work.flush()  # also when interrupted: what is measured is kept
    else:
        if (expected := forecast()) is not None:
            foresee_values(expected, model, sets, examples, asked, missing, values, shelf)
        LOG.info("  nothing to do: all %d values are known already", missing.size)
    clusters = task.part(part).clusters
    names = tuple(one.example.id for one in examples)
    return Values(values[place.reshape(-1)], names, clusters, chosen, filler.description)


def _asked(
    only: Bool[np.ndarray, "sets examples"] | None, shape: tuple[int, ...], place: np.ndarray
) -> Bool[np.ndarray, "different examples"]:
    """Which values are asked for, by different head sets."""
    if only is None:
        return np.ones(shape, dtype=bool)
    if only.shape != (len(place), shape[1]):
        raise HeadcountError(
            f"`only` needs one truth value for each of {len(place)} head sets and {shape[1]} "
            f"examples, not the shape {only.shape}."
        )
    asked = np.zeros(shape, dtype=bool)
    np.logical_or.at(asked, place, only)
    return asked


def _tell(
    plan: Plan, batches: Sequence[Batch], missing: Bool[np.ndarray, "sets examples"], known: int
) -> None:
    if LOG.isEnabledFor(logging.INFO):
        LOG.info("%s", plan.explain(batches, int(missing.any(axis=1).sum()), known))


def _require_plain(
    metric: TextMetric, stand_in: str, padding: Padding, only: np.ndarray | None
) -> None:
    if only is not None:
        raise HeadcountError(
            f"The metric {metric.key} is of written texts: measure it under every head set, "
            "without `only`."
        )
    if stand_in != "zero" or padding != "none":
        raise HeadcountError(
            f"The metric {metric.key} lets the model write, and absent heads then say nothing: "
            'leave the stand-in at "zero" and padding at "none".'
        )


def _evaluate_texts(
    model: Model,
    task: Task,
    gates: Any,
    metric: TextMetric,
    part: Part,
    scope: Scope,
    store: Store | None,
    progress: bool,
) -> Values:
    """Let the model answer under each head set and with all its heads, and compare the texts."""
    sets, place = np.unique(check_gates(gates, model.layout) + 0, axis=0, return_inverse=True)
    whole = np.ones_like(sets[:1])
    both = np.concatenate([whole, sets])
    written = answers(model, task, both, scope=scope, part=part, store=store, progress=progress)
    examples = encode(task.part(part), model.tokenizer)
    keys, names = [one.key for one in examples], [one.example.id for one in examples]
    values = np.full((len(sets), len(examples)), np.nan)
    shelf = None
    if store is not None:
        context = writing_context(model, task, scope)
        context |= {"metric": metric.key, "metric_identity": metric.identity()}
        shelf = store.context(context, layout=model.layout)
        values = shelf.read(sets, keys)
    missing = np.flatnonzero(np.isnan(values).any(axis=1))
    if len(missing):
        texts = written.texts[1:][missing]
        prompts = [one.example.prompt for one in examples]
        golds = [one.example.target.strip() for one in examples]
        times = len(missing)
        told = Written(
            texts.ravel().tolist(),
            golds * times,
            written.texts[0].tolist() * times,
            prompts * times,
        )
        found = placeholders(texts.size) if forecast() is not None else metric.function(told)
        values[missing] = np.asarray(found, dtype=np.float64).reshape(texts.shape)
        if shelf is not None:
            shelf.write(sets[missing], keys, names, values[missing])
    return Values(values[place.reshape(-1)], tuple(names), written.clusters, metric, "zero")


@dataclass
class _Kept:
    """The values of one call of `evaluate`, and where they go as they are found."""

    sets: Float[np.ndarray, "sets heads"]
    examples: Sequence[Encoded]
    values: Float[np.ndarray, "sets examples"]
    missing: Bool[np.ndarray, "sets examples"]
    shelf: StoreContext | None
    bar: Any = None

    def keep(
        self, rows: list[int], columns: list[int], values: Float[np.ndarray, "some others"]
    ) -> None:
        """Keep and store values of some head sets and examples."""
        cells = np.ix_(rows, columns)
        new = int(self.missing[cells].sum())
        self.missing[cells] = False
        self.values[cells] = values
        if self.shelf is not None:
            batch = [self.examples[column] for column in columns]
            keys, names = [one.key for one in batch], [one.example.id for one in batch]
            self.shelf.write(self.sets[rows], keys, names, self.values[cells])
        self.bar.update(new)


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
