"""Contrastive gates: keep one skill, forget another.

    loss = −mean(logp of what to keep)
           + mean(clamp(logp of what to forget − stopgrad(logp of what to keep), min = −5))
           − 0.1 · mean over heads(clamp(M, ±4))

Each prompt of one task is paired with one of the other, at random; logp is the mean over target
tokens. Forgetting stops to pay where a target is e⁻⁵ times as likely as the one to keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.heads import HeadLayout, HeadScores
from headcount.lab import Lab, lab_for
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import FitSettings, StagedFit, open_gates
from headcount.rankings.causal_gates.passes import GatedPasses, Laid, LoadedPrompts, lay_out
from headcount.rankings.causal_gates.schedule import Schedule, Stage
from headcount.rankings.causal_gates.training import Gradient
from headcount.tasks import Task

FORGOTTEN = -5.0


@dataclass(frozen=True, eq=False)
class ContrastiveGates:
    """Gates under which one skill stays and another goes: one row per seed."""

    layout: HeadLayout
    gates: Float[np.ndarray, "seeds heads"]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def ranking(self) -> HeadScores:
        """The heads that only the forgotten skill needs, first: 1 − G."""
        return HeadScores.averaged(self.layout, 1 - self.gates, "contrast", self.parameters)


def contrast(
    run: GatedPasses,
    prompts: Sequence[LoadedPrompts],
    orders: Sequence[Int[np.ndarray, "rows updates batch"]],
) -> Gradient:
    """The gradient of the loss but for its push, row by row: of the task to keep and the other."""
    batch = orders[0].shape[2]

    def gradient(logits: Tensor, update: int) -> Tensor:
        ours, theirs = (
            lay_out(some, order[:, update]) for some, order in zip(prompts, orders, strict=True)
        )
        # By slot, row · batch + place: that is how prompts of the two tasks are paired.
        known = torch.zeros(len(ours.slots), device=logits.device)
        of_ours, of_theirs = _slots(ours, logits), _slots(theirs, logits)

        def to_keep(values: Tensor, places: slice) -> Tensor:
            known[of_ours[places]] = values.detach()
            return -values

        def to_forget(values: Tensor, places: slice) -> Tensor:
            return (values - known[of_theirs[places]]).clamp(min=FORGOTTEN)

        total = run.gradient(logits, ours, to_keep)
        total += run.gradient(logits, theirs, to_forget)
        return total.div_(batch)

    return gradient


def _slots(laid: Laid, like: Tensor) -> Tensor:
    return torch.from_numpy(laid.slots).to(like.device, non_blocking=True)


@dataclass(frozen=True, eq=False)
class ContrastFit(StagedFit):
    """A request for contrastive gates; `task` is the one to keep."""

    forget: Task = field(kw_only=True)
    stages = (("contrast",),)
    gradient = staticmethod(contrast)

    @property
    def tasks(self) -> tuple[Task, ...]:
        """The task to keep and the one to forget."""
        return self.task, self.forget

    @cached_property
    def schedule(self) -> Schedule:
        """One stage, whose learning rate goes from 0.1 to 0.01."""
        stage = Stage(self.settings.updates, 0.1, 0.01)
        return Schedule(stage, stage, self.batch[0])

    def result(self, lab: Lab) -> ContrastiveGates:
        """The gates: what the lab's store holds is not fitted again."""
        gates = open_gates(self.fitted(lab).logits(self.rows(["contrast"])))
        batch, notes = self.batch
        facts: dict[str, Any] = {"keep": self.task.name, "forget": self.forget.name}
        facts |= {"updates": self.settings.updates, "batch": batch, "seeds": self.settings.seeds}
        if notes:
            facts["note"] = "; ".join(f"{name}: {note}" for name, note in notes.items())
        return ContrastiveGates(self.model.layout, gates, facts)


def fit_contrastive(
    model: Model, keep: Task, forget: Task, *, lab: Lab | None = None, **settings: Any
) -> ContrastiveGates:
    """Fit gates that keep the skill of one task and lose that of another, on their ranking parts.

    Settings are those of `FitSettings`; there is one stage.
    """
    return ContrastFit(model, keep, FitSettings(**settings), forget=forget).result(
        lab_for(lab, model)
    )
