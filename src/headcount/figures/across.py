"""One study on several models: each curve against the share of the model's heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from headcount.figures import style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 4  # the largest number of panels in a row
TICKS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100)  # per cent, on a log axis
LOOKS: dict[bool, dict[str, Any]] = {
    False: {"linestyle": "-", "marker": ".", "band": 0.16},
    True: {"linestyle": "--", "linewidth": 0.7, "band": 0.07},
}


@dataclass(frozen=True)
class ModelLine:
    """A curve of one model: its points are (share of the heads in per cent, value, low, high)."""

    model: str
    points: Points
    random: bool = False


@style.for_print
def plot_across(
    panels: Mapping[str, Sequence[ModelLine]], *, xlabel: str, ylabel: str, log: bool
) -> Figure:
    """Draw a panel for each task, with a colour for each model; random heads are dashed.

    On a log axis the whole model, at 0, is a short line at the left edge.
    """
    models = list(dict.fromkeys(line.model for lines in panels.values() for line in lines))
    colours = {model: style.PALETTE[i % len(style.PALETTE)] for i, model in enumerate(models)}
    wide, high = min(WIDE, len(panels)), ceil(len(panels) / WIDE)
    across = style.PAGE if wide > 1 else style.COLUMN
    figure = style.new_figure(across, 0.5 + 1.75 * high)
    grid = figure.subplots(high, wide, squeeze=False, sharex=True, sharey=True).ravel().tolist()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for number, (axes, (title, lines)) in enumerate(zip(grid, panels.items(), strict=False)):
        for line in lines:
            _draw(axes, line, colours[line.model], log)
            if log:
                _whole(axes, line, colours[line.model], models.index(line.model))
        axes.set_title(title)
        axes.grid(True)
        if number + WIDE >= len(panels):
            axes.set_xlabel(xlabel)
            axes.tick_params(labelbottom=True)
        if number % WIDE == 0:
            axes.set_ylabel(ylabel)
    if log:
        _log_axis(grid[0], panels)
    handles = {
        text: handle
        for axes in grid
        for handle, text in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    columns = 2 if len(panels) > 1 else 1
    style.legend_above(figure, list(handles.values()), list(handles), ncols=columns)
    return figure


def _draw(axes: Axes, line: ModelLine, colour: str, log: bool) -> None:
    drawn = [point for point in line.points if point[0] or not log]
    if drawn:
        label = f"{line.model}, random heads" if line.random else line.model
        style.draw_line(axes, drawn, colour, label=label, **LOOKS[line.random])


def _whole(axes: Axes, line: ModelLine, colour: str, place: int) -> None:
    """A short line at the left edge for the whole model, so that equal ones stand side by side."""
    for share, value, _, _ in line.points:
        if not share:
            left = 0.005 + 0.04 * place
            axes.axhline(value, left, left + 0.03, color=colour, linewidth=1.4)


def _log_axis(axes: Axes, panels: Mapping[str, Sequence[ModelLine]]) -> None:
    shares = [x for lines in panels.values() for line in lines for x, *_ in line.points if x]
    low, high = min(shares, default=1.0), max(shares, default=100.0)
    axes.set_xscale("log")
    axes.set_xlim(low / 1.6, high * 1.15)
    ticks = [tick for tick in TICKS if low / 1.6 <= tick <= high * 1.15]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
