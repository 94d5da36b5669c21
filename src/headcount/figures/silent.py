"""Silent heads: what is left of a score against the share of heads zeroed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headcount.figures import layout, style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TOP, BELOW = 1.25, 0.6  # the y axis ends there, and so far below the lowest line
BAND = 0.22


@dataclass(frozen=True)
class SilentLine:
    """A line: per input by a score, or a random control."""

    label: str
    colour: str
    points: Points  # percentages of heads, and what is left
    look: str = "-"
    strong: bool = False  # drawn thicker, with a band; others have upright lines


@style.for_print
def plot_silent(panels: Mapping[str, Sequence[SilentLine]], *, mark: tuple[float, float]) -> Figure:
    """Draw one panel below the other at column width; the mark is a published point.

    The mark belongs to the first panel.
    """
    figure = style.new_figure(style.COLUMN, 0.75 + 1.75 * len(panels))
    grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)[:, 0]
    for number, (axes, (title, lines)) in enumerate(zip(grid, panels.items(), strict=True)):
        _curves(axes, lines)
        axes.set_ylabel(title)
        if number == 0:
            axes.plot(*mark, "+", color="black", markersize=8, markeredgewidth=1.2, zorder=5)
            above: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6.5}
            axes.annotate("published", mark, (0, 6), ha="center", **above)
    grid[-1].set_xlabel("Heads zeroed on a prompt (%), mean")
    handles, labels = grid[0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=2)
    return figure


def _curves(axes: Axes, lines: Sequence[SilentLine]) -> None:
    axes.axhline(1, color="#888888", linewidth=0.6)
    for line in lines:
        look: dict[str, Any] = {"linestyle": line.look, "marker": ".", "zorder": 3}
        if not line.strong:
            look |= {"linewidth": 0.8, "zorder": 2}
            x, _, low, high = zip(*line.points, strict=True)
            axes.vlines(x, low, high, color=line.colour, linewidth=0.6, alpha=0.6)
        band = BAND if line.strong else 0
        style.draw_line(axes, line.points, line.colour, band=band, label=line.label, **look)
    axes.set_xlim(left=0)
    bottom, top = axes.get_ylim()
    lowest = min(value for line in lines for _, value, _, _ in line.points)
    axes.set_ylim(max(bottom, lowest - BELOW), max(min(top, TOP), 1.18))  # room for a word above 1
    for line in lines:
        layout.mark_clipped(axes, line.points, line.colour)
    axes.grid(True)
