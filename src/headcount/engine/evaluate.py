"""The evaluator: one value for every head set and example."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from headcount.engine.answers import answers, writing_context
from headcount.engine.batch import Batch, Padding, make_batches
from headcount.engine.decode import Scope, check_scope
from headcount.engine.forecast import forecast, placeholders
from headcount.engine.foreseen import foresee_beside, foresee_values
from headcount.engine.forward import check_finite, measuring, out_of_memory, too_large
from headcount.engine.plan import MEASUREMENT, SHORTEST_PREFIX, Plan, best_plan, default_tokens
from headcount.engine.rates import timing
from headcount.engine.runner import Runner, chunks
from headcount.engine.stand_in import StandIn, make_stand_in
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, check_gates
from headcount.metrics import Metric, get_metric
from headcount.metrics.text import TextMetric, Written
from headcount.models.model import Model
from headcount.progress import progress as progress_bar
from headcount.store import Store, StoreContext
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
    if store is not None:
        shelf = store.context(_context(model, task, chosen, filler), layout=model.layout)
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
        work = _Work(model, sets, examples, chosen, filler, way, values, missing, shelf)

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
        with (
            progress_bar(f"{task.name}: {chosen.key}", int(missing.sum()), show=progress) as bar,
            measuring(model),
            timing(model, ahead),
        ):
            try:
                for some, its in ((common, batches), (~common, batches_alone)):
                    work.rows = np.flatnonzero(some)
                    for batch in its:
                        work.run(batch, bar.update)
            finally:
                work.flush(bar.update)  # also when interrupted: what is measured is kept
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


class _Work:
    """The values of one call of `evaluate`, filled in batch by batch."""

    def __init__(
        self,
        model: Model,
        sets: Float[np.ndarray, "sets heads"],
        examples: Sequence[Encoded],
        metric: Metric,
        stand_in: StandIn,
        plan: Plan,
        values: Float[np.ndarray, "sets examples"],
        missing: Bool[np.ndarray, "sets examples"],
        shelf: StoreContext | None,
    ) -> None:
        self.model, self.sets, self.examples = model, sets, examples
        self.metric, self.stand_in, self.plan = metric, stand_in, plan
        self.values, self.missing, self.shelf = values, missing, shelf
        self.rows = np.arange(len(sets))  # the head sets that are run now
        self.starts = first_sites(sets, model.layout)
        self.most_tokens, self.most_rows = 5 * plan.tokens // 4, len(examples)  # batches as cut
        self.pending: list[tuple[list[int], list[int], torch.Tensor]] = []
        self.asked = time.monotonic()

    def run(self, batch: Batch, done: Callable[[int], object]) -> None:
        """Measure what is missing of a batch; where memory is short, in smaller pieces."""
        length = batch.ids.shape[1]
        fresh = length - self.plan.prefix(batch)  # of each row; a shared start runs once
        pieces = [batch]
        while pieces:
            piece = pieces.pop()
            rows = max(1, min(self.most_tokens // fresh, self.most_rows))
            if piece.rows > rows:  # memory was short before, perhaps in another batch
                starts = range(0, piece.rows, rows)
                pieces += [piece.part(start, start + rows) for start in reversed(starts)]
            elif not self._fits(piece, done):
                tried = min(self.plan.tokens, piece.ids.numel() * len(self.rows))
                half = piece.rows // 2
                if tried > length:
                    self.most_tokens = max(length, tried // 2)
                    self.plan = replace(self.plan, tokens=self.most_tokens)
                    pieces.append(piece)
                elif half:
                    self.most_rows = half
                    pieces.append(piece)
                else:
                    raise too_large(self.model, length)

    def _fits(self, batch: Batch, done: Callable[[int], object]) -> bool:
        """Measure a batch, or find that it does not fit into memory.

        What the failed pass had allocated is free again when this returns, not before: the error
        holds on to it.
        """
        try:
            self._run(batch, done)
            return True
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        if self.model.device.type == "cuda":
            torch.cuda.empty_cache()
        return False

    @torch.no_grad()
    def _run(self, batch: Batch, done: Callable[[int], object]) -> None:
        columns = list(batch.examples)
        missing = self.rows[self.missing[self.rows][:, columns].any(axis=1)]
        if not len(missing):
            return
        gated = [int(row) for row in missing if self.starts[row] < len(self.model.sites)]
        untouched = [int(row) for row in missing if self.starts[row] >= len(self.model.sites)]
        stand_ins = self.stand_in.provide(batch) if gated else None
        runner = Runner(self.model, batch, self.plan, stand_ins)
        if untouched or self.plan.cuts.trunk is not None or runner.prefix:
            whole = self.metric.function(runner.whole())
            self._finish(untouched, columns, whole.expand(len(untouched), -1), done)
        most = max(1, self.plan.tokens // runner.tokens) if self.plan.fold else 1
        starts = [self.starts[row] for row in gated]
        for places, start in chunks(starts, most, len(self.model.sites)):
            rows = [gated[place] for place in places]
            gates = torch.from_numpy(self.sets[rows])
            values = self.metric.function(runner.under(gates, start))
            self._finish(rows, columns, values.view(len(rows), -1), done)

    def _finish(
        self,
        rows: list[int],
        columns: list[int],
        values: Float[torch.Tensor, "sets examples"],
        done: Callable[[int], object],
    ) -> None:
        if rows:
            self.pending.append((rows, columns, values))
        # Asking a GPU for its results makes it wait for us: once a second is often enough.
        if self.model.device.type == "cpu" or time.monotonic() - self.asked > 1:
            self.flush(done)

    def flush(self, done: Callable[[int], object]) -> None:
        """Fetch, check, keep and store what has been measured."""
        pending, self.pending = self.pending, []
        for rows, columns, values in pending:
            check_finite(values, self.model)
            cells = np.ix_(rows, columns)
            new = int(self.missing[cells].sum())
            self.missing[cells] = False
            self.values[cells] = values.double().cpu().numpy()
            if self.shelf is not None:
                batch = [self.examples[column] for column in columns]
                keys, names = [one.key for one in batch], [one.example.id for one in batch]
                self.shelf.write(self.sets[rows], keys, names, self.values[cells])
            done(new)
        self.asked = time.monotonic()


def first_sites(sets: Float[np.ndarray, "sets heads"], layout: HeadLayout) -> list[int]:
    """The first site at which each head set gates a head; the number of sites where none does.

    >>> first_sites(np.array([[1, 1, 0.5], [1, 1, 1]]), HeadLayout((1, 2)))
    [1, 2]
    """
    gated = sets != 1
    starts = np.where(gated.any(axis=1), layout.layers[gated.argmax(axis=1)], len(layout.counts))
    return [int(start) for start in starts]


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
