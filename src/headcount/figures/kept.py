"""Heads kept: explained effect against the number of heads, ratios of heads needed, and areas."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.figures import layout, style
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
def plot_kept(
    panels: Sequence[KeptPanel],
    *,
    threshold: float,
    edges: bool = False,
    width: float = style.PAGE,
) -> Figure:
    """Draw each task as published, and the same curves on a log axis: see `panel_pairs`.

    With two models, a dashed line joins their curves at the threshold; its label gives the ratio of
    the heads needed, with its interval. Edges are so many that they have the log axis alone.
    """
    figure, shown, pairs = layout.panel_pairs(len(panels), width, both=not edges)
    for panel, pair in zip(panels, pairs, strict=True):
        for place, axes in enumerate(pair):
            _curves(axes, panel, log=edges or bool(place))
        first = pair[0]
        first.set_title(panel.title)
        _threshold(first, panel, threshold)
        if panel.at_chance:
            style.mark_chance(first, fill(f"at chance: {', '.join(panel.at_chance)}", 30))
    layout.outer_labels(
        shown, f"Number of {'Edges' if edges else 'Heads'} Kept", "Explained Effect"
    )
    _y_range(shown[0], panels)
    for panel, pair in zip(panels, pairs, strict=True):
        for axes in pair:
            for line in panel.lines:
                usable = [p for p in line.points if p[0] or axes.get_xscale() != "log"]
                layout.mark_clipped(axes, usable, line.colour)
    handles = {
        text: handle
        for axes in shown
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    models = sum(not line.random for line in panels[0].lines)
    style.legend_above(figure, list(handles.values()), list(handles), ncols=min(models, 4))
    return figure


def _curves(axes: Axes, panel: KeptPanel, *, log: bool) -> None:
    axes.axhline(1, color="#888888", linewidth=0.6)
    for line in panel.lines:
        points = [point for point in line.points if point[0] or not log]
        look: dict[str, Any] = {"linestyle": "-", "marker": ".", "band": 0.2}
        if line.random:
            look = {"linestyle": "--", "linewidth": 0.7, "band": 0.3, "hatch": "/////"}
        style.draw_line(axes, points, line.colour, label=line.label, **look)
    most = int(max(count for line in panel.lines for count, *_ in line.points))
    if log:
        steps = (1, 3, 10, 30, 100, 300, 1000)
        few = [n for n in steps if n <= most / 1.6]
        ticks = [*few, most] if most <= 3000 else [100**p for p in range(6) if 100**p <= most]
        layout.log_axis(axes, ticks, [_short(n) for n in ticks])
    else:
        step = next(n for n in (1, 5, 20, 50, 100, 250, 500, 10**9) if most / n <= 4)
        ticks = [n for n in range(0, most, step) if n <= 0.85 * most]
        axes.set_xticks([*ticks, most])
        axes.set_xlim(0, 1.03 * most)
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
def plot_ratios(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]],
) -> Figure:
    """Draw the ratio of heads needed against the threshold: for each task, a line per order.

    A point is (threshold, ratio, low, high, censored); a censored one, where a curve does not reach
    the threshold before all heads, is drawn hollow. Equal lines are drawn a little apart.
    """
    figure, grid = layout.panel_grid(len(panels), style.COLUMN, 1.75, 0.55, sharey=True)
    for axes, (title, lines) in zip(grid, panels.items(), strict=True):
        axes.axhline(1, color="#888888", linewidth=0.6)
        for number, (label, points) in enumerate(lines.items()):
            colour = style.PALETTE[number % len(style.PALETTE)]
            place = number - (len(lines) - 1) / 2
            along, up = 0.006 * place, 2 ** (0.1 * place)
            moved = [(t + along, r * up, low, high) for t, r, low, high, _ in points]
            style.draw_line(axes, moved, colour, band=0.12, label=label, linewidth=0.8)
            for (x, y, _, _), (*_, censored) in zip(moved, points, strict=True):
                within = "white" if censored else colour
                how: dict[str, Any] = {"markerfacecolor": within, "markersize": 2.2}
                axes.plot([x], [y], "o", color=colour, markeredgewidth=0.7, **how)
        axes.set(title=title, xticks=[0.3, 0.5, 0.7, 0.9], xlim=(0.25, 1.0))
        axes.grid(True)
    _powers_of_two(grid[0], panels)
    layout.outer_labels(grid, "Explained effect τ", "Ratio of heads needed")
    handles, labels = grid[0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=min(len(labels), 3))
    return figure


def _powers_of_two(
    axes: Axes, panels: Mapping[str, Mapping[str, Sequence[Sequence[float]]]]
) -> None:
    """A log-2 axis over all ratios, with whole ratios as ticks."""
    every = [point for lines in panels.values() for line in lines.values() for point in line]
    known = [x for point in every for x in point[1:4] if x > 0]
    low, high = math.log2(min([0.5, *known])), math.log2(max([2.0, *known]))
    powers = range(math.floor(low), math.ceil(high) + 1)
    shown = [p for p in powers if len(powers) < 7 or p % 2 == 0]
    axes.set_yscale("log", base=2)
    axes.set_ylim(2 ** (low - 0.5), 2 ** (high + 0.5))
    axes.set_yticks([2.0**p for p in shown], [f"1/{2**-p}" if p < 0 else str(2**p) for p in shown])
    axes.minorticks_off()


@style.for_print
def plot_areas(
    panels: Mapping[str, Mapping[str, Mapping[str, tuple[float, float, float]]]],
    *,
    label: str,
    width: float = style.PAGE,
) -> Figure:
    """Draw an area with its interval as dots: a panel per task, a row per order, a dot per model.

    `panels` maps title → order → model → (value, low, high).
    """
    orders = list(dict.fromkeys(order for rows in panels.values() for order in rows))
    models = list(
        dict.fromkeys(m for rows in panels.values() for dots in rows.values() for m in dots)
    )
    high = 0.5 + 0.2 * len(orders) * max(1, len(models) / 2)
    figure, grid = layout.panel_grid(len(panels), width, high, 0.3, sharey=True)
    for axes, (title, rows) in zip(grid, panels.items(), strict=True):
        axes.axvline(0, color="#888888", linewidth=0.6)
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
        axes.set_title(fill(title, 20))
        axes.locator_params(axis="x", nbins=5)
        axes.grid(True, axis="x")
    grid[0].set_yticks(range(len(orders)), [fill(order.replace("-", " "), 21) for order in orders])
    grid[0].set_ylim(len(orders) - 0.5, -0.5)
    layout.outer_labels(grid, label, "")
    handles, labels = grid[0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=max(1, min(len(labels), 3)))
    return figure
