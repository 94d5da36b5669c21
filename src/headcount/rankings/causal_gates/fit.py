"""Fit causal gates: which heads a task needs, which interfere with it, and which do not matter.

Each head's output is multiplied by a gate G = σ(M), and M is learned while the weights are frozen.

    loss = −mean over prompts(mean over target tokens of log p) − λ · mean over heads(clamp(M, ±4))

The first stage has λ = 0. The second stage starts from its result, once with λ = +0.1, which
rewards open gates (G⁺), and once with λ = −0.1, which rewards shut gates (G⁻). Each seed and sign
is a row of gates; a process fits all its rows side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import chain, cycle, islice
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.executor import Emit, Unit
from headcount.engine.measure.forward import frozen, measuring
from headcount.errors import HeadcountError, counted, unknown
from headcount.heads import HeadScores
from headcount.lab import Lab, lab_for
from headcount.models.forward_modes import synchronize
from headcount.models.model import Model
from headcount.rankings.causal_gates.passes import (
    GatedPasses,
    LoadedPrompts,
    lay_out,
    load_prompts,
    passes,
)
from headcount.rankings.causal_gates.result import CausalGates
from headcount.rankings.causal_gates.schedule import (
    VARIANTS,
    Row,
    Schedule,
    check_examples,
    first_logits,
    make_schedule,
)
from headcount.rankings.causal_gates.training import (
    TICK,
    Event,
    Gradient,
    MakeGradient,
    Rows,
    State,
    fidelity,
    improbability,
    stored_rows,
)
from headcount.rankings.prove_derivative import require_derivative
from headcount.rankings.ranking import Settings, examples_key
from headcount.registry import make_settings
from headcount.store import Store
from headcount.system.files import canonical, digest
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Encoded, Task
from headcount.tasks.task import quoted

TIMED = 3  # passes that are timed, after one warm-up pass
PAUSE = 0.3  # seconds after which an executor hears of the next pass, so that it can pause


MOST = {"updates": 100_000, "batch": 100_000, "seeds": 1_000}  # the order of all is made beforehand


@dataclass(frozen=True)
class RoleSettings:
    """The settings that determine fitted gates.

    updates    the number of updates in each of the two stages
    batch      the number of prompts in an update
    seeds      the number of fits, each with its own initial gates and order of batches
    variant    the schedule that the paper prints ("published") or that its code runs ("released")
    """

    updates: int = 500
    batch: int = 64
    seeds: int = 10
    variant: str = "published"

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown("variant of the fit", self.variant, VARIANTS)
        for name, most in MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise HeadcountError(
                    f"A fit of gates takes {name} from 1 to {most:,}, not {getattr(self, name):,}."
                )


@dataclass(frozen=True)
class FitSettings(RoleSettings):
    """All settings of a fit, including those that change only its speed.

    tokens     how many tokens run at once (default: as many as fit into memory)
    compiled   whether blocks are compiled, which may be faster on a GPU
    """

    tokens: int | None = None
    compiled: bool = False


@dataclass(frozen=True, eq=False)
class StagedFit:
    """A request for gates that are fitted in stages, on the ranking split of one or more tasks.

    `stages` names the rows that run side by side; each stage starts from the result of the last.
    """

    model: Model
    task: Task
    settings: FitSettings = FitSettings()
    stages: ClassVar[tuple[tuple[str, ...], ...]]
    gradient: ClassVar[Any]  # a MakeGradient
    target_alone: ClassVar[bool] = True  # further right answers would not count: they are refused

    @property
    def make_passes(self) -> Callable[..., GatedPasses]:
        """Makes the passes that compute gradients, for a model."""
        return GatedPasses

    @property
    def tasks(self) -> tuple[Task, ...]:
        """All tasks of the fit."""
        return (self.task,)

    @property
    def name(self) -> str:
        """The names of the tasks, joined."""
        return " against ".join(task.name for task in self.tasks)

    @cached_property
    def examples(self) -> list[list[Encoded]]:
        """The examples of each task's ranking split.

        Those with several right answers are refused where gates are learned for the target alone.
        """
        examples = [self.model.encode(task.split("ranking")) for task in self.tasks]
        for example in chain.from_iterable(examples):
            if example.also and self.target_alone:
                raise HeadcountError(
                    f"Example {quoted(example.example.id)} has several right answers, and gates "
                    "are learned for the target alone: choose another ranking, such as attribution."
                )
        return examples

    @cached_property
    def batch(self) -> tuple[int, dict[str, str]]:
        """The number of prompts in an update, and by task a note if it has fewer examples.

        Refuses a task with too few examples.
        """
        batch, notes = self.settings.batch, dict[str, str]()
        for task, examples in zip(self.tasks, self.examples, strict=True):
            batch, note = check_examples(len(examples), task.name, batch)
            notes |= {task.name: note} if note else {}
        return batch, notes

    @cached_property
    def schedule(self) -> Schedule:
        """The updates, learning rates and batch size of both stages."""
        return make_schedule(self.settings.variant, self.settings.updates, self.batch[0])

    def rows(self, stage: Sequence[str]) -> list[Row]:
        """The rows of a stage."""
        return [Row(seed, name) for name in stage for seed in range(self.settings.seeds)]

    def progress(self, store: Store | None) -> Rows:
        """The rows of this fit that the store holds, finished or in part."""
        rows = [row for stage in self.stages for row in self.rows(stage)]
        tasks = list(zip(self.tasks, self.examples, strict=True))
        return stored_rows(store, self.model, tasks, self.schedule, rows)

    def pending(self, rows: Rows) -> list[tuple[int, list[Row]]]:
        """The unfinished rows that run side by side, each group with its number of updates done."""
        return [group for stage in self.stages for group in rows.pending(self.rows(stage)).items()]

    @cached_property
    def lengths(self) -> list[Int[np.ndarray, "examples"]]:
        """How many tokens run for each example of each task."""
        return [np.array([example.length for example in task]) for task in self.examples]

    def tokens(self, rows: Rows) -> int:
        """How many tokens the remaining updates run over."""
        lengths, sizes = self.lengths, list(map(len, self.lengths))
        return sum(
            int(of_task[order[:, done:]].sum())
            for done, group in self.pending(rows)
            for of_task, order in zip(lengths, self.schedule.orders(group, sizes), strict=True)
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies this fit within one process, without computing the model's fingerprint."""
        return "gates", id(self.model), *map(examples_key, self.examples), repr(self.settings)

    def count(self, counter: Counter) -> None:
        """Count the remaining updates."""
        if counter.first(self.key):
            counter.passes(self.model, self.tokens(self.progress(counter.store)), "gradients")

    def job(self, rows: Rows) -> FitJob:
        """The fit as a job for an executor; it continues from `rows`."""
        where = f' of {self.model.name} on "{self.name}"'
        how = self.settings, self.schedule, self.stages, self.gradient
        return FitJob(self.examples, *how, rows.documents, where, self.make_passes)

    def fitted(self, lab: Lab) -> Rows:
        """All rows, fitted to the end; rows that the lab's store holds are not fitted again."""
        rows = self.progress(lab.store)
        pending = self.pending(rows)
        units = self._units(sorted({row.seed for _, group in pending for row in group}), lab)
        updates = self.settings.updates * len(pending) * len(units)
        with progress_bar(f"{self.name}: gates", updates, show=lab.progress, unit="update") as bar:

            def keep(unit: Unit, event: Event) -> None:
                if event[0] == TICK:
                    bar.update(event[2])
                else:
                    rows.note(event)

            if units:
                require_derivative(self.model)
                tokens = self.tokens(rows)
                lab.run(self.model, self.job(rows), units, keep, tokens=tokens, kind="gradients")
        return rows

    def _units(self, seeds: list[int], lab: Lab) -> list[Unit]:
        """One unit with all seeds for this process; with workers, one group of seeds for each."""
        workers = lab.executor.workers(self.model)
        facts = {
            "model": self.model.identity if workers else {},
            "fit": [self.stages, *self.key[2:]],
        }
        groups = min(max(workers, 1), len(seeds))
        units = []
        for group in range(groups):
            chosen = seeds[group::groups]
            name = f"{self.name}, gates of {counted(len(chosen), 'seed')}"
            units.append(Unit(digest(canonical({**facts, "seeds": chosen})), name, chosen))
        return units


class GateFit(StagedFit):
    """A request for the causal gates of a model on a task, fitted on the task's ranking split."""

    stages = (("free",), ("plus", "minus"))
    gradient = staticmethod(fidelity)

    def known(self, store: Store | None) -> CausalGates | None:
        """The gates, if the store holds all of them."""
        rows = self.progress(store)
        return None if self.pending(rows) else self._gates(rows)

    def result(self, lab: Lab) -> CausalGates:
        """The gates; those that the lab's store holds are not fitted again."""
        return self._gates(self.fitted(lab))

    def _gates(self, rows: Rows) -> CausalGates:
        (examples,) = self.examples
        plus, minus = (open_gates(rows.logits(self.rows([sign]))) for sign in self.stages[1])
        batch, notes = self.batch
        parameters = {
            "variant": self.settings.variant,
            "updates": self.settings.updates,
            "batch": batch,
            "seeds": self.settings.seeds,
            "examples": len(examples),
            **({"note": notes[self.task.name]} if notes else {}),
        }
        return CausalGates(self.model.layout, plus, minus, parameters)

    def seconds(self, store: Store | None) -> float:
        """About how many seconds the fit will take on this machine, by timing a few passes."""
        rows = self.progress(store)
        groups = [group for _, group in self.pending(rows)]
        if not groups:
            return 0.0
        (order,) = self.schedule.orders(max(groups, key=len), list(map(len, self.examples)))
        return self.job(rows).seconds_per_token(self.model, order[:, 0]) * self.tokens(rows)


def open_gates(logits: Float[np.ndarray, "rows heads"]) -> Float[np.ndarray, "rows heads"]:
    """How far the gates of these logits are open: G = σ(M)."""
    return np.asarray(1 / (1 + np.exp(-logits)))


@dataclass(frozen=True, eq=False)
class FitJob:
    """A fit as plain data; the work of a unit is a list of seeds.

    `documents` are those of `Rows`: finished rows, and checkpoints of interrupted ones.
    """

    examples: Sequence[Sequence[Encoded]]
    settings: FitSettings
    schedule: Schedule
    stages: Sequence[Sequence[str]]
    gradient: MakeGradient
    documents: dict[tuple[str, Row], Any]
    where: str
    make_passes: Callable[..., GatedPasses]

    def ready(self, model: Model) -> Callable[[Sequence[int], Emit], None]:
        """Make a function that fits the gates of some seeds with a model."""
        prompts, run = self._prepared(model)

        def gradient(group: Sequence[Row]) -> Gradient:
            orders = self.schedule.orders(group, list(map(len, prompts)))
            applied: Gradient = self.schedule.applied(group, self.gradient(run, prompts, orders))
            return applied

        def fit(seeds: Sequence[int], emit: Emit) -> None:
            rows = Rows(self.schedule, dict(self.documents), tell=emit)
            logits: Any = []
            told = time.monotonic()

            def before_pass() -> None:
                """Let an executor pause: an update may take a minute, and has many passes."""
                nonlocal told
                if time.monotonic() - told > PAUSE:
                    emit((TICK, [], 0))
                    told = time.monotonic()

            run.before_pass = before_pass
            with measuring(model), frozen(model):
                for stage in self.stages:
                    group = [Row(seed, name) for name in stage for seed in seeds]
                    first = [self.schedule.first(row, model.layout.total) for row in group]
                    starts = [*logits] * len(stage) or first
                    logits = rows.fit(
                        group, starts, gradient, device=model.device, where=self.where
                    )

        return fit

    def _prepared(self, model: Model) -> tuple[list[LoadedPrompts], GatedPasses]:
        settings = self.settings
        run = self.make_passes(model, tokens=settings.tokens, compiled=settings.compiled)
        return [load_prompts(model, examples) for examples in self.examples], run

    def seconds_per_token(self, model: Model, batches: Int[np.ndarray, "rows batch"]) -> float:
        """How many seconds a token takes in passes like those of the first update."""
        (prompts, *_), run = self._prepared(model)
        laid = lay_out(prompts, batches)
        starts = [first_logits(row, model.layout.total) for row in range(len(batches))]
        logits = State.at(starts, model.device).logits
        with measuring(model), frozen(model):
            if model.device.type == "cuda":  # measures how many tokens fit at once
                run.gradient(logits, laid, improbability)
            cut = cycle(passes(laid, run.tokens))
            run.one_pass(logits, laid, next(cut), improbability)
            synchronize(model.device)
            begin, done = time.perf_counter(), 0
            for piece in islice(cut, TIMED):
                run.one_pass(logits, laid, piece, improbability)
                done += int(laid.lengths[piece.places].sum())
            synchronize(model.device)
            return (time.perf_counter() - begin) / done


def fit_gates(model: Model, task: Task, *, lab: Lab | None = None, **settings: Any) -> CausalGates:
    """Fit the gates of every head of `model` to `task`, on the task's ranking split.

    Settings are those of `FitSettings`. The lab's store keeps every finished stage of every seed,
    and a checkpoint every hundred updates: the same call continues after an interruption, and a
    call with more seeds fits only the new ones.

    >>> from headcount import load_model, make_task
    >>> model = load_model("smollm2-135m-q4")
    >>> task = make_task("ioi", model.tokenizer, n=24)
    >>> gates = fit_gates(model, task, updates=1, batch=2, seeds=1)
    >>> gates.plus.shape
    (1, 270)
    """
    chosen = make_settings("fit_gates", FitSettings, settings)
    return GateFit(model, task, chosen).result(lab_for(lab, model))


def facilitation(model: Model, task: Task, settings: RoleSettings, *, lab: Lab) -> HeadScores:
    """Learned gates: how far a head's gate stays open when it is pushed shut."""
    return _role_fit(model, task, settings).result(lab).ranking("facilitation")


def irrelevance(model: Model, task: Task, settings: RoleSettings, *, lab: Lab) -> HeadScores:
    """Learned gates: how far a head's gate follows both pushes, open and shut."""
    return _role_fit(model, task, settings).result(lab).ranking("irrelevance")


def interference(model: Model, task: Task, settings: RoleSettings, *, lab: Lab) -> HeadScores:
    """Learned gates: how far a head's gate stays shut when it is pushed open."""
    return _role_fit(model, task, settings).result(lab).ranking("interference")


def count_gates(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the updates of the fit from which a ranking by role is made."""
    GateFit(model, task, FitSettings(**settings)).count(counter)


def _role_fit(model: Model, task: Task, settings: RoleSettings) -> GateFit:
    return GateFit(model, task, FitSettings(**asdict(settings)))
