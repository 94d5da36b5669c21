"""The figure of `teamwork`: a map of all pairs of heads, and curves of sets against their sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headcount.figures import style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

Ends = tuple[float, float, float]  # value, low, high
BOTTOM, TOP = -0.5, 3.5  # the y axis of the curve ends here, even if bands go beyond
LOOKS: tuple[dict[str, Any], ...] = (
    {"color": style.BLUE, "marker": "o", "band": 0.2},
    {"color": style.GREY, "marker": "^", "linestyle": "--", "band": 0.1},
)
SURE = "•"  # in cells that are judged backup or overlap


@dataclass(frozen=True)
class TeamMap:
    """One task: heads by name, their single losses, the interactions of all pairs, and the curves.

    `interactions` is NaN but where row > column; `sure` marks pairs that are judged.
    """

    title: str
    heads: Sequence[str]
    alone: Sequence[Ends]
    interactions: Float[np.ndarray, "heads heads"]
    sure: Sequence[tuple[int, int]]
    curves: Mapping[str, Points]


@style.for_print
def plot_teamwork(panels: Sequence[TeamMap]) -> Figure:
    """Draw each task in the width of a column: the map of pairs above, the curves below."""
    many = min(2, len(panels))
    high = max(1.7, 0.65 + 0.125 * max(len(panel.heads) for panel in panels))
    rows = -(-len(panels) // many)
    figure = style.new_figure(style.PAGE if many > 1 else style.COLUMN, rows * (high + 1.75))
    blocks = figure.subfigures(rows, many, squeeze=False).ravel()
    for block, panel in zip(blocks, panels, strict=False):
        _block(block, panel, high)
    return figure


def _block(block: SubFigure, panel: TeamMap, high: float) -> None:
    grid = block.add_gridspec(2, 2, width_ratios=(1, 3.4), height_ratios=(high, 1.2))
    heat = block.add_subplot(grid[0, 1])
    _alone(block.add_subplot(grid[0, 0], sharey=heat), panel)
    _heat(heat, panel)
    _ratio(block.add_subplot(grid[1, :]), panel.curves)
    block.suptitle(panel.title, fontsize=8)


def _alone(axes: Axes, panel: TeamMap) -> None:
    """Draw what each head costs alone, on the rows of the map."""
    value, low, high = (np.array(numbers) for numbers in zip(*panel.alone, strict=True))
    rows = np.arange(len(value))
    axes.barh(rows, value, height=0.7, color=style.BLUE, alpha=0.45)
    axes.hlines(rows, low, high, color=style.BLUE, linewidth=0.8)
    axes.axvline(0, color="black", linewidth=0.6)
    axes.set_yticks(rows, panel.heads)
    axes.tick_params(axis="y", length=0)
    axes.set_title("loss, alone", fontsize=7)
    axes.locator_params(axis="x", nbins=3)
    axes.margins(y=0)


def _heat(axes: Axes, panel: TeamMap) -> None:
    """Draw the interactions below the diagonal, and their scale in the free corner."""
    most = max(0.1, float(np.nanmax(np.abs(panel.interactions), initial=0.0)))
    image = axes.imshow(panel.interactions, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    for row, column in panel.sure:
        axes.text(column, row, SURE, ha="center", va="center", fontsize=7)
    many = len(panel.heads)
    axes.set_xticks(range(many), panel.heads, rotation=90)
    axes.set_xlim(-0.5, many - 0.5)
    axes.set_ylim(many - 0.5, -0.5)
    axes.tick_params(axis="y", labelleft=False)
    axes.tick_params(length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title("joint loss − sum of single losses", fontsize=7)
    corner = axes.inset_axes((0.5, 0.84, 0.46, 0.05))
    bar = axes.figure.colorbar(image, cax=corner, orientation="horizontal", ticks=[-most, 0, most])
    bar.ax.set_xticklabels([f"−{most:.2f}\noverlap", "0", f"{most:.2f}\nbackup"])
    bar.ax.tick_params(labelsize=6)
    bar.outline.set_linewidth(0.4)


def _ratio(axes: Axes, curves: Mapping[str, Points]) -> None:
    """Draw the ratio of joint loss and sum of single losses against the size of the set."""
    axes.axhline(1, color="#888888", linewidth=0.6)
    for (label, points), look in zip(curves.items(), LOOKS, strict=False):
        own = dict(look)
        colour, band = own.pop("color"), own.pop("band")
        known = [point for point in points if np.isfinite(point[1:]).all()]
        if known:
            style.draw_line(axes, known, colour, band=band, label=label, **own)
    counts = sorted({int(point[0]) for points in curves.values() for point in points})
    style.count_axis(axes, counts, "log")
    bottom, top = axes.get_ylim()
    axes.set_ylim(max(bottom, BOTTOM), min(max(top, 1.2), TOP))
    axes.set(xlabel="heads off together", ylabel="joint loss /\nsum of single")
    axes.grid(True)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, loc="best")
