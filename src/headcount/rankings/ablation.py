"""Rankings by intervention on a single head: ablate it alone, or restore it alone.

Each head is ablated while all others stay on, so later layers react to its absence. This is the
exact effect that first-order estimates such as attribution approximate; it takes one forward pass
per head and example, except for what the engine's fast paths save. `denoising` starts from the
other end: all heads are ablated, and one is restored. A head with a backup shows there, and not
when it is ablated alone; a head that works only together with others shows only when it is ablated.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.ablations import check_ablation
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.engine.measure.sweep import Sweep
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.models.groups import geometry_of
from headcount.models.model import Model
from headcount.rankings.ranking import Settings
from headcount.tasks import Task


def ablation(
    model: Model, task: Task, *, metric: str = "logprob", ablation: str = "zero", lab: Lab
) -> HeadScores:
    """The metric of the whole model minus the metric without the head, on the ranking split."""
    return _effects("ablation", single_heads(model, task, metric, ablation), lab)


def patching(
    model: Model, task: Task, *, metric: str = "logprob", ablation: str = "corrupted", lab: Lab
) -> HeadScores:
    """How much the metric falls when a head's output is replaced by that on the corrupted prompt.

    Only for tasks whose examples have corrupted prompts of equal length.
    """
    return _effects("patching", single_heads(model, task, metric, ablation), lab)


def denoising(
    model: Model, task: Task, *, metric: str = "logprob", ablation: str = "zero", lab: Lab
) -> HeadScores:
    """How much the metric rises when a head alone is restored in the model without any head."""
    sweep = single_heads(model, task, metric, ablation, restored=True)
    return _effects("denoising", sweep, lab, sign=-1)


def group_ablation(
    model: Model, task: Task, *, metric: str = "logprob", ablation: str = "zero", lab: Lab
) -> HeadScores:
    """The metric of the whole model minus the metric without a head's whole key/value group.

    All query heads of a group have its score. In multi-head attention a group is a single head.
    """
    sweep = whole_groups(model, task, metric, ablation)
    return _effects("group-ablation", sweep, lab, each=geometry_of(model).per_group)


def whole_groups(model: Model, task: Task, metric: str, ablation: str) -> Sweep:
    """The sweep over the whole model and the model without each of its key/value groups."""
    geometry = geometry_of(model)
    groups = np.eye(geometry.layers * geometry.groups, dtype=np.float32)
    gates = 1 - groups.repeat(geometry.per_group, axis=1)
    return _sweep(model, task, metric, ablation, np.ones_like(gates[0]), gates)


def single_heads(
    model: Model, task: Task, metric: str, ablation: str, *, restored: bool = False
) -> Sweep:
    """The sweep over the whole model and the model without each of its heads.

    With `restored`, it is over the model without any head and the model with each head alone.
    """
    gates = np.eye(model.layout.total, dtype=np.float32)
    gates = gates if restored else 1 - gates
    return _sweep(model, task, metric, ablation, np.full_like(gates[0], not restored), gates)


def _sweep(
    model: Model,
    task: Task,
    metric: str,
    ablation: str,
    start: Float[np.ndarray, "heads"],
    others: Float[np.ndarray, "sets heads"],
) -> Sweep:
    entries = [HeadSetEntry("start", start), *map(HeadSetEntry, range(len(others)), others)]
    table = HeadSets.build(model.layout, entries)
    return Sweep(model, task, get_metric(metric), table, "ranking", ablation)


def check_single_heads(settings: Settings) -> None:
    """Refuse an unknown metric or ablation."""
    get_metric(settings["metric"])
    check_ablation(settings["ablation"])


def count_single_heads(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the values that `ablation` and `patching` measure."""
    counter.sweep(single_heads(model, task, settings["metric"], settings["ablation"]))


def count_denoising(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the values that `denoising` measures."""
    how = settings["metric"], settings["ablation"]
    counter.sweep(single_heads(model, task, *how, restored=True))


def count_whole_groups(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the values that `group-ablation` measures."""
    counter.sweep(whole_groups(model, task, settings["metric"], settings["ablation"]))


def _effects(ranking: str, sweep: Sweep, lab: Lab, sign: int = 1, each: int = 1) -> HeadScores:
    """The effects of the sweep's head sets, each of which stands for `each` heads."""
    measured = lab.measure(sweep)
    start = measured.of("start")  # (1, examples)
    sets = range(sweep.model.layout.total // each)
    effects = np.concatenate([start - measured.of(number) for number in sets])
    samples = sign * effects.repeat(each, axis=0).T
    name = "whole" if sign > 0 else "none"
    facts = {name: float(start.mean()), "ablation_used": measured.ablation}
    return HeadScores.averaged(sweep.model.layout, samples, ranking, facts)
