"""Head roles: the effect of ablating heads in the order of each role, and a map of the roles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.figures import style
from headcount.figures.head_map import by_layer, whole_ticks
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@style.figure_of_texts
def plot_roles(
    panels: Mapping[tuple[str, str], Mapping[str, Points]],
    *,
    note: str = "",
    at_chance: Collection[tuple[str, str]] = (),
) -> Figure:
    """Draw the published grid: one row per task, one column per model, one line per role.

    `panels` maps task and model to the line of each role. The panels of a row share their y axis.
    Those `at_chance`, also by task and model, are marked.
    """
    rows = list(dict.fromkeys(row for row, _ in panels))
    columns = list(dict.fromkeys(column for _, column in panels))
    size = (max(3.0 * len(columns) + 1.2, 4.8), 2.0 * len(rows) + 1.1)
    figure = style.new_figure(*size)
    grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey="row")
    for (i, j), axes in np.ndenumerate(grid):
        axes.axhline(0, color="#888888", linewidth=0.7)
        for role, points in panels.get((rows[i], columns[j]), {}).items():
            line_style: dict[str, Any] = {"linewidth": 1.6, "label": role.capitalize()}
            style.draw_line(axes, points, style.ROLES[role], band=0.18, **line_style)
        axes.grid(alpha=0.25)
        axes.margins(x=0.02)
    for axes, column in zip(grid[0], columns, strict=True):
        axes.set_title(fill(column, 34), fontsize=10)
    for row, column in at_chance:
        style.mark_chance(grid[rows.index(row), columns.index(column)])
    for axes in grid[-1]:
        axes.set_xlabel("Number of Ablated Heads")
        axes.xaxis.get_major_locator().set_params(integer=True)
    for axes, row in zip(grid[:, -1], rows, strict=True):
        axes.yaxis.set_label_position("right")
        axes.set_ylabel(row, rotation=270, va="bottom", fontsize=10)
    figure.supylabel("Δ Log Probability of Target Response", fontsize=10)
    how: dict[str, Any] = {"title": "Metric", "ncols": 3, "fontsize": 9, "handlelength": 1.6}
    style.legend_above(figure, *grid[0, 0].get_legend_handles_labels(), **how)
    if at_chance:
        note = f"{note} · {style.AT_CHANCE}".removeprefix(" · ")
    if note:  # break it into lines of about equal length
        lines = ceil(len(note) / int(17 * size[0]))
        style.small_print(figure, note, width=ceil(len(note) / lines) + 6, size=6.5)
    return figure


@style.figure_of_texts
def plot_role_maps(
    maps: Mapping[tuple[str, str], np.ndarray], counts: Mapping[str, Sequence[int]]
) -> Figure:
    """Draw maps of layer × head, coloured by role; undecided heads are grey.

    `maps` maps task and model to the role of each head; `counts` has the heads per layer of each
    model. The figure has one row per model and one column per task.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    colours = {**style.ROLES, "undecided": style.UNDECIDED}
    order = list(colours)
    shades = ListedColormap(list(colours.values()))
    columns = list(dict.fromkeys(task for task, _ in maps))
    rows = list(dict.fromkeys(model for _, model in maps))
    heights = [max(1.2, 0.13 * len(counts[row])) for row in rows]
    size = (max(2.2 * len(columns) + 0.8, 4.6), sum(heights) + 0.7 * len(rows) + 0.6)
    figure = style.new_figure(*size)
    how: dict[str, Any] = {"sharey": "row", "height_ratios": heights, "squeeze": False}
    grid = figure.subplots(len(rows), len(columns), **how)
    for (i, j), axes in np.ndenumerate(grid):
        row, column = rows[i], columns[j]
        picture = by_layer([order.index(str(name)) for name in maps[column, row]], counts[row])
        shown: dict[str, Any] = {"cmap": shades, "vmin": -0.5, "vmax": 3.5}
        axes.imshow(picture, aspect="auto", interpolation="nearest", **shown)
        title = column if len(rows) == 1 else f"{column}\n{fill(row, 34)}"
        axes.set_title(title, fontsize=9)
        axes.set(xlabel="head", ylabel="" if j else "layer")
        whole_ticks(axes)
    patches = [Patch(color=colour) for colour in colours.values()]
    names = [name.capitalize() for name in order]
    style.legend_above(figure, patches, names, ncols=4 if len(columns) > 2 else 2, fontsize=8)
    return figure
