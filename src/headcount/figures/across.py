"""One study on several models: each curve against the share of the model's heads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headcount.figures import layout, style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)  # per cent, on a log axis
BOTTOM, TOP = -0.5, 2.3  # the y axis ends here, even if bands go beyond
APART = 1.035  # the ratio of places of neighbouring models on a log axis
BAND, DENSE = 0.13, 8  # curves with so many points have bands, others upright intervals
LOOKS: dict[bool, dict[str, Any]] = {
    False: {"linestyle": "-", "marker": "o", "markersize": 2.2},
    True: {"linestyle": "--", "marker": "o", "markersize": 2.2, "markerfacecolor": "white"},
}


@dataclass(frozen=True)
class ModelLine:
    """A curve of one model: its points are (share of the heads in per cent, value, low, high)."""

    model: str
    points: Points
    random: bool = False


@style.for_print
def plot_across(
    panels: Mapping[str, Sequence[ModelLine]],
    *,
    models: Sequence[str],
    xlabel: str,
    ylabel: str,
    kept: bool = False,
    width: float = style.PAGE,
) -> Figure:
    """Draw a panel for each task, with a colour for each of the `models`; random heads are dashed.

    The whole model, at 0, stands apart on the left of a log axis. Where heads are `kept`, there is
    a linear axis too, and a line where the curve does what all heads do.
    """
    figure, shown, groups = layout.panel_pairs(len(panels), width, both=kept)
    colours = {model: style.PALETTE[i % len(style.PALETTE)] for i, model in enumerate(models)}
    every = [p for lines in panels.values() for line in lines for p in line.points]
    known = [v for _, *three in every for v in three if math.isfinite(v)] or [0.0, 1.0]
    edges = (max(min(known), BOTTOM) - 0.05, min(max(known), TOP) + 0.05)
    for (title, lines), axes_of in zip(panels.items(), groups, strict=True):
        axes_of[0].set_title(title)
        for axes, log in zip(axes_of, (False, True) if kept else (True,), strict=True):
            axes.set_ylim(*edges)
            if kept:
                axes.axhline(1, color="#888888", linewidth=0.6)
            aside = _log_axis(axes, every, apart=not kept) if log else 0.0
            _lines(axes, lines, models, colours, aside, log=log)
            axes.grid(True)
    layout.outer_labels(shown, xlabel, ylabel)
    handles = {
        text: handle
        for axes in shown
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    names = sorted(handles, key=lambda text: list(models).index(text))
    drawn: list[Any] = [handles[name] for name in names]
    if any(line.random for lines in panels.values() for line in lines):
        from matplotlib.lines import Line2D

        look: dict[str, Any] = {**LOOKS[True], "marker": "", "linewidth": 0.7}
        drawn.append(Line2D([], [], color=style.GREY, **look))
        names.append("dashed: random heads")
    style.legend_above(figure, drawn, names, ncols=len(names))
    return figure


def _lines(
    axes: Axes,
    lines: Sequence[ModelLine],
    models: Sequence[str],
    colours: Mapping[str, str],
    aside: float,
    *,
    log: bool,
) -> None:
    for line in sorted(lines, key=lambda line: line.random):
        colour = colours[line.model]
        number = models.index(line.model) - (len(models) - 1) / 2
        apart = APART**number if log and aside else 1.0
        points = [(x * apart, v, low, high) for x, v, low, high in line.points if x or not log]
        place = aside * APART ** (3 * number)
        whole = [(place, v, low, high) for x, v, low, high in line.points if not x]
        label = None if line.random else line.model
        dense = len(line.points) > DENSE
        look = {**LOOKS[line.random], "linewidth": 0.7 if line.random else 1.0}
        if dense and line.random:
            look["marker"] = ""
        if points:
            band = BAND if dense and not line.random else 0.0
            style.draw_line(axes, points, colour, band=band, label=label, **look)
            if not band:
                few = points[:: max(1, len(points) // 5)] if dense else points
                _upright(axes, few, colour)
        if log and aside and not line.random:
            for x, value, low, high in whole:
                axes.plot([x], [value], "s", color=colour, markersize=2.5)
                _upright(axes, [(x, value, low, high)], colour)
        layout.mark_clipped(axes, points, colour)


def _upright(axes: Axes, points: Points, colour: str) -> None:
    x, _, low, high = zip(*points, strict=True)
    axes.vlines(x, low, high, color=colour, linewidth=0.6, alpha=0.7)


def _log_axis(axes: Axes, points: Points, *, apart: bool) -> float:
    """A log axis over the shares; with `apart`, the place of 0 behind a break on the left."""
    shares = [x for x, *_ in points if x]
    low, high = min(shares, default=1.0), max(shares, default=100.0)
    aside = low / 2.2 if apart else 0.0
    left, right = (aside or low) / 1.3, high * 1.15
    ticks = [tick for tick in TICKS if low / 1.1 <= tick <= right]
    places = [aside, *ticks] if apart else ticks
    layout.log_axis(axes, places, ["0"] * apart + [f"{tick:g}" for tick in ticks])
    axes.set_xlim(left, right)
    if apart:
        from matplotlib.ticker import FixedLocator

        between = [m * 10**p for p in range(-2, 3) for m in range(2, 10)]
        axes.xaxis.set_minor_locator(FixedLocator([x for x in between if low / 1.1 <= x <= right]))
        middle = math.log(math.sqrt(aside * low) / left) / math.log(right / left)
        layout.break_axis(axes, middle)
    return aside
