"""Scores against the number of masked heads: one panel for each function, as published."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.figures import style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 4  # the largest number of panels in a row
LOOKS: dict[str, dict[str, Any]] = {
    "top": {"linestyle": "-", "marker": "o"},
    "random": {"linestyle": "--", "marker": "o"},
    "matched": {"linestyle": ":", "marker": "^"},
}
CONTROLS = {"top": style.METRICS[0], "random": style.GREY, "matched": style.ORANGE}


@dataclass(frozen=True)
class MaskedLine:
    """A line of a panel: its series, its label, its colour and its points."""

    series: str
    label: str
    colour: str
    points: Points


@style.for_print
def plot_masked(
    panels: Mapping[str, Sequence[MaskedLine]],
    *,
    label: str,
    at_chance: Collection[str] = (),
    heads: str = "Masked",
    shares: bool = True,
) -> Figure:
    """Draw each panel's lines with their intervals as bands, on a log-2 axis.

    A log axis has no place for 0: the whole model stands apart on the left, behind a break. The
    panels of the titles `at_chance` are marked. Values that are `shares` are drawn from 0 to 1.
    """
    wide, high = min(WIDE, len(panels)), ceil(len(panels) / WIDE)
    across = style.PAGE if len(panels) > 2 else style.COLUMN
    figure = style.new_figure(across, 0.45 + (1.65 if len(panels) > 2 else 2.2) * high)
    grid = figure.subplots(high, wide, squeeze=False, sharey=shares).ravel().tolist()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, lines) in zip(grid, panels.items(), strict=False):
        _panel(axes, lines, shares)
        axes.set_title(title)
        if title in at_chance:
            style.mark_chance(axes)
    for number, axes in enumerate(grid[: len(panels)]):
        if number + WIDE >= len(panels):
            axes.set_xlabel(f"# {heads} Heads")
        if number % WIDE == 0:
            axes.set_ylabel(label)
    handles = {
        text: handle
        for axes in grid
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = len(handles) if len(panels) > 2 else 2
    style.legend_above(figure, list(handles.values()), list(handles), ncols=columns)
    return figure


def _panel(axes: Axes, lines: Sequence[MaskedLine], shares: bool = True) -> None:
    counts = sorted({count for line in lines for count, *_ in line.points if count})
    aside = min(counts, default=2) / 2.3  # where the whole model stands
    for line in lines:
        look: dict[str, Any] = {**LOOKS[line.series], "label": line.label}
        masked = [point for point in line.points if point[0]]
        if masked:
            style.draw_line(axes, masked, line.colour, band=0.16, **look)
        for _, value, low, high in (point for point in line.points if not point[0]):
            axes.plot([aside], [value], marker=look["marker"], color=line.colour)
            axes.vlines([aside], low, high, color=line.colour, linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.set_xticks([aside, *counts], ["0", *map(str, map(int, counts))])
    axes.minorticks_off()
    if shares:
        axes.set(ylim=(-0.03, 1.03), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.grid(True)
    if counts:
        left, right = aside / 1.25, max(counts) * 1.2
        axes.set_xlim(left, right)
        middle = np.log(np.sqrt(aside * counts[0]) / left) / np.log(right / left)
        _break(axes, float(middle))


def _break(axes: Axes, x: float) -> None:
    """Mark a break of the axis at this share of its width."""
    how: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "zorder": 5}
    axes.plot([x - 0.012, x + 0.012], [0, 0], color="white", linewidth=2.2, **how)
    for shift in (-0.012, 0.012):
        ends = [x + shift - 0.008, x + shift + 0.008]
        axes.plot(ends, [-0.025, 0.025], color="black", linewidth=0.6, **how)


@style.for_print
def plot_heat(
    values: Mapping[str, Mapping[str, float]], *, label: str, columns: Sequence[str]
) -> Figure:
    """Draw a table of numbers from 0 to 1 as colours: a row for each name, with the numbers."""
    names = list(values)
    shown = np.array([[values[name].get(column, np.nan) for column in columns] for name in names])
    figure = style.new_figure(style.PAGE if len(columns) > 4 else 5.0, 0.9 + 0.24 * len(names))
    axes = figure.add_subplot()
    axes.set_facecolor("#E6E6E6")
    picture = axes.imshow(shown, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    for (row, column), value in np.ndenumerate(shown):
        text = "–" if np.isnan(value) else f"{value:.2f}"
        ink = "black" if np.isnan(value) or value > 0.55 else "white"
        axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=6.5)
    axes.set_xticks(range(len(columns)), [fill(column, 13) for column in columns])
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    figure.colorbar(picture, ax=axes, label=label, pad=0.015)
    return figure
