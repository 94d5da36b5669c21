"""A contest of rankings: quality beside cost, a row of panels for each task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.figures import style
from headcount.figures.style import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BETTER = {"CPR": "higher is better", "CMD": "lower is better", "masking area": "higher is better"}
BETTER["AUROC"] = "▲ keep, ▼ mask"
MARKS = {"keep": "^", "mask": "v"}


@style.for_print
def plot_contest(rows: Sequence[Row], areas: Sequence[str], recovery: Sequence[Row] = ()) -> Figure:
    """Draw each area with its interval, ranking by ranking, and on the right the passes it takes.

    The dashed line is that of the ranking without passes of its own, the random orders: the last.
    With `recovery`, a panel shows how far each ranking finds a planted circuit: ▲ to keep its
    heads, ▼ to mask them, filled where it finds exactly the right ones.
    """
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    most = max(sum(row["task"] == task for row in rows) for task in tasks)
    figure = style.new_figure(style.PAGE, 0.6 + len(tasks) * (0.55 + 0.17 * most))
    columns = (*areas, *["AUROC"] * bool(recovery), "passes")
    grid = figure.subplots(len(tasks), len(columns), squeeze=False, sharey="row", sharex="col")
    for number, task in enumerate(tasks):
        own = [row for row in rows if row["task"] == task]
        for axes, area in zip(grid[number], areas, strict=False):
            _area(axes, own, area)
        if recovery:
            names = [row["ranking"] for row in own]
            _recovered(grid[number][-2], names, [r for r in recovery if r["task"] == task])
        _cost(grid[number][-1], own)
        grid[number][0].set_ylabel(task)
        for column, area in enumerate(columns):
            if not number:
                grid[number][column].set_title(area)
            if number == len(tasks) - 1:
                words = BETTER.get(area, "over the ranking split")
                grid[number][column].set_xlabel(words)
    return figure


def _area(axes: Axes, rows: Sequence[Row], area: str) -> None:
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        colour = style.BLUE if math.isfinite(row["passes"]) else style.GREY
        value, low, high = (row[f"{area}{end}"] for end in ("", " low", " high"))
        if math.isfinite(low) and math.isfinite(high):
            axes.plot([low, high], [place, place], color=colour, linewidth=1.1)
        axes.plot([value], [place], "o", color=colour)
    axes.axvline(rows[-1][area], color=style.GREY, linestyle="--", linewidth=0.7)
    axes.set_yticks(places, [row["ranking"] for row in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.grid(True, axis="x")


def _recovered(axes: Axes, names: Sequence[str], rows: Sequence[Row]) -> None:
    """AUROC for both goals, a little above and below the ranking's line; filled where exact."""
    for row in rows:
        place = names.index(row["ranking"]) + (-0.17 if row["goal"] == "keep" else 0.17)
        fill = style.BLUE if row["exact"] else "white"
        axes.plot([row["AUROC"]], [place], MARKS[row["goal"]], color=style.BLUE, mfc=fill)
    axes.axvline(0.5, color=style.GREY, linestyle="--", linewidth=0.7)
    axes.set_xlim(-0.05, 1.05)
    axes.grid(True, axis="x")


def _cost(axes: Axes, rows: Sequence[Row]) -> None:
    for place, row in enumerate(rows):
        passes = row["passes"]
        if math.isfinite(passes) and passes > 0:
            axes.plot([passes], [place], "s", color=style.ORANGE)
    axes.set_xscale("log")
    axes.grid(True, axis="x")
