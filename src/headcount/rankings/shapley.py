"""Shapley values: a head's effect when it joins others, averaged over random orders of joining.

Heads join a model without any head one by one, in a random order, and each is credited with what
the metric gains when it joins. The mean over all orders is the Shapley value: it counts a head with
its backups as well as without them, so backups share what they do, and so do the heads of a chain.
The scores of all heads sum to metric(all heads) − metric(no head).

Orders come in pairs, each with its reverse (antithetic sampling), which makes the error of the mean
smaller; a pair is one sample, so that intervals say how far more orders might move a score.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.ablations import check_ablation
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.engine.measure.sweep import Sweep
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.models.model import Model
from headcount.rankings.ranking import Settings
from headcount.tasks import Task


def shapley(
    model: Model,
    task: Task,
    *,
    metric: str = "logprob",
    ablation: str = "zero",
    pairs: int = 8,
    seed: int = 0,
    lab: Lab,
) -> HeadScores:
    """The gain in the metric when a head joins others, averaged over pairs of random orders."""
    samples = []
    with lab.remembering() as own:
        for sweep, orders in _sweeps(model, task, metric, ablation, pairs, seed):
            values = own.measure(sweep)
            gained = np.zeros(model.layout.total)
            for number, order in enumerate(orders):
                joined = [values.of((number, size)).mean() for size in range(len(order) + 1)]
                gained[order] += np.diff(joined) / len(orders)
            samples.append(gained)
    facts = {"ablation_used": values.ablation}
    return HeadScores.averaged(model.layout, np.array(samples), "shapley", facts)


def check_shapley(settings: Settings) -> None:
    """Refuse an unknown metric or ablation, and less than one pair of orders."""
    get_metric(settings["metric"])
    check_ablation(settings["ablation"])
    if settings["pairs"] < 1:
        raise HeadcountError(
            f"Shapley values need at least 1 pair of random orders, not {settings['pairs']}."
        )


def count_shapley(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the values of all orders: about two for each pair, head and example."""
    for sweep, _ in _sweeps(model, task, *settings.values()):
        counter.sweep(sweep)


def _sweeps(
    model: Model, task: Task, metric: str, ablation: str, pairs: int, seed: int
) -> Iterator[tuple[Sweep, Int[np.ndarray, "2 heads"]]]:
    """For each pair of orders, the sweep over the heads that have joined at each step."""
    total, chosen = model.layout.total, get_metric(metric)
    for number in range(pairs):
        order = np.random.default_rng([seed, number]).permutation(total)
        orders = np.stack([order, order[::-1]])
        entries = [
            HeadSetEntry((row, size), _joined(one[:size], total))
            for row, one in enumerate(orders)
            for size in range(total + 1)
        ]
        table = HeadSets.build(model.layout, entries)
        yield Sweep(model, task, chosen, table, "ranking", ablation), orders


def _joined(heads: Int[np.ndarray, "joined"], total: int) -> Float[np.ndarray, "heads"]:
    gates = np.zeros(total, dtype=np.float32)
    gates[heads] = 1
    return gates
