"""Fit causal gates: which heads a task needs, which are in its way, and which do not matter.

Each head's output is multiplied by a gate G = σ(M), and M is learned while the weights are frozen.

    loss = −mean over prompts(mean over target tokens of log p) − λ · mean over heads(clamp(M, ±4))

First with λ = 0; from there once with λ = +0.1, which pays for open gates (G⁺), and once with
λ = −0.1, which pays for shut ones (G⁻). Every seed, and either sign, is a row of its own, and all
rows are fitted side by side.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int

from headcount.engine.measure.forecast import forecast, placeholders, setting_up
from headcount.engine.measure.forward import measuring
from headcount.errors import HeadcountError
from headcount.models.forward_modes import synchronize
from headcount.models.model import Model
from headcount.rankings.attribution import _frozen
from headcount.rankings.causal_gates.checkpoints import Row, Shelf, fit_rows
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.prompts import Prompts, lay_out, load_prompts, passes
from headcount.rankings.causal_gates.result import CausalGates
from headcount.rankings.causal_gates.schedule import (
    Schedule,
    Stage,
    check_examples,
    first_logits,
    make_schedule,
    orders,
)
from headcount.rankings.causal_gates.training import State, fidelity
from headcount.store import Store
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Task, encode

TIMED = 3  # passes, after a first one to warm up


@dataclass(eq=False)
class _Fit:
    """All that a fit of one model on one task needs."""

    model: Model
    task: Task
    prompts: Prompts
    schedule: Schedule
    run: GatedPasses
    shelf: Shelf
    free: list[Row]
    pushed: list[Row]
    note: str  # on what is unlike what was asked

    def stage(self, rows: Sequence[Row]) -> Stage:
        """The stage that these rows are in."""
        return self.schedule.free if rows[0].stage == "free" else self.schedule.pushed

    def orders(self, rows: Sequence[Row]) -> Int[np.ndarray, "rows updates batch"]:
        """Which examples each row sees; both signs of a seed see the same."""
        return orders(
            [row.seed for row in rows],
            int(rows[0].stage != "free"),
            len(self.prompts),
            self.schedule.batch,
            self.stage(rows).updates,
        )

    def pending(self) -> list[tuple[int, list[Row]]]:
        """The rows of both stages that run side by side, and the updates behind them."""
        stages = (self.free, self.pushed)
        return [pair for rows in stages for pair in self.shelf.pending(rows).items()]

    def fit(
        self, rows: Sequence[Row], starts: Sequence[np.ndarray], bar: Any
    ) -> Float[np.ndarray, "rows heads"]:
        """The logits of the rows of one stage."""
        return fit_rows(
            self.shelf,
            rows,
            starts,
            self.stage(rows),
            lambda group: fidelity(self.run, self.prompts, self.orders(group)),
            device=self.model.device,
            where=f' of {self.model.name} on "{self.task.name}"',
            tick=bar.update,
        )


def fit_gates(
    model: Model,
    task: Task,
    *,
    updates: int = 500,
    batch: int = 64,
    seeds: int = 10,
    variant: str = "published",
    tokens: int | None = None,
    compiled: bool = False,
    store: Store | None = None,
    progress: bool = True,
) -> CausalGates:
    """Fit the gates of every head of `model` to `task`, on the task's ranking part.

    `variant` is the schedule that the paper prints ("published") or that its code runs
    ("released"). Up to `tokens` tokens run at once, as many as fit unless given; `compiled` blocks
    may be faster on a GPU. With a store, every finished stage of every seed is kept, and an
    interrupted one every hundred updates: the same call again goes on from there, and more seeds
    later cost only themselves.

    >>> from headcount import load_model, make_task
    >>> model = load_model("smollm2-135m")
    >>> task = make_task("ioi", model.tokenizer, n=24)
    >>> gates = fit_gates(model, task, updates=1, batch=2, seeds=1, progress=False)
    >>> gates.plus.shape
    (1, 270)
    """
    with setting_up():
        fit = _prepare(model, task, updates, batch, seeds, variant, tokens, compiled, store)
    if (expected := forecast()) is not None and fit.pending():
        expected.add(model, "pass", 0, _tokens_left(fit), kind="gradients")
        there = placeholders(2 * seeds, model.layout.total)
        return CausalGates(model.layout, there[:seeds], there[seeds:], {"updates": updates})
    total = updates * len(fit.pending())
    with (
        progress_bar(f"{task.name}: gates", total, show=progress, unit="update") as bar,
        measuring(model),
        _frozen(model),
    ):
        heads = model.layout.total
        free = fit.fit(fit.free, [first_logits(row.seed, heads) for row in fit.free], bar)
        end = fit.fit(fit.pushed, [*free, *free], bar)
    gates = 1 / (1 + np.exp(-end.astype(np.float64)))  # (signs · seeds, heads)
    parameters = {
        "variant": variant,
        "updates": updates,
        "batch": fit.schedule.batch,
        "seeds": seeds,
        "examples": len(fit.prompts),
        **({"note": fit.note} if fit.note else {}),
    }
    return CausalGates(model.layout, gates[:seeds], gates[seeds:], parameters)


def fit_time(
    model: Model,
    task: Task,
    *,
    updates: int = 500,
    batch: int = 64,
    seeds: int = 10,
    variant: str = "published",
    tokens: int | None = None,
    compiled: bool = False,
    store: Store | None = None,
) -> float:
    """About how many seconds `fit_gates` will take with these settings, by timing a few passes."""
    if forecast() is not None:  # which has its own way to tell
        return 0.0
    fit = _prepare(model, task, updates, batch, seeds, variant, tokens, compiled, store)
    groups = fit.pending()
    if not groups:
        return 0.0
    _, largest = max(groups, key=lambda pair: len(pair[1]))
    with measuring(model), _frozen(model):
        rate = _seconds_per_token(fit, fit.orders(largest)[:, 0])
    return rate * _tokens_left(fit)


def _tokens_left(fit: _Fit) -> int:
    """How many tokens the updates that are still to be made run over."""
    lengths = fit.prompts.lengths
    return sum(int(lengths[fit.orders(rows)[:, done:]].sum()) for done, rows in fit.pending())


def _seconds_per_token(fit: _Fit, batches: np.ndarray) -> float:
    """How long a token takes in passes like those of a first update."""
    laid = lay_out(fit.prompts, batches)
    starts = [first_logits(row, fit.model.layout.total) for row in range(len(batches))]
    logits = State.at(starts, fit.model.device).logits

    def value(values: torch.Tensor, _: slice) -> torch.Tensor:
        return -values

    def one_pass() -> Iterator[int]:
        while True:
            for one in passes(laid, fit.run.tokens, fit.prompts.mixed):
                fit.run.one_pass(logits, fit.prompts, laid, one, value)
                yield int(laid.lengths[one.start : one.stop].sum())

    if fit.model.device.type == "cuda":  # how much fits at once
        fit.run.gradient(logits, fit.prompts, laid, value)
    ran = one_pass()
    next(ran)
    synchronize(fit.model.device)
    begin = time.perf_counter()
    done = sum(next(ran) for _ in range(TIMED))
    synchronize(fit.model.device)
    return (time.perf_counter() - begin) / done


def _prepare(
    model: Model,
    task: Task,
    updates: int,
    batch: int,
    seeds: int,
    variant: str,
    tokens: int | None,
    compiled: bool,
    store: Store | None,
) -> _Fit:
    """All that a fit needs before its first update."""
    schedule = make_schedule(variant, updates, batch)
    if seeds < 1:
        raise HeadcountError(f"A fit needs at least 1 seed, not {seeds}.")
    encoded = encode(task.part("ranking"), model.tokenizer)
    batch, note = check_examples(len(encoded), task.name, batch)
    schedule = Schedule(schedule.free, schedule.pushed, batch)
    prompts = load_prompts(model, encoded)
    numbers = range(seeds)
    return _Fit(
        model,
        task,
        prompts,
        schedule,
        GatedPasses(model, tokens=tokens, compiled=compiled),
        Shelf(store, model, [(task, encoded)], schedule),
        free=[Row(seed, "free") for seed in numbers],
        pushed=[Row(seed, sign) for sign in ("plus", "minus") for seed in numbers],
        note=note,
    )
