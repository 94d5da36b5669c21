"""Head roles: the effect of ablating heads in the order of each role, and a map of the roles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.figures import style
from headcount.figures.head_map import by_layer, whole_ticks
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "facilitation": {"linestyle": "-", "marker": "o"},
    "irrelevance": {"linestyle": "--", "marker": "s"},
    "interference": {"linestyle": "-.", "marker": "^"},
    "random order": {"linestyle": ":", "marker": ""},
}
COLOURS = {**style.ROLES, "random order": style.GREY}
BEYOND = "#9a9a9a"  # of lines where the heads that carry the role have run out
PALE = 0.32  # how much of its colour a role keeps that does not hold in all seeds
NAMES = [*style.ROLES, "undecided"]
MARKERS = 9  # about as many a line, so that they can be told apart


@dataclass(frozen=True)
class RoleLine:
    """The points of a role or of random orders, and how many heads carry the role."""

    points: Points
    carriers: float = inf


@style.for_print
def plot_roles(
    panels: Mapping[tuple[str, str], Mapping[str, RoleLine]],
    *,
    label: str,
    at_chance: Collection[tuple[str, str]] = (),
    zoomed: bool = False,
    width: float = style.PAGE,
) -> Figure:
    """Draw the published grid: one row per task, one column per model, one line per role or order.

    `panels` maps task and model to the line of each role; a cell may be missing. The part of a line
    beyond the heads that carry the role is thin and grey. The panels of a row share their y axis,
    unless each is `zoomed` to what it shows. Those `at_chance`, also by task and model, are marked.
    """
    rows = list(dict.fromkeys(row for row, _ in panels))
    columns = list(dict.fromkeys(column for _, column in panels))
    alone = len(columns) == 1 or width <= style.COLUMN
    figure = style.new_figure(style.COLUMN if alone else width, 0.55 + 1.3 * len(rows))
    shared: dict[str, Any] = {"sharex": not zoomed, "sharey": False if zoomed else "row"}
    grid = figure.subplots(len(rows), len(columns), squeeze=False, **shared)
    for (i, j), axes in np.ndenumerate(grid):
        lines = panels.get((rows[i], columns[j]))
        if lines is None:
            axes.text(0.5, 0.5, "not run", ha="center", va="center", transform=axes.transAxes)
            axes.tick_params(left=False, bottom=False, labelbottom=False)
        else:
            _panel(axes, lines)
    for axes, column in zip(grid[0], columns, strict=True):
        axes.set_title(fill(column, (36 if alone else 60) // len(columns), break_on_hyphens=True))
    for row, column in at_chance:
        axes = grid[rows.index(row), columns.index(column)]
        style.mark_chance(axes)
        axes.title.set_fontsize(style.PRINT["axes.titlesize"])
    for axes in grid[-1]:
        axes.set_xlabel(fill("Number of Ablated Heads", 30 if len(columns) < 4 else 18))
    for axes, row in zip(grid[:, -1], rows, strict=True):
        axes.yaxis.set_label_position("right")
        axes.set_ylabel(row, rotation=270, va="bottom")
    figure.supylabel(label, fontsize=style.PRINT["axes.labelsize"])
    _legend(figure, grid, above=alone)
    return figure


def _panel(axes: Axes, lines: Mapping[str, RoleLine]) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.axhline(0, color="#888888", linewidth=0.6)
    for role, line in lines.items():
        own = [point for point in line.points if point[0] <= line.carriers]
        beyond = line.points[max(len(own) - 1, 0) :]
        if len(beyond) > 1 or not own:
            thin: dict[str, Any] = {**LOOKS[role], "marker": "", "linewidth": 0.7}
            style.draw_line(axes, beyond, BEYOND, band=0.13, **thin)
        if own:
            look: dict[str, Any] = {**LOOKS[role], "markevery": -(-len(own) // MARKERS)}
            look |= {"label": role.capitalize()}
            style.draw_line(axes, own, COLOURS[role], band=0.18, **look)
    axes.grid(True)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, min_n_ticks=3))


def _legend(figure: Figure, grid: np.ndarray, *, above: bool) -> None:
    """The legend stands on the right, as published, unless a single column leaves no room there."""
    from matplotlib.lines import Line2D

    handles = {
        text: handle
        for axes in grid.ravel()
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if any(line.get_color() == BEYOND for axes in grid.ravel() for line in axes.get_lines()):
        handles["beyond its heads"] = Line2D([], [], color=BEYOND, linewidth=0.7)
    how: dict[str, Any] = {"loc": "outside upper center", "ncols": 2}
    if not above:
        how = {"loc": "outside right center"}
    figure.legend([*handles.values()], [*handles], title="Metric", frameon=False, **how)


@style.for_print
def plot_role_maps(
    maps: Mapping[tuple[str, str], tuple[np.ndarray, np.ndarray]],
    counts: Mapping[str, Sequence[int]],
) -> Figure:
    """Draw maps of layer × head, coloured by role; undecided heads are grey.

    `maps` maps task and model to the role of each head, and to whether it has this role in all
    seeds: then its colour is strong, else pale. `counts` has the heads per layer of each model. The
    figure has one row per model and one column per task.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.legend_handler import HandlerTuple
    from matplotlib.patches import Patch

    strong, pale = list(style.ROLES.values()), [_pale(colour) for colour in style.ROLES.values()]
    colours = [*strong, style.UNDECIDED, *pale]
    shown: dict[str, Any] = {"cmap": ListedColormap(colours), "vmin": -0.5, "vmax": 6.5}
    columns = list(dict.fromkeys(task for task, _ in maps))
    rows = list(dict.fromkeys(model for _, model in maps))
    heights = [max(1.0, 0.075 * len(counts[row])) for row in rows]
    figure = style.new_figure(style.COLUMN, sum(heights) + 0.55 * len(rows) + 0.55)
    how: dict[str, Any] = {"sharey": "row", "height_ratios": heights, "squeeze": False}
    grid = figure.subplots(len(rows), len(columns), **how)
    for (i, j), axes in np.ndenumerate(grid):
        row, column = rows[i], columns[j]
        if (column, row) not in maps:
            axes.set_visible(False)
            continue
        picture = by_layer(_codes(*maps[column, row]), counts[row])
        axes.imshow(picture, aspect="auto", interpolation="nearest", **shown)
        axes.set_title(fill(column if len(rows) == 1 else f"{column}, {row}", 18))
        axes.set(xlabel="head", ylabel="" if j else "layer")
        whole_ticks(axes)
    both = [(Patch(color=a), Patch(color=b)) for a, b in zip(strong, pale, strict=True)]
    handles: list[Any] = [*both, Patch(color=style.UNDECIDED)]
    beside: dict[Any, Any] = {tuple: HandlerTuple(ndivide=None, pad=0)}
    titled = {"title": "strong: in all seeds · pale: not in all", "handler_map": beside}
    style.legend_above(figure, handles, [n.capitalize() for n in NAMES], ncols=2, **titled)
    return figure


def _codes(roles: np.ndarray, stable: np.ndarray) -> list[int]:
    """The place of each head's colour: the roles, undecided, then the roles in pale."""
    places = [NAMES.index(str(role)) for role in roles]
    return [
        place if holds or place == len(NAMES) - 1 else place + len(NAMES)
        for place, holds in zip(places, stable, strict=True)
    ]


def _pale(colour: str) -> str:
    """The colour mixed with white."""
    parts = [int(colour[start : start + 2], 16) for start in (1, 3, 5)]
    return "#" + "".join(f"{round(255 - PALE * (255 - part)):02x}" for part in parts)
