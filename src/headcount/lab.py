"""The lab: sweeps in, values out.

A `Lab` carries out requests: it looks values up in the store, lets its executor compute those that
are missing, and stores every result at once. It is an ordinary object, passed as an argument.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from headcount.engine.measure.cost import Cost, Counter, Request
from headcount.engine.measure.executor import Executor, Job, Local, Unit
from headcount.engine.measure.head_sets import HeadSets, OnHeadSets
from headcount.engine.measure.measuring import Measured, MeasuringJob, work_ahead
from headcount.engine.measure.plan import Plan, best_plan, default_tokens
from headcount.engine.measure.positions import read_positions
from headcount.engine.measure.rates import Kind, timing
from headcount.engine.measure.stored_table import StoredTable
from headcount.engine.measure.sweep import Sweep, Values
from headcount.engine.write.writing import Answers, Scope, Writing
from headcount.errors import HeadcountError
from headcount.metrics import Metric, get_metric
from headcount.metrics.chance import chance_of
from headcount.metrics.text import TextMetric, Written
from headcount.models.model import Model, check_model
from headcount.models.tensor_parallel import from_first, is_first
from headcount.store import Store
from headcount.system.progress import progress as progress_bar
from headcount.system.progress import watched
from headcount.tasks import Task
from headcount.tasks.task import Split

LOG = logging.getLogger("headcount.plan")  # prints every plan before it is carried out


@dataclass(eq=False)
class Lab:
    """Carries out sweeps.

    store      keeps measurements, so that none is made twice (default: the user's store; None keeps
               nothing)
    executor   computes what is missing: in this process, or on the workers of a cluster
    progress   whether progress bars are shown, in terminals and notebooks
    plan       how forward passes are batched (default: the best plan for the model)
    say        is called with messages about the work
    measured   how many values and texts were computed, without those from the store

    >>> from headcount import Lab, evaluate, load_model, make_task
    >>> model = load_model("smollm2-135m-q4")
    >>> task = make_task("ioi", model, n=8)
    >>> lab = Lab(store=None, progress=False)
    >>> values = evaluate(model, task, ["3.4"], lab=lab)
    >>> lab.measured["value"] == len(task.split("test"))
    True
    """

    store: Any = field(default_factory=Store.default)  # a `Store`, its path, or None
    executor: Executor = field(default_factory=Local, repr=False)
    progress: bool = True
    plan: Plan | None = None
    say: Callable[[str], object] = field(default=lambda text: None, repr=False)
    measured: dict[str, int] = field(default_factory=lambda: {"value": 0, "text": 0})

    def __post_init__(self) -> None:
        if isinstance(self.store, str | Path):
            self.store = Store.open(self.store)

    @contextmanager
    def remembering(self) -> Iterator[Lab]:
        """This lab or, if it has no store, a copy with a temporary store.

        So a value that several requests share is measured once.
        """
        if self.store is not None:
            yield self
            return
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite") as store:
            yield replace(self, store=store)

    def cost(self, requests: Iterable[Request]) -> Cost:
        """An upper bound of what these requests would measure; fast paths may be proven for it."""
        counter = Counter(self.store)
        for request in requests:
            request.count(counter)
        return counter.cost

    def measure(self, sweep: Sweep) -> Values:
        """The values of a sweep."""
        sweep.check()
        if isinstance(sweep.metric, TextMetric):
            return self._score_texts(sweep, sweep.metric)
        ablation = sweep.make_ablation(self._ablation_tokens(sweep.model))
        context = self._context(sweep.model, lambda: sweep.context(ablation.identity))
        stored = self._stored(context, sweep)
        table = from_first(sweep.model.module, stored.read())
        missing = np.isnan(table) & sweep.asked(sweep.head_sets)
        if missing.any():
            self._measure(sweep, context, stored, table, missing)
        else:
            LOG.info("  nothing to do: all %d values are known already", missing.size)
        where = "" if sweep.positions == "all" else f", only at the positions {sweep.positions}"
        values = sweep.answers.table(table)
        return self._values(sweep, values, f"{ablation.description}{where}")

    def _measure(
        self,
        sweep: Sweep,
        context: dict[str, Any],
        stored: StoredTable,
        table: np.ndarray,
        missing: np.ndarray,
    ) -> None:
        """Measure the values that are missing in the table, and store them."""
        model, examples = sweep.model, sweep.rows
        asked = sweep.asked(sweep.head_sets)
        gates, positions = sweep.head_sets.gates, sweep.positions
        work = work_ahead(gates, model.layout, examples, missing, positions)
        plan = self.plan or best_plan(model, work)
        if positions != "all":
            plan = plan.at_positions(model)
        if sweep.streams:
            plan = plan.streaming()
        metric: Any = sweep.metric
        job = MeasuringJob(
            gates,
            examples,
            sweep.ranking,
            metric,
            sweep.ablation,
            self._ablation_tokens(model),
            plan,
            positions,
        )
        parts = job.parts(model, asked, missing)
        if LOG.isEnabledFor(logging.INFO):
            known = int(asked.sum() - missing.sum())
            batches = [batch for _, batch in parts]
            LOG.info("%s", plan.explain(batches, int(missing.any(axis=1).sum()), known))
        units = job.units(context, missing, parts, self.executor.workers(model))
        label = f"{sweep.task.name}: {metric.key}"
        with progress_bar(label, int(missing.sum()), show=self.progress) as bar:

            def keep(unit: Unit, measured: Measured) -> None:
                rows, columns, values = measured
                cells = np.ix_(rows, columns)
                bar.update(int(missing[cells].sum()))
                self.measured["value"] += int(missing[cells].sum())
                missing[cells] = False
                table[cells] = values
                stored.write(rows, columns, table)

            kind: Kind = "compiled" if plan.compile else "passes"
            tokens = work.tokens - work.skipped if plan.late else work.tokens
            self.run(model, job, units, keep, tokens=tokens, kind=kind)
        if missing.any():  # an average over the other values would be wrong
            raise HeadcountError(
                f"The executor did not return {int(missing.sum())} values: run the same again; "
                "the values that it returned are in the store."
            )

    def write(self, writing: Writing) -> Answers:
        """The texts that a request asks for."""
        writing.check()
        model, head_sets = writing.model, writing.head_sets
        context = self._context(model, writing.context)
        stored = replace(self._stored(context, writing), texts=True)
        ends = self._stored({**context, "metric": "finished"}, writing)
        texts, finished = from_first(model.module, (stored.read(), ends.read()))
        missing = stored.unknown(texts)
        units = writing.units(context, missing) if missing.any() else []
        label = f"{writing.task.name}: answers"
        with progress_bar(label, int(missing.sum()), show=self.progress) as bar:

            def keep(unit: Unit, written: list[tuple[str, float]]) -> None:
                for cell, (text, whole) in zip(unit.work, written, strict=True):
                    texts[cell], finished[cell] = text, whole
                self.measured["text"] += len(written)
                rows, columns = (sorted(set(some)) for some in zip(*unit.work, strict=True))
                # `finished` before the text, so that a stored text always has its flag.
                if not np.isnan(finished[np.ix_(rows, columns)]).any():
                    ends.write(rows, columns, finished)
                stored.write(rows, columns, texts)
                bar.update(len(written))

            if units:
                tokens = writing.tokens(missing)
                self.run(model, writing.job(), units, keep, tokens=tokens, kind="writing")
        return Answers(texts, finished, head_sets, writing.names, writing.clusters)

    def _score_texts(self, sweep: Sweep, metric: TextMetric) -> Values:
        """Let the model answer under each head set and with all its heads; compare the texts."""
        model, table = sweep.model, sweep.head_sets
        answers = self.write(replace(sweep.writing(), head_sets=table.with_whole(model.layout)))
        stored = self._stored(self._context(model, lambda: sweep.context("zero")), sweep)
        values = from_first(model.module, stored.read())
        missing = np.flatnonzero(np.isnan(values).any(axis=1)).tolist()
        if missing:
            texts = [text for row in missing for text in answers.of(row)]
            times, examples = len(missing), [example.example for example in sweep.examples]
            whole = answers.of("whole") * times
            written = Written.of(examples * times, texts, whole, sweep.task.until)
            values[missing] = metric.score(written).reshape(times, len(examples))
            stored.write(missing, range(len(examples)), values)
        return self._values(sweep, values, "zero")

    @staticmethod
    def _values(sweep: Sweep, table: np.ndarray, ablation: str) -> Values:
        chance = chance_of(sweep.metric, sweep.task)
        about = sweep.names, sweep.clusters, sweep.metric, ablation, chance
        return Values(table, sweep.head_sets, *about)

    def document(
        self, kind: str, context: Callable[[], Mapping[str, Any]], make: Callable[[], Any]
    ) -> Any:
        """A JSON value, such as a ranking's scores: read from the store, or made and stored."""
        if self.store is None:
            return make()
        facts = context()
        known = self.store.get_document(kind, facts)
        if known is None:
            known = make()
            self.store.put_document(kind, facts, known)
        return known

    def run(
        self,
        model: Model,
        job: Job,
        units: list[Unit],
        keep: Callable[[Unit, Any], None],
        *,
        tokens: int = 0,
        kind: Kind = "passes",
    ) -> None:
        """Let the executor do the units of a job; their time here is recorded for forecasts."""
        here = not self.executor.workers(model)
        clock: AbstractContextManager[None] = timing(model, tokens, kind) if here else nullcontext()
        with clock:
            self.executor.run(model, job, units, keep)

    def _context(self, model: Model, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The facts that determine a value; only a store or workers need them and pay for them."""
        if self.store is None and not self.executor.workers(model):
            return {"task": ""}
        return make()

    def _stored(self, context: dict[str, Any], request: OnHeadSets) -> StoredTable:
        store, layout = self.store, request.model.layout
        keeps = store is not None and is_first(request.model.module)
        known = store.context(context, layout=layout) if keeps else None
        return StoredTable(known, request.head_sets.gates, request.rows)

    def _ablation_tokens(self, model: Model) -> int:
        """How many tokens run at once to compute ablations."""
        return default_tokens(model) if self.plan is None else self.plan.tokens


def check_asked(model: Any, task: Any) -> None:
    """Refuse a model or a task that is none, before anything is made of it."""
    check_model(model)
    if not isinstance(task, Task):
        raise HeadcountError(f"Give a task that make_task or Task made, not {task!r}.")


def lab_for(lab: Lab | None, *models: Model) -> Lab:
    """The lab that a caller gave, or a new one with the user's store.

    If the caller has changed a model's weights since the last call, the model gets a new key in the
    store. A model with offloaded weights has no key, so it is measured without the user's store. A
    model with forward hooks of the caller's own is measured without any store.
    """
    for model in models:
        model.notice_changes()
    if any(model.hooked for model in models):  # nobody knows what a user's hooks will do next time
        return replace(lab or Lab(store=None), store=None)
    if lab is not None:
        return lab
    lab = Lab()
    try:
        _ = [model.identity for model in models if lab.store is not None]
    except HeadcountError as error:
        LOG.info("  nothing is kept: %s", error)
        lab.store = None
    if lab.store is not None:
        _tell_once(lab.store.path)
    return lab


@cache
def _tell_once(path: Path) -> None:
    """Print where measurements are kept, once for each store, in terminals and notebooks."""
    if watched():
        text = f"headcount keeps measurements in {path} and reuses them"
        print(f"{text}; Lab(store=None) or HEADCOUNT_STORE=off keeps nothing.", file=sys.stderr)


def evaluate(
    model: Model,
    task: Task,
    heads: Any,
    *,
    metric: str | Metric | TextMetric = "accuracy",
    ablation: str = "zero",
    split: Split = "test",
    scope: Scope = "all",
    positions: str | slice = "all",
    lab: Lab | None = None,
) -> Values:
    """Measure `metric` on every example of one split of `task` under each head set.

    `heads` is one head set or several. One is a list of masked heads (names or `Head`s; [] is the
    whole model), a `HeadSet`, or gates: one number per head, 1 leaves a head alone, 0 replaces it
    by its ablation, any other number scales it. Several are a list of these, a table of gates, or a
    dict whose keys label them. Metrics of texts let the model write, by greedy decoding; then
    `scope="decode"` gates only passes over new tokens, and the prompt is read with all heads. For
    metrics of logits, `positions` are those at which gates act: "all", "last" (the last of the
    prompt), "answer" (those that predict the target), or a slice of the prompt's tokens.

    >>> from headcount import evaluate, load_model, make_task
    >>> model = load_model("smollm2-135m-q4")
    >>> task = make_task("ioi", model, n=20)
    >>> values = evaluate(model, task, {"whole": [], "masked": ["3.4", "11.2"]})
    >>> values.values.shape == (2, len(task.split("test")))
    True
    """
    check_asked(model, task)
    table = HeadSets.of(heads, model.layout)
    where = read_positions(positions)
    sweep = Sweep(model, task, get_metric(metric), table, split, ablation, scope, where)
    return lab_for(lab, model).measure(sweep)
