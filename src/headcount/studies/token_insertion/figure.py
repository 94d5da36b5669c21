"""The figures of `token-insertion`: bars of accuracy beside attention profiles, and the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headcount.errors import counted
from headcount.figures.inserts import Bar, Profiles, plot_inserts, plot_sweep
from headcount.metrics import TextMetric
from headcount.stats import Interval
from headcount.studies.token_insertion.config import Config
from headcount.studies.token_insertion.grading import Outcome
from headcount.studies.token_insertion.internals import Internals
from headcount.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    outcomes: Sequence[Outcome], internals: Internals | None, config: Config, metric: TextMetric
) -> dict[str, Figure]:
    """The figure of all models on the first task, and the figure of the sweep.

    The profiles are those of the first model.
    """
    first, task = outcomes[0], config.tasks[0]
    title = f"Results on {TASKS[task].name if task in TASKS else task}"
    sampled = counted(config.runs, "sampled run")
    how = sampled if config.temperature else "greedy decoding"
    n = first.graded["w/o"].right.shape[1]
    note = f"n = {n} problems · {how} · {metric.name} · whiskers: 95 % intervals"
    paired = f"{note}, for bars with an insert those of the paired difference to w/o"
    bars = {outcome.model: _bars(outcome) for outcome in outcomes}
    profiles = None if internals is None else _profiles(internals, config.sinks)
    at_chance = [outcome.model for outcome in outcomes if outcome.at_chance]
    drawn = plot_inserts(bars, profiles, title=title, note=paired, at_chance=at_chance)
    figures = {"figure": drawn}
    if first.swept:
        lines: dict[str, list[tuple[str, Bar]]] = {}
        for graded in first.swept:
            insert, bar = graded.insert, _bar(first.accuracy(graded))
            label = str(insert.length) if config.sweep == "length" else insert.place
            lines.setdefault(graded.condition.series, []).append((label, bar))
        figures[f"sweep-{config.sweep}"] = plot_sweep(
            lines,
            label="Tokens inserted" if config.sweep == "length" else "Place of the insert",
            title=f"{title} · {first.model}",
            note=f"{note} of each accuracy",
        )
    return figures


def _bar(interval: Interval) -> Bar:
    return Bar(100 * interval.value, 100 * interval.low, 100 * interval.high)


def _bars(outcome: Outcome) -> dict[str, Bar]:
    """Accuracies in percent; whiskers of inserts are those of the paired difference to w/o."""
    base = outcome.accuracy(outcome.graded["w/o"])
    bars = {"w/o": _bar(base)}
    for series, graded in outcome.graded.items():
        if series != "w/o":
            change = outcome.difference(series)
            ends = (100 * (base.value + end) for end in (change.low, change.high))
            bars[series] = Bar(100 * float(graded.right.mean()), *ends)
    return bars


def _profiles(internals: Internals, sinks: int) -> Profiles:
    head = internals.head
    where = "" if head.layer == 0 else f", layer {head.layer}"
    count = internals.layout.counts[head.layer]
    why = f" (of {count}: the head that changes most)" if internals.chosen else ""
    full = {series: table[head.index].copy() for series, table in internals.drawn.items()}
    for values in full.values():
        values[:sinks] = np.nan  # an attention sink would dwarf all other tokens
    title = f"Average attention on Head {head.index}{where}{why}"
    return Profiles(title, full, internals.spans)
