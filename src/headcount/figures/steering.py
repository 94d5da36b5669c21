"""Steering: a metric against the strength of what is added, with the controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.figures import style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOKS: tuple[dict[str, Any], ...] = (
    {"colour": style.BLUE, "marker": "o", "band": 0.2},
    {"colour": style.GREY, "marker": "^", "linestyle": "--", "band": 0.12},
    {"colour": style.ORANGE, "marker": "s", "linestyle": ":", "band": 0.12},
)


@style.for_print
def plot_steering(panels: Mapping[str, Mapping[str, Mapping[str, Points]]]) -> Figure:
    """Draw a row for each metric and a column for each task: metric → task → series → points."""
    tasks = list(dict.fromkeys(task for columns in panels.values() for task in columns))
    wide = style.PAGE if len(tasks) > 1 else style.COLUMN
    figure = style.new_figure(wide, 0.6 + 1.6 * len(panels))
    grid = figure.subplots(len(panels), len(tasks), squeeze=False, sharex=True, sharey="row")
    for row, (metric, columns) in zip(grid, panels.items(), strict=True):
        for axes, task in zip(row, tasks, strict=True):
            axes.axvline(0, color="#888888", linewidth=0.6)
            for (label, points), look in zip(columns[task].items(), LOOKS, strict=True):
                style.draw_line(axes, sorted(points), label=label, **look)
            axes.grid(True)
        row[0].set_ylabel(metric)
    for axes, task in zip(grid[0], tasks, strict=True):
        axes.set_title(task)
    for axes in grid[-1]:
        axes.set_xlabel("strength α")
    _legend(figure, grid[0])
    return figure


def _legend(figure: Figure, row: Sequence[Any]) -> None:
    handles, labels = row[0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=3)
