"""Heads kept: explained effect against the number of heads, ratios of heads needed, and areas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.figures import style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOTTOM, TOP = -0.6, 2.2  # the y axis ends here, even if explained effects or bands go beyond
MODELS = ("#1f77b4", "#ff7f0e", "#2ca02c", "#e377c2")  # a colour for each model, in all panels
MARKERS = "osD^vPX*"


@dataclass(frozen=True)
class KeptLine:
    """A line of a panel: of one model, ranked or in random order."""

    label: str
    colour: str
    points: Points
    random: bool = False


@dataclass(frozen=True)
class KeptPanel:
    """One task: its lines, and the heads needed by each model with the words of their ratio."""

    title: str
    lines: Sequence[KeptLine]
    needed: Sequence[float] = ()
    words: str = ""
    at_chance: Sequence[str] = field(default_factory=list)  # the labels of models at chance


@style.for_print
def plot_kept(panels: Sequence[KeptPanel], *, threshold: float, edges: bool = False) -> Figure:
    """Draw one panel per task as published, and below it the same curves on a log axis.

    With two models, a dashed line joins their curves at the threshold; its label gives the ratio of
    the heads needed, with its interval. Edges are so many that they have the log axis alone.
    """
    wide = style.PAGE if len(panels) > 1 else style.COLUMN
    figure = style.new_figure(wide, 2.2 if edges else 3.7)
    grid = figure.subplots(1 if edges else 2, len(panels), squeeze=False, sharey=True)
    for column, panel in enumerate(panels):
        for row, axes in enumerate(grid[:, column]):
            _curves(axes, panel, log=edges or bool(row))
        above, below = grid[0, column], grid[-1, column]
        above.set_title(panel.title)
        _threshold(above, panel, threshold)
        below.set_xlabel(f"Number of {'Edges' if edges else 'Heads'} Kept")
        if panel.at_chance:
            style.mark_chance(above, fill(f"at chance: {', '.join(panel.at_chance)}", 30))
    for axes in grid[:, 0]:
        axes.set_ylabel("Explained Effect")
    _y_range(grid[0, 0], panels)
    handles = {
        text: handle
        for axes in grid[0]
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = min(len(handles), 4) if len(panels) > 1 else 2
    style.legend_above(figure, list(handles.values()), list(handles), ncols=columns)
    return figure


def _curves(axes: Axes, panel: KeptPanel, *, log: bool) -> None:
    axes.axhline(1, color="#888888", linewidth=0.6)
    for line in panel.lines:
        points = [point for point in line.points if point[0] or not log]
        look: dict[str, Any] = {"linestyle": "-", "marker": ".", "band": 0.2}
        if line.random:
            look = {"linestyle": "--", "linewidth": 0.7, "band": 0.08}
        style.draw_line(axes, points, line.colour, label=line.label, **look)
    if log:
        most = int(max(count for line in panel.lines for count, *_ in line.points))
        axes.set_xscale("log")
        few = [n for n in (1, 3, 10, 30, 100, 300, 1000) if n <= most]
        ticks = few if most <= 3000 else [100**power for power in range(6) if 100**power <= most]
        axes.set_xticks(ticks, [_short(n) for n in ticks])
        axes.minorticks_off()
    else:
        axes.set_xlim(left=0)
    axes.grid(True)


def _short(number: int) -> str:
    """A number with few digits: 10k, 1M."""
    for size, letter in ((10**6, "M"), (10**4, "k")):
        if number >= size:
            return f"{number // (1000 if letter == 'k' else size)}{letter}"
    return str(number)


def _threshold(axes: Axes, panel: KeptPanel, threshold: float) -> None:
    needed = [count for count in panel.needed if math.isfinite(count)]
    if not needed:
        return
    least = 1.0 if axes.get_xscale() == "log" else 0.0
    left, right = (least, needed[0]) if len(needed) == 1 else (min(needed[:2]), max(needed[:2]))
    axes.plot([left, right], [threshold] * 2, color="black", linestyle="--", linewidth=0.9)
    if panel.words:
        box: dict[str, Any] = {"facecolor": "white", "alpha": 0.8, "edgecolor": "none", "pad": 1}
        corner: dict[str, Any] = {"xycoords": "axes fraction", "ha": "right", "va": "bottom"}
        axes.annotate(panel.words, (0.98, 0.03), fontsize=6.5, bbox=box, **corner)


def _y_range(axes: Axes, panels: Sequence[KeptPanel]) -> None:
    points = [p for panel in panels for line in panel.lines for p in line.points]
    known = [v for _, *three in points for v in three if math.isfinite(v)] or [0.0, 1.0]
    bottom, top = max(min(known), BOTTOM) - 0.08, min(max(known), TOP) + 0.08
    axes.set_ylim(bottom, top)
    axes.set_yticks(np.arange(math.ceil(bottom / 0.5) * 0.5, top, 0.5))


@style.for_print
def plot_ratios(panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]) -> Figure:
    """Draw the ratio of heads needed against the threshold: for each task, a line per order.

    A point is (threshold, ratio, low, high, censored); a censored one, where a curve does not reach
    the threshold before all heads, is drawn hollow.
    """
    wide = style.PAGE if len(panels) > 1 else style.COLUMN
    figure = style.new_figure(wide, 2.3)
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, lines) in zip(grid, panels.items(), strict=True):
        axes.axhline(1, color="#888888", linewidth=0.6)
        for number, (label, points) in enumerate(lines.items()):
            colour = style.PALETTE[number % len(style.PALETTE)]
            apart = 0.008 * (number - (len(lines) - 1) / 2)  # equal lines must not hide each other
            four = [(t + apart, ratio, low, high) for t, ratio, low, high, _ in points]
            style.draw_line(axes, four, colour, band=0.15, label=label)
            for threshold, ratio, _, _, censored in points:
                within = "white" if censored else colour
                how: dict[str, Any] = {
                    "color": colour,
                    "markerfacecolor": within,
                    "markersize": 2.5,
                }
                axes.plot([threshold + apart], [ratio], "o", **how)
        axes.set_yscale("log", base=2)
        known = [x for line in lines.values() for point in line for x in point[1:4] if x > 0]
        low, high = min([0.5, *known]), max([2.0, *known])
        powers = range(math.floor(math.log2(low)), math.ceil(math.log2(high)) + 1)
        shown = [p for p in powers if len(powers) < 7 or p % 2 == 0]
        axes.set_yticks(
            [2.0**p for p in shown], [f"1/{2**-p}" if p < 0 else str(2**p) for p in shown]
        )
        axes.minorticks_off()
        axes.set(title=title, xlabel="Explained effect τ")
        axes.grid(True)
    grid[0].set_ylabel("Ratio of heads needed")
    handles, labels = grid[0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=min(len(labels), 3))
    return figure


@style.for_print
def plot_areas(
    panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, float, float]]]], *, label: str
) -> Figure:
    """Draw an area with its interval as dots: a panel per task, a row per order, a dot per model.

    `panels` maps title → order → model → (value, low, high).
    """
    orders = list(dict.fromkeys(order for rows in panels.values() for order in rows))
    models = list(
        dict.fromkeys(m for rows in panels.values() for dots in rows.values() for m in dots)
    )
    wide = style.PAGE if len(panels) > 1 else style.COLUMN
    figure = style.new_figure(wide, 0.8 + 0.2 * len(orders) * max(1, len(models) / 2))
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for axes, (title, rows) in zip(grid, panels.items(), strict=True):
        for number, model in enumerate(models):
            shift = 0.16 * (number - (len(models) - 1) / 2)
            known = [
                (place, rows[o][model])
                for place, o in enumerate(orders)
                if model in rows.get(o, {})
            ]
            y = [place + shift for place, _ in known]
            x = [dot[0] for _, dot in known]
            ends = np.nan_to_num([[v - low, high - v] for _, (v, low, high) in known]).clip(min=0).T
            look: dict[str, Any] = {"color": MODELS[number % 4], "markersize": 3, "linewidth": 0.9}
            axes.errorbar(x, y, xerr=ends, fmt=MARKERS[number], label=model, **look)
        axes.set(title=title, xlabel=label)
        axes.set_xlim(left=0)
        axes.grid(True, axis="x")
    grid[0].set_yticks(range(len(orders)), orders)
    grid[0].set_ylim(len(orders) - 0.5, -0.5)
    handles, labels = grid[0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=max(1, min(len(labels), 3)))
    return figure
