"""Head roles: what ablating heads in their order changes, and where the roles lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"facilitation": "#2a9d4a", "irrelevance": "#3067c4", "interference": "#d0342c"}
UNDECIDED = "#dddddd"
Line = Sequence[tuple[int, float, float, float]]  # count, value, low, high


def plot_roles(
    panels: Mapping[tuple[str, str], Mapping[str, Line]],
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    note: str = "",
) -> Figure:
    """The published grid: one row per task, one column per model, one line per role."""
    from matplotlib.figure import Figure

    size = (3.0 * len(columns) + 1.6, 2.2 * len(rows) + 0.9)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(len(rows), len(columns), squeeze=False, sharex=True, sharey="row")
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            axes = grid[i, j]
            for role, line in panels.get((row, column), {}).items():
                x, value, low, high = zip(*line, strict=True)
                colour = COLOURS[role]
                axes.plot(x, value, color=colour, label=role.capitalize(), linewidth=1.6)
                axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.axhline(0, color="#888888", linewidth=0.7)
            axes.grid(alpha=0.25)
            if i == 0:
                axes.set_title(column)
            if j == len(columns) - 1:
                axes.annotate(row, (1.03, 0.5), xycoords="axes fraction", rotation=270, va="center")
    figure.supxlabel("Number of Ablated Heads", fontsize=10)
    figure.supylabel("Δ Log Probability of Target Response", fontsize=10)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, title="Metric", loc="outside upper center", ncols=3, frameon=False
    )
    if note:
        signs = int(15 * size[0])
        figure.text(0.01, -0.02, fill(note, signs), fontsize=6.5, color="#666666", va="top")
    return figure


def plot_role_maps(
    maps: Mapping[tuple[str, str], np.ndarray], counts: Mapping[str, Sequence[int]]
) -> Figure:
    """Layer × head, coloured by role; what no role claims is grey.

    `maps` has one role's name per head, by task and model; `counts` the heads per layer of each
    model.
    """
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    names = [*COLOURS, "undecided"]
    colours = [*COLOURS.values(), UNDECIDED]
    rows = list(dict.fromkeys(row for row, _ in maps))
    columns = list(dict.fromkeys(column for _, column in maps))
    deepest = max(len(heads) for heads in counts.values())
    size = (2.2 * len(rows) * len(columns) + 0.8, 0.13 * deepest + 1.4)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(1, len(rows) * len(columns), squeeze=False, sharey=len(columns) == 1)
    for axes, ((row, column), labels) in zip(grid[0], maps.items(), strict=True):
        heads = counts[column]
        picture = np.full((len(heads), max(heads)), np.nan)
        start = 0
        for layer, count in enumerate(heads):
            picture[layer, :count] = [names.index(str(x)) for x in labels[start : start + count]]
            start += count
        options: dict[str, Any] = {"cmap": ListedColormap(colours), "vmin": -0.5, "vmax": 3.5}
        axes.imshow(picture, aspect="auto", interpolation="nearest", **options)
        axes.set_title(row if len(columns) == 1 else f"{row}\n{column}", fontsize=9)
        axes.set_xlabel("head")
    grid[0, 0].set_ylabel("layer")
    patches = [Patch(color=c, label=n.capitalize()) for n, c in zip(names, colours, strict=True)]
    figure.legend(handles=patches, loc="outside upper center", ncols=4, frameon=False, fontsize=8)
    return figure
