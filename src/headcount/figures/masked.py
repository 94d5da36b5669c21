"""Scores against the number of masked heads: one panel for each function, as published."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.figures import layout, style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LOOKS: dict[str, dict[str, Any]] = {
    "top": {"linestyle": "-", "marker": "o"},
    "random": {"linestyle": "--", "marker": "o", "markerfacecolor": "white"},
    "matched": {"linestyle": ":", "marker": "^"},
}
CONTROLS = {"top": style.METRICS[0], "random": style.GREY, "matched": style.ORANGE}
APART = 0.07  # octaves between the lines of a panel, so that equal ones do not hide each other
# Treatment has a tinted band, controls have strokes; what they cover is told apart.
BANDS: dict[str, dict[str, Any]] = {
    "top": {"band": 0.18},
    "random": {"band": 0.35, "hatch": "/////"},
    "matched": {"band": 0.35, "hatch": "\\\\\\\\\\"},
}


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
    width: float = style.PAGE,
) -> Figure:
    """Draw each panel's lines with their intervals as bands, on a log-2 axis.

    A log axis has no place for 0: the whole model stands apart on the left, behind a break. The
    panels of the titles `at_chance` are marked. Values that are `shares` are drawn from 0 to 1.
    """
    high = 1.65 if len(panels) > 2 else 2.2
    above = 0.45 if width > style.COLUMN else 0.6
    figure, grid = layout.panel_grid(len(panels), width, high, above, sharey=shares)
    for axes, (title, lines) in zip(grid, panels.items(), strict=True):
        _panel(axes, lines, shares)
        axes.set_title(title)
        if title in at_chance:
            style.mark_chance(axes)
    layout.outer_labels(grid, f"# {heads} Heads", label)
    handles = {
        text: handle
        for axes in grid
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    style.legend_above(figure, list(handles.values()), list(handles), ncols=len(handles))
    return figure


def _panel(axes: Axes, lines: Sequence[MaskedLine], shares: bool = True) -> None:
    counts = sorted({count for line in lines for count, *_ in line.points if count})
    aside = min(counts, default=2) / 2.3  # where the whole model stands
    drawn: list[tuple[Points, str]] = []
    seen: list[tuple[float, float, float, float]] = []
    for number, line in enumerate(lines):
        look: dict[str, Any] = {**LOOKS[line.series], "label": line.label}
        apart = 2 ** (APART * (number - (len(lines) - 1) / 2))
        masked = [(apart * x, v, low, high) for x, v, low, high in line.points if x]
        whole = [(apart * aside, *p[1:]) for p in line.points if not p[0] and p not in seen]
        seen += [p for p in line.points if not p[0]]  # with no head masked, series are alike
        if masked:
            style.draw_line(axes, masked, line.colour, **look, **BANDS[line.series])
        for x, value, low, high in whole:
            axes.plot([x], [value], **look | {"color": line.colour, "label": None})
            axes.vlines([x], low, high, color=line.colour, linewidth=0.8)
        drawn += [(masked, line.colour), (whole, line.colour)]
    layout.log_axis(axes, [aside, *counts], ["0", *map(str, map(int, counts))], base=2)
    if shares:
        axes.set(ylim=(-0.03, 1.03), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1.0])
    axes.grid(True)
    for points, colour in drawn:
        layout.mark_clipped(axes, points, colour)
    if counts:
        left, right = aside / 1.25, max(counts) * 1.2
        axes.set_xlim(left, right)
        middle = np.log(np.sqrt(aside * counts[0]) / left) / np.log(right / left)
        layout.break_axis(axes, float(middle))


@style.for_print
def plot_heat(
    values: Mapping[str, Mapping[str, float]], *, label: str, columns: Sequence[str]
) -> Figure:
    """Draw a table of numbers from 0 to 1 as colours: a row for each name, with the numbers."""
    names = list(values)
    shown = np.array([[values[name].get(column, np.nan) for column in columns] for name in names])
    many = len(columns) > 4
    figure = style.new_figure(style.COLUMN, (1.2 if many else 0.7) + 0.24 * len(names))
    axes = figure.add_subplot()
    axes.set_facecolor("#E6E6E6")
    picture = axes.imshow(shown, vmin=0, vmax=1, cmap="viridis", aspect="auto")
    for (row, column), value in np.ndenumerate(shown):
        text = "–" if np.isnan(value) else f"{value:.2f}"
        ink = "black" if np.isnan(value) or value > 0.55 else "white"
        axes.text(column, row, text, ha="center", va="center", color=ink, fontsize=6)
    titles = [fill(column, 13) for column in columns]
    axes.set_xticks(range(len(columns)), titles, rotation=90 if many else 0)
    axes.set_yticks(range(len(names)), [fill(name, 18) for name in names])
    axes.tick_params(length=0)
    figure.colorbar(picture, ax=axes, label=label, pad=0.02, fraction=0.06)
    return figure
