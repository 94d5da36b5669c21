"""The figures of `token-insertion`: bars of accuracy beside attention profiles, and the sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headcount.figures.inserts import Bar, Profiles, plot_inserts, plot_sweep
from headcount.metrics import TextMetric
from headcount.stats import Interval
from headcount.studies.token_insertion.config import Config
from headcount.studies.token_insertion.grading import Outcome
from headcount.studies.token_insertion.look import Look
from headcount.tasks import TASKS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    outcomes: Sequence[Outcome], look: Look | None, config: Config, metric: TextMetric
) -> dict[str, Figure]:
    """The study's figure, of all models on the first task, and that of a sweep.

    Profiles are those of the first model.
    """
    first, task = outcomes[0], config.tasks[0]
    title = f"Results on {TASKS[task].name if task in TASKS else task}"
    how = f"{config.runs} sampled runs" if config.temperature else "greedy"
    n = first.graded["w/o"].right.shape[1]
    note = f"n = {n} · {how} · {metric.name} · whiskers: 95 % intervals"
    paired = f"{note}, of the paired difference to w/o where there is an insert"
    bars = {outcome.model: _bars(outcome) for outcome in outcomes}
    profiles = None if look is None else _profiles(look, config.sinks)
    figures = {"figure": plot_inserts(bars, profiles, title=title, note=paired)}
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
    """In percent; the whiskers of an insert are those of its difference to the bar without."""
    base = outcome.accuracy(outcome.graded["w/o"])
    bars = {"w/o": _bar(base)}
    for series, graded in outcome.graded.items():
        if series != "w/o":
            change = outcome.difference(series)
            ends = (100 * (base.value + end) for end in (change.low, change.high))
            bars[series] = Bar(100 * float(graded.right.mean()), *ends)
    return bars


def _profiles(look: Look, sinks: int) -> Profiles:
    head = look.head
    where = "" if head.layer == 0 else f", layer {head.layer}"
    count = look.layout.counts[head.layer]
    why = f" (of {count}: the one that changes most)" if look.chosen else ""
    full = {series: table[head.index].copy() for series, table in look.drawn.items()}
    for values in full.values():
        values[:sinks] = np.nan  # the first token would hide all others
    title = f"Average attention on Head {head.index}{where}{why}"
    return Profiles(title, full, look.spans)
