"""Contrastive gates: keep one skill, forget another.

    loss = −mean(logp of the target to keep)
           + mean(clamp(logp of the target to forget − stopgrad(logp to keep), min = −5))
           − 0.1 · mean over heads(clamp(M, ±4))

Each prompt of one task is randomly paired with a prompt of the other; logp is the mean over target
tokens. The loss falls no further once the target to forget is e⁻⁵ times as likely as the other.
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
from headcount.rankings.causal_gates.passes import GatedPasses, LaidOut, LoadedPrompts, lay_out
from headcount.rankings.causal_gates.schedule import Schedule, Stage
from headcount.rankings.causal_gates.training import Gradient
from headcount.tasks import Task

FORGOTTEN = -5.0  # the difference of log-probabilities at which a target counts as forgotten


@dataclass(frozen=True, eq=False)
class ContrastiveGates:
    """Gates that keep one skill and remove another: one row per seed."""

    layout: HeadLayout
    gates: Float[np.ndarray, "seeds heads"]
    parameters: Mapping[str, Any] = field(default_factory=dict)

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
        """The gates; those that the lab's store holds are not fitted again."""
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
    """Fit gates that keep the skill of one task and remove that of another, on the ranking splits.

    Settings are those of `FitSettings`; there is one stage.
    """
    return ContrastFit(model, keep, FitSettings(**settings), forget=forget).result(
        lab_for(lab, model)
    )
