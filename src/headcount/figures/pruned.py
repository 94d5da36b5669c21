"""Pruned models: accuracy and loss against the share of the heads that is kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headcount.figures import style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"raw": style.BLUE, "rescaled": style.GREEN, "healed": style.ORANGE}
LOOKS: dict[str, dict[str, Any]] = {
    "best": {"linestyle": "-", "marker": "o"},
    "random": {"linestyle": "--", "marker": "^", "mfc": "white"},
}
APART = 1.1  # percentage points between the lines of a panel


@dataclass(frozen=True)
class PrunedLine:
    """A line: the best or random heads after a treatment; points are percentages kept."""

    series: str
    treatment: str
    points: Points


@style.for_print
def plot_pruned(
    grid: Mapping[str, Mapping[str, tuple[Sequence[PrunedLine], float]]],
) -> Figure:
    """Draw a row of panels for each measure, a column for what is removed.

    Each panel has its lines and the value of the whole model, a level line. Intervals are upright
    lines.
    """
    across = max(map(len, grid.values()))
    wide = style.PAGE if across > 1 else style.COLUMN
    figure = style.new_figure(wide, 0.8 + 1.75 * len(grid))
    axes = figure.subplots(len(grid), across, squeeze=False, sharex="col", sharey="row")
    for row, (label, panels) in enumerate(grid.items()):
        axes[row, 0].set_ylabel(label)
        for column, (title, (lines, whole)) in enumerate(panels.items()):
            _panel(axes[row, column], lines, whole)
            if row == len(grid) - 1:
                axes[row, column].set_xlabel(title)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=len(labels))
    return figure


def _panel(axes: Axes, lines: Sequence[PrunedLine], whole: float) -> None:
    axes.axhline(whole, color="black", linewidth=0.8, label="all heads")
    shares: set[float] = set()
    for number, line in enumerate(lines):
        # Equal lines must not hide each other, so that each stands a little apart.
        apart = APART * (number - (len(lines) - 1) / 2)
        points = [(share + apart, value, low, high) for share, value, low, high in line.points]
        colour = COLOURS[line.treatment]
        label = f"{line.series}, {line.treatment}"
        style.draw_line(axes, points, colour, label=label, **LOOKS[line.series])
        x, _, low, high = zip(*points, strict=True)
        axes.vlines(x, low, high, color=colour, linewidth=0.7)
        shares |= {share for share, *_ in line.points}
    axes.set_xticks(sorted(shares), [f"{share:.0f}" for share in sorted(shares)])
    axes.grid(True)
