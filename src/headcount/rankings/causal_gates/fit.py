"""Fit causal gates: which heads a task needs, which are in its way, and which do not matter.

Each head's output is multiplied by a gate G = σ(M), and M is learned while the weights are frozen.

    loss = −mean over prompts(mean over target tokens of log p) − λ · mean over heads(clamp(M, ±4))

First with λ = 0; from there once with λ = +0.1, which pays for open gates (G⁺), and once with
λ = −0.1, which pays for shut ones (G⁻). Every seed, and either sign, is a row of its own, and all
rows that one process fits are fitted side by side.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import cycle, islice
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.executor import Emit, Unit
from headcount.engine.measure.forward import frozen, measuring
from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.models.forward_modes import synchronize
from headcount.models.model import Model
from headcount.rankings.causal_gates.checkpoints import FINISHED, Checkpoints, Row, Rows
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.prompts import Prompts, lay_out, load_prompts, passes
from headcount.rankings.causal_gates.result import CausalGates
from headcount.rankings.causal_gates.schedule import (
    Schedule,
    check_examples,
    first_logits,
    make_schedule,
    orders,
)
from headcount.rankings.causal_gates.training import State, fidelity
from headcount.store import Store
from headcount.system.files import canonical, digest
from headcount.tasks import Encoded, Task, encode

TIMED = 3  # passes, after a first one to warm up


@dataclass(frozen=True)
class RoleSettings:
    """What determines fitted gates.

    updates    of each of the two stages
    batch      prompts of an update
    seeds      fits from different starts, on batches in different orders
    variant    the schedule that the paper prints ("published") or that its code runs ("released")
    """

    updates: int = 500
    batch: int = 64
    seeds: int = 10
    variant: str = "published"


@dataclass(frozen=True)
class FitSettings(RoleSettings):
    """How gates are fitted.

    tokens     that run at once; as many as fit unless given
    compiled   whether blocks are compiled, which may be faster on a GPU
    """

    tokens: int | None = None
    compiled: bool = False


@dataclass(frozen=True, eq=False)
class GateFit:
    """A request for the causal gates of a model on a task, fitted on the task's ranking part."""

    model: Model
    task: Task
    settings: FitSettings = FitSettings()

    @cached_property
    def examples(self) -> list[Encoded]:
        """The examples of the ranking part."""
        return encode(self.task.part("ranking"), self.model.tokenizer)

    @cached_property
    def schedule(self) -> Schedule:
        """How long, how fast, and on how many prompts at a time; refuses what cannot be fitted."""
        chosen = self.settings
        schedule = make_schedule(chosen.variant, chosen.updates, chosen.batch)
        if chosen.seeds < 1:
            raise HeadcountError(f"A fit needs at least 1 seed, not {chosen.seeds}.")
        batch, _ = check_examples(len(self.examples), self.task.name, chosen.batch)
        return replace(schedule, batch=batch)

    def rows(self, stage: str) -> list[Row]:
        """The rows of the free or of the pushed stage."""
        stages = ("free",) if stage == "free" else ("plus", "minus")
        return [Row(seed, name) for name in stages for seed in range(self.settings.seeds)]

    def progress(self, store: Store | None) -> Rows:
        """How far the store has this fit."""
        checkpoints = Checkpoints(store, self.model, [(self.task, self.examples)], self.schedule)
        return checkpoints.load([*self.rows("free"), *self.rows("pushed")])

    def pending(self, rows: Rows) -> list[tuple[int, list[Row]]]:
        """The rows of both stages that run side by side, after the updates that are behind them."""
        stages = (self.rows("free"), self.rows("pushed"))
        return [group for stage in stages for group in rows.pending(stage).items()]

    def job(self, rows: Rows) -> FitJob:
        """The fit as executors take it, from where `rows` are."""
        where = f' of {self.model.name} on "{self.task.name}"'
        return FitJob(self.examples, self.settings, self.schedule, rows.documents, where)

    def tokens(self, rows: Rows) -> int:
        """How many tokens the updates that are still to be made run over."""
        lengths = np.array([example.length for example in self.examples])
        return sum(
            int(lengths[_orders(group, len(lengths), self.schedule)[:, done:]].sum())
            for done, group in self.pending(rows)
        )

    @property
    def key(self) -> tuple[Any, ...]:
        """What tells this fit from others in one process, without a fingerprint."""
        examples = digest("".join(example.key for example in self.examples))
        return "gates", id(self.model), examples, repr(self.settings)

    def known(self, store: Store | None) -> CausalGates | None:
        """The gates, if the store holds all of them."""
        rows = self.progress(store)
        return None if self.pending(rows) else self._gates(rows)

    def count(self, counter: Counter) -> None:
        """Tell the updates that are still to be made."""
        if counter.first(self.key):
            counter.passes(self.model, self.tokens(self.progress(counter.store)), "gradients")

    def result(self, lab: Lab) -> CausalGates:
        """The gates: what the lab's store holds is not fitted again."""
        rows = self.progress(lab.store)
        pending = self.pending(rows)
        units = self._units(sorted({row.seed for _, group in pending for row in group}), lab)
        updates = self.settings.updates * len(pending) * len(units)
        with rows.shown(f"{self.task.name}: gates", updates, show=lab.progress):
            if units:
                lab.run(
                    self.model,
                    self.job(rows),
                    units,
                    lambda unit, event: rows.note(event),
                    tokens=self.tokens(rows),
                    kind="gradients",
                )
        return self._gates(rows)

    def _gates(self, rows: Rows) -> CausalGates:
        """The gates of rows that are all finished."""
        logits = np.stack([rows.documents[FINISHED, row]["logits"] for row in self.rows("pushed")])
        gates = 1 / (1 + np.exp(-logits))  # (signs · seeds, heads)
        _, note = check_examples(len(self.examples), self.task.name, self.settings.batch)
        seeds = self.settings.seeds
        parameters = {
            "variant": self.settings.variant,
            "updates": self.settings.updates,
            "batch": self.schedule.batch,
            "seeds": seeds,
            "examples": len(self.examples),
            **({"note": note} if note else {}),
        }
        return CausalGates(self.model.layout, gates[:seeds], gates[seeds:], parameters)

    def _units(self, seeds: list[int], lab: Lab) -> list[Unit]:
        """All seeds side by side here; for workers, as many groups of them as there are workers."""
        workers = lab.executor.workers(self.model)
        facts = {
            "model": self.model.identity if workers else {},
            "fit": [str(part) for part in self.key[2:]],
        }
        groups = min(max(workers, 1), len(seeds))
        units = []
        for group in range(groups):
            some = seeds[group::groups]
            name = f"{self.task.name}, gates of {len(some)} seed{'s' * (len(some) > 1)}"
            units.append(Unit(digest(canonical({**facts, "seeds": some})), name, some))
        return units

    def seconds(self, store: Store | None) -> float:
        """About how long the fit will take here, by timing a few passes."""
        rows = self.progress(store)
        groups = [group for _, group in self.pending(rows)]
        if not groups:
            return 0.0
        largest = max(groups, key=len)
        order = _orders(largest, len(self.examples), self.schedule)[:, 0]
        return self.job(rows).seconds_per_token(self.model, order) * self.tokens(rows)


@dataclass(frozen=True, eq=False)
class FitJob:
    """A fit as plain data; the work of a unit is a list of seeds.

    `documents` are those of `Rows`: what is finished, and where an interruption left the others.
    """

    examples: Sequence[Encoded]
    settings: FitSettings
    schedule: Schedule
    documents: dict[tuple[str, Row], Any]
    where: str

    def ready(self, model: Model) -> Callable[[Sequence[int], Emit], None]:
        """Fit the gates of some seeds with a model."""
        prompts, run = self._prepared(model)

        def gradient(group: Sequence[Row]) -> Any:
            return fidelity(run, prompts, _orders(group, len(prompts), self.schedule))

        def fit(seeds: Sequence[int], emit: Emit) -> None:
            rows = Rows(self.schedule, dict(self.documents), tell=emit)
            options: dict[str, Any] = {"device": model.device, "where": self.where}
            free = [Row(seed, "free") for seed in seeds]
            pushed = [Row(seed, sign) for sign in ("plus", "minus") for seed in seeds]
            starts = [first_logits(seed, model.layout.total) for seed in seeds]
            with measuring(model), frozen(model):
                ends = rows.fit(free, starts, self.schedule.free, gradient, **options)
                rows.fit(pushed, [*ends, *ends], self.schedule.pushed, gradient, **options)

        return fit

    def _prepared(self, model: Model) -> tuple[Prompts, GatedPasses]:
        chosen = self.settings
        run = GatedPasses(model, tokens=chosen.tokens, compiled=chosen.compiled)
        return load_prompts(model, self.examples), run

    def seconds_per_token(self, model: Model, batches: np.ndarray) -> float:
        """How long a token takes in passes like those of a first update."""
        prompts, run = self._prepared(model)
        laid = lay_out(prompts, batches)
        starts = [first_logits(row, model.layout.total) for row in range(len(batches))]
        logits = State.at(starts, model.device).logits

        def value(values: torch.Tensor, _: slice) -> torch.Tensor:
            return -values

        with measuring(model), frozen(model):
            if model.device.type == "cuda":  # how much fits at once
                run.gradient(logits, prompts, laid, value)
            cut = cycle(passes(laid, run.tokens, prompts.mixed))
            run.one_pass(logits, prompts, laid, next(cut), value)
            synchronize(model.device)
            begin, done = time.perf_counter(), 0
            for some in islice(cut, TIMED):
                run.one_pass(logits, prompts, laid, some, value)
                done += int(laid.lengths[some.start : some.stop].sum())
            synchronize(model.device)
            return (time.perf_counter() - begin) / done


def fit_gates(model: Model, task: Task, *, lab: Lab | None = None, **settings: Any) -> CausalGates:
    """Fit the gates of every head of `model` to `task`, on the task's ranking part.

    Settings are those of `FitSettings`. With a store, every finished stage of every seed is kept,
    and an interrupted one every hundred updates: the same call again goes on from there, and more
    seeds later cost only themselves.

    >>> from headcount import load_model, make_task
    >>> model = load_model("smollm2-135m")
    >>> task = make_task("ioi", model.tokenizer, n=24)
    >>> gates = fit_gates(model, task, updates=1, batch=2, seeds=1)
    >>> gates.plus.shape
    (1, 270)
    """
    return GateFit(model, task, FitSettings(**settings)).result(lab or Lab())


def _orders(
    rows: Sequence[Row], examples: int, schedule: Schedule
) -> Int[np.ndarray, "rows updates batch"]:
    """Which examples each row sees; both signs of a seed see the same."""
    free = rows[0].stage == "free"
    stage = schedule.free if free else schedule.pushed
    seeds = [row.seed for row in rows]
    return orders(seeds, int(not free), examples, schedule.batch, stage.updates)
