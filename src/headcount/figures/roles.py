"""Head roles: what ablating heads in their order changes, and where the roles lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"facilitation": "#2a9d4a", "irrelevance": "#3067c4", "interference": "#d0342c"}
UNDECIDED = "#dddddd"
Line = Sequence[tuple[int, float, float, float]]  # count, value, low, high


def plot_roles(panels: Mapping[tuple[str, str], Mapping[str, Line]], *, note: str = "") -> Figure:
    """The published grid: one row per task, one column per model, one line per role.

    `panels` has the line of each role, by task and model. All panels of a row share their y axis.
    """
    from matplotlib.figure import Figure

    rows = list(dict.fromkeys(row for row, _ in panels))
    columns = list(dict.fromkeys(column for _, column in panels))
    size = (max(3.0 * len(columns) + 1.2, 4.8), 2.0 * len(rows) + 1.1)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey="row")
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes = grid[i, j]
            axes.axhline(0, color="#888888", linewidth=0.7)
            for role, line in panels.get((row, column), {}).items():
                x, value, low, high = zip(*line, strict=True)
                colour = COLOURS[role]
                axes.plot(x, value, color=colour, label=role.capitalize(), linewidth=1.6)
                axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.grid(alpha=0.25)
            axes.margins(x=0.02)
            if i == 0:
                axes.set_title(_wrapped(column), fontsize=10)
            if i == len(rows) - 1:
                axes.set_xlabel("Number of Ablated Heads")
                axes.xaxis.get_major_locator().set_params(integer=True)
        last = grid[i, -1]
        label = {"rotation": 270, "va": "bottom", "fontsize": 10}
        last.yaxis.set_label_position("right")
        last.set_ylabel(row, **label)
    figure.supylabel("Δ Log Probability of Target Response", fontsize=10)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    how: dict[str, Any] = {"loc": "outside upper center", "ncols": 3, "frameon": False}
    figure.legend(handles, labels, title="Metric", fontsize=9, handlelength=1.6, **how)
    if note:
        figure.supxlabel(_even(note, int(17 * size[0])), fontsize=6.5, color="#666666")
    return figure


def plot_role_maps(
    maps: Mapping[tuple[str, str], np.ndarray], counts: Mapping[str, Sequence[int]]
) -> Figure:
    """Layer × head, coloured by role; what no role claims is grey.

    `maps` has one role's name per head, by task and model; `counts` the heads per layer of each
    model. One row per model, one column per task.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch
    from matplotlib.ticker import MaxNLocator

    names = [*COLOURS, "undecided"]
    colours = [*COLOURS.values(), UNDECIDED]
    options: dict[str, Any] = {"cmap": ListedColormap(colours), "vmin": -0.5, "vmax": 3.5}
    columns = list(dict.fromkeys(task for task, _ in maps))
    rows = list(dict.fromkeys(model for _, model in maps))
    heights = [max(1.2, 0.13 * len(counts[row])) for row in rows]
    size = (max(2.2 * len(columns) + 0.8, 4.6), sum(heights) + 0.7 * len(rows) + 0.6)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(
        len(rows), len(columns), squeeze=False, sharey="row", height_ratios=heights
    )
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes = grid[i, j]
            picture = _picture(maps[column, row], counts[row], names)
            axes.imshow(picture, aspect="auto", interpolation="nearest", **options)
            axes.set_title(column if len(rows) == 1 else f"{column}\n{_wrapped(row)}", fontsize=9)
            axes.set_xlabel("head")
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        grid[i, 0].set_ylabel("layer")
    patches = [Patch(color=c, label=n.capitalize()) for n, c in zip(names, colours, strict=True)]
    wide = 4 if len(columns) > 2 else 2
    figure.legend(
        handles=patches, loc="outside upper center", ncols=wide, frameon=False, fontsize=8
    )
    return figure


def _picture(labels: np.ndarray, heads: Sequence[int], names: Sequence[str]) -> np.ndarray:
    """The number of each head's role; empty where a layer has fewer heads than another."""
    picture = np.full((len(heads), max(heads)), np.nan)
    start = 0
    for layer, count in enumerate(heads):
        picture[layer, :count] = [names.index(str(name)) for name in labels[start : start + count]]
        start += count
    return picture


def _wrapped(title: str) -> str:
    return fill(title, 34)


def _even(text: str, most: int) -> str:
    """In lines of about equal length, none much longer than `most` signs."""
    lines = ceil(len(text) / most)
    return fill(text, ceil(len(text) / lines) + 6)
