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
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.engine.measure.forward import frozen, measuring
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.rankings.causal_gates.checkpoints import Checkpoints, Row
from headcount.rankings.causal_gates.fit import FitSettings
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.prompts import Laid, Prompts, lay_out, load_prompts
from headcount.rankings.causal_gates.schedule import (
    Schedule,
    Stage,
    check_examples,
    first_logits,
    orders,
)
from headcount.rankings.causal_gates.training import Gradient
from headcount.tasks import Task, encode

FORGOTTEN = -5.0
KEPT, FORGOT = 2, 3  # numbers of the two batch orders: not those of the stages of a plain fit


@dataclass(frozen=True, eq=False)
class ContrastiveGates:
    """Gates under which one skill stays and another goes: one row per seed."""

    layout: HeadLayout
    gates: Float[np.ndarray, "seeds heads"]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def ranking(self) -> HeadScores:
        """The heads that only the forgotten skill needs, first: 1 − G."""
        shut = 1 - self.gates
        return HeadScores(self.layout, shut.mean(0), "contrast", dict(self.parameters), shut)


def fit_contrastive(
    model: Model, keep: Task, forget: Task, *, lab: Lab | None = None, **settings: Any
) -> ContrastiveGates:
    """Fit gates that keep the skill of one task and lose that of another, on their ranking parts.

    Settings are those of `FitSettings`; there is one stage, whose learning rate goes from 0.1 to
    0.01.
    """
    lab, chosen = lab or Lab(), FitSettings(**settings)
    updates, batch, seeds = chosen.updates, chosen.batch, chosen.seeds
    if updates < 1 or batch < 1 or seeds < 1:
        raise HeadcountError(
            f"A fit needs at least 1 update, a batch of 1 and 1 seed, not {updates}, {batch} and "
            f"{seeds}."
        )
    encoded = [encode(task.part("ranking"), model.tokenizer) for task in (keep, forget)]
    notes = []
    for task, examples in zip((keep, forget), encoded, strict=True):
        batch, note = check_examples(len(examples), task.name, batch)
        notes += [f"{task.name}: {note}"] if note else []
    stage = Stage(updates, 0.1, 0.01)
    prompts = [load_prompts(model, examples) for examples in encoded]
    run = GatedPasses(model, tokens=chosen.tokens)

    def gradient(group: Sequence[Row]) -> Gradient:
        kept, forgot = (
            orders([row.seed for row in group], number, len(some), batch, updates)
            for number, some in zip((KEPT, FORGOT), prompts, strict=True)
        )
        return contrast(run, prompts[0], prompts[1], kept, forgot)

    names = list(zip((keep, forget), encoded, strict=True))
    checkpoints = Checkpoints(lab.store, model, names, Schedule(stage, stage, batch))
    numbered = [Row(seed, "contrast") for seed in range(seeds)]
    rows = checkpoints.load(numbered)
    starts = [first_logits(row.seed, model.layout.total) for row in numbered]
    where = f" of {model.name} that keep {keep.name} and forget {forget.name}"
    total = updates * len(rows.pending(numbered))
    shown = rows.shown("contrast: gates", total, show=lab.progress)
    with shown, measuring(model), frozen(model):
        logits = rows.fit(
            numbered, starts, stage, gradient, device=model.device, where=where
        ).astype(np.float64)
    facts = {"keep": keep.name, "forget": forget.name, "updates": updates, "batch": batch}
    facts |= {"seeds": seeds, **({"note": "; ".join(notes)} if notes else {})}
    return ContrastiveGates(model.layout, 1 / (1 + np.exp(-logits)), facts)


def contrast(
    run: GatedPasses,
    keep: Prompts,
    forget: Prompts,
    kept: Int[np.ndarray, "rows updates batch"],
    forgot: Int[np.ndarray, "rows updates batch"],
) -> Gradient:
    """The gradient of the loss but for its push, row by row."""
    batch = kept.shape[2]

    def gradient(logits: Tensor, update: int) -> Tensor:
        ours, theirs = lay_out(keep, kept[:, update]), lay_out(forget, forgot[:, update])
        # By slot, row · batch + place: that is how prompts of the two tasks are paired.
        known = torch.zeros(len(ours.slots), device=logits.device)
        of_ours, of_theirs = _slots(ours, logits), _slots(theirs, logits)

        def to_keep(values: Tensor, places: slice) -> Tensor:
            known[of_ours[places]] = values.detach()
            return -values

        def to_forget(values: Tensor, places: slice) -> Tensor:
            return (values - known[of_theirs[places]]).clamp(min=FORGOTTEN)

        total = run.gradient(logits, keep, ours, to_keep)
        total += run.gradient(logits, forget, theirs, to_forget)
        return total.div_(batch)

    return gradient


def _slots(laid: Laid, like: Tensor) -> Tensor:
    return torch.from_numpy(laid.slots).to(like.device, non_blocking=True)
