"""Scores against the length of a text: a row for each score, a column for each mask."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

from headcount.figures import style
from headcount.figures.masked import LOOKS
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

APART = 0.08  # octaves between the lines of a panel
WHOLE: dict[str, Any] = {"linestyle": "-", "marker": "s", "linewidth": 0.8}


@dataclass(frozen=True)
class LengthLine:
    """A line of a panel: its series, its label, its colour and its points (length, value, …)."""

    series: str
    label: str
    colour: str
    points: Points


@style.for_print
def plot_lengths(
    grid: Mapping[str, Mapping[str, Sequence[LengthLine]]],
    *,
    shares: Collection[str] = (),
    at_chance: Collection[int] = (),
) -> Figure:
    """Draw a row of panels for each score; scores among `shares` lie between 0 and 1.

    Intervals are upright lines: bands would cover each other where few needles make them wide.
    Lengths `at_chance` are shaded.
    """
    across = max(map(len, grid.values()))
    wide = style.PAGE if across > 2 else style.COLUMN
    figure = style.new_figure(wide, 0.75 + 1.5 * len(grid))
    axes = figure.subplots(len(grid), across, squeeze=False, sharex=True, sharey="row")
    for row, (label, panels) in enumerate(grid.items()):
        axes[row, 0].set_ylabel(label)
        for column, (title, lines) in enumerate(panels.items()):
            _panel(axes[row, column], lines, at_chance)
            if not row:
                axes[row, column].set_title(fill(title, 18 if across > 1 else 36))
            if row == len(grid) - 1:
                axes[row, column].set_xlabel("Tokens")
        if label in shares:
            axes[row, 0].set(ylim=(-0.03, 1.03), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1.0])
    handles, labels = axes[0, 0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=len(labels))
    return figure


def _panel(axes: Axes, lines: Sequence[LengthLine], at_chance: Collection[int]) -> None:
    lengths = sorted({int(length) for line in lines for length, *_ in line.points})
    for number, line in enumerate(lines):
        look = WHOLE if line.series == "whole" else LOOKS[line.series]
        # Equal lines must not hide each other, so that each stands a little apart.
        apart = 2 ** (APART * (number - (len(lines) - 1) / 2))
        points = [(length * apart, v, low, high) for length, v, low, high in line.points]
        style.draw_line(axes, points, line.colour, label=line.label, **look)
        x, _, low, high = zip(*points, strict=True)
        axes.vlines(x, low, high, color=line.colour, linewidth=0.7)
    axes.set_xscale("log", base=2)
    axes.set_xticks(lengths, [_short(length) for length in lengths])
    axes.minorticks_off()
    axes.set_xlim(lengths[0] / 1.25, lengths[-1] * 1.25)
    for length in at_chance:
        axes.axvspan(length / 1.2, length * 1.2, color="#e4e4e4", linewidth=0, zorder=0)
    axes.grid(True)


def _short(length: int) -> str:
    """A length with few digits, so that ticks do not touch: 512, 1k, 32k.

    >>> _short(512), _short(1024), _short(1500), _short(32000)
    ('512', '1k', '1.5k', '32k')
    """
    if length < 1000:
        return str(length)
    return f"{length / 1000:.1f}".removesuffix(".0") + "k"
