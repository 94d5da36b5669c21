"""Contrastive gates: keep one skill, forget another.

    loss = −mean(logp of the target to keep)
           + mean(clamp(logp of the target to forget − stopgrad(logp to keep), min = −5))
           − 0.1 · mean over heads(clamp(M, ±4))

Each prompt of one task is randomly paired with a prompt of the other; logp is the mean over target
tokens. The loss falls no further once the target to forget is e⁻⁵ times as likely as the other.

The published fit starts from gates drawn between 0 and 1, under which a model hardly speaks, and
takes 500 updates at a rate from 0.1 to 0.01. The variant "short" is ours: it starts from gates that
are nearly open and takes larger steps, at a rate from 0.5 to 0.05, so that some thirty updates tell
something.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.engine.measure.cost import Counter
from headcount.errors import HeadcountError, unknown
from headcount.heads import HeadLayout, HeadScores
from headcount.lab import Lab, lab_for
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import FitSettings, StagedFit, open_gates
from headcount.rankings.causal_gates.passes import GatedPasses, LaidOut, LoadedPrompts, lay_out
from headcount.rankings.causal_gates.result import THRESHOLD
from headcount.rankings.causal_gates.schedule import Row, Schedule, Stage, first_logits
from headcount.rankings.causal_gates.training import Gradient, Rows
from headcount.rankings.ranking import Settings, examples_key
from headcount.registry import make_settings
from headcount.store import Store
from headcount.tasks import Task, make_task, task_factory

FORGOTTEN = -5.0  # the difference of log-probabilities at which a target counts as forgotten
VARIANTS = {"published": (0.1, 0.01), "short": (0.5, 0.05)}  # learning rates, first and last
OPEN, NOISE = 3.0, 0.5  # the first logits of the variant "short", and how far seeds differ
UNDECIDED, MOST_UNDECIDED = (0.1, 0.9), 0.1  # gates neither open nor shut, and how many may be so


@dataclass(frozen=True)
class ContrastSettings:
    """The settings of contrastive gates; the task that is ranked on is the one to keep.

    forget     the task whose skill is removed: its name, or a file of examples
    updates    the number of updates
    batch      the number of prompts of either task in an update
    seeds      the number of fits, each with its own order of batches
    variant    the schedule that the paper prints ("published"), or a "short" one from open gates
    """

    forget: str = ""
    updates: int = 500
    batch: int = 64
    seeds: int = 10
    variant: str = "published"

    def __post_init__(self) -> None:
        if self.variant not in VARIANTS:
            raise unknown("variant of contrastive gates", self.variant, VARIANTS)
        FitSettings(self.updates, self.batch, self.seeds)  # refuses numbers below 1


@dataclass(frozen=True)
class ContrastSchedule(Schedule):
    """One stage; with `short`, from gates that are nearly open."""

    short: bool = False

    def first(self, row: Row, heads: int) -> Float[np.ndarray, "heads"]:
        """The initial logits of a row."""
        if not self.short:
            return first_logits(row.seed, heads)
        noise = np.random.default_rng([row.seed, 3]).normal(size=heads) * NOISE
        return np.asarray(OPEN + noise, dtype=np.float32)

    def facts(self, row: Row) -> dict[str, Any]:
        """The parts of the schedule that determine the result of a row."""
        start = {"start": (OPEN, NOISE)} if self.short else {}
        return {**super().facts(row), **start}


@dataclass(frozen=True, eq=False)
class ContrastiveGates:
    """Gates that keep one skill and remove another: one row per seed."""

    layout: HeadLayout
    gates: Float[np.ndarray, "seeds heads"]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shut(self) -> Bool[np.ndarray, "seeds heads"]:
        """The heads whose gates are shut, by the threshold 0.5: the binary head set of each fit."""
        return np.asarray(self.gates < THRESHOLD)

    @property
    def undecided(self) -> float:
        """The share of gates that are neither open nor shut."""
        low, high = UNDECIDED
        return float(((self.gates > low) & (self.gates < high)).mean())

    def ranking(self) -> HeadScores:
        """Scores 1 − G: the heads that only the forgotten skill needs come first."""
        return HeadScores.averaged(self.layout, 1 - self.gates, "contrast", self.parameters)


def contrast(
    run: GatedPasses,
    prompts: Sequence[LoadedPrompts],
    orders: Sequence[Int[np.ndarray, "rows updates batch"]],
) -> Gradient:
    """The gradient of the loss without its last term; the first task is the one to keep."""
    batch = orders[0].shape[2]

    def gradient(logits: Tensor, update: int) -> Tensor:
        keep, forget = (
            lay_out(loaded, order[:, update]) for loaded, order in zip(prompts, orders, strict=True)
        )
        # Prompts of the two tasks are paired by slot (row · batch + index in the row's batch).
        kept = torch.zeros(len(keep.slots), device=logits.device)  # logp of the targets to keep
        keep_slots, forget_slots = _slots(keep, logits.device), _slots(forget, logits.device)

        def to_keep(logprobs: Tensor, places: slice) -> Tensor:
            kept[keep_slots[places]] = logprobs.detach()
            return -logprobs

        def to_forget(logprobs: Tensor, places: slice) -> Tensor:
            return (logprobs - kept[forget_slots[places]]).clamp(min=FORGOTTEN)

        total = run.gradient(logits, keep, to_keep)
        total += run.gradient(logits, forget, to_forget)
        return total.div_(batch)

    return gradient


def _slots(laid: LaidOut, device: torch.device) -> Tensor:
    return torch.from_numpy(laid.slots).to(device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class ContrastFit(StagedFit):
    """A request for contrastive gates; `task` is the task to keep."""

    forget: Task = field(kw_only=True)
    variant: str = field(kw_only=True, default="published")
    stages = (("contrast",),)
    gradient = staticmethod(contrast)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The task to keep and the one to forget."""
        return self.task, self.forget

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies this fit within one process."""
        return *super().key, self.variant

    @cached_property
    def schedule(self) -> Schedule:
        """One stage, with the learning rates of the variant."""
        stage = Stage(self.settings.updates, *VARIANTS[self.variant])
        short = self.variant == "short"
        return ContrastSchedule(stage, stage, self.batch[0], short=short)

    def checked(self) -> ContrastFit:
        """The same request; refuses one task on both sides, and tasks with too few examples."""
        if len(set(map(examples_key, self.examples))) == 1:
            raise HeadcountError(
                f"Contrastive gates keep one skill and forget another, and {self.task.name} is on "
                "both sides: name another task to forget."
            )
        _ = self.batch
        return self

    def known(self, store: Store | None) -> ContrastiveGates | None:
        """The gates, if the store holds all of them."""
        rows = self.progress(store)
        return None if self.pending(rows) else self._gates(rows)

    def result(self, lab: Lab) -> ContrastiveGates:
        """The gates; those that the lab's store holds are not fitted again."""
        return self._gates(self.fitted(lab))

    def _gates(self, rows: Rows) -> ContrastiveGates:
        gates = open_gates(rows.logits(self.rows(["contrast"])))
        batch, of_batch = self.batch
        facts: dict[str, Any] = {"keep": self.task.name, "forget": self.forget.name}
        facts |= {"updates": self.settings.updates, "batch": batch, "seeds": self.settings.seeds}
        facts |= {"variant": self.variant}
        found = ContrastiveGates(self.model.layout, gates, facts)
        notes = [f"{name}: {note}" for name, note in of_batch.items()]
        if found.undecided > MOST_UNDECIDED:
            notes.append(
                f"the gates did not converge: {found.undecided:.0%} of them lie between "
                f"{UNDECIDED[0]:g} and {UNDECIDED[1]:g}, neither open nor shut; more updates may "
                "decide them"
            )
        return replace(found, parameters={**facts, "note": "; ".join(notes)}) if notes else found


def fit_contrastive(
    model: Model, keep: Task, forget: Task, *, lab: Lab | None = None, **settings: Any
) -> ContrastiveGates:
    """Fit gates that keep the skill of one task and remove that of another, on the ranking splits.

    Settings are those of `ContrastSettings` but `forget`.
    """
    chosen = make_settings("fit_contrastive", ContrastSettings, settings)
    return _fit(model, keep, forget, chosen).result(lab_for(lab, model))


def contrast_ranking(
    model: Model, task: Task, settings: ContrastSettings, *, lab: Lab
) -> HeadScores:
    """Learned gates: how far a head's gate shuts to forget one task while this one is kept."""
    return _fit(model, task, _to_forget(model, settings), settings).result(lab).ranking()


def count_contrast(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the updates of the fit."""
    chosen = ContrastSettings(**settings)
    _fit(model, task, _to_forget(model, chosen), chosen).count(counter)


def contrast_context(model: Model, task: Task, settings: Settings) -> dict[str, Any]:
    """What else determines the scores: the prompts of the task to forget."""
    forget = _to_forget(model, ContrastSettings(**settings))
    examples = examples_key(model.encode(forget.split("ranking")))
    return {"forget": [forget.name, forget.version, examples]}


def check_contrast(settings: Settings) -> None:
    """Refuse a missing or unknown task to forget, before a model is loaded."""
    if not settings["forget"]:
        raise HeadcountError(
            "Contrastive gates need a task whose skill they remove: name it by the setting forget, "
            "as in --ranking-set forget=antonym-instruction."
        )
    task_factory(settings["forget"])


def _to_forget(model: Model, settings: ContrastSettings) -> Task:
    return make_task(settings.forget, model)


def _fit(model: Model, keep: Task, forget: Task, settings: ContrastSettings) -> ContrastFit:
    of_fit = FitSettings(settings.updates, settings.batch, settings.seeds)
    return ContrastFit(model, keep, of_fit, forget=forget, variant=settings.variant).checked()
