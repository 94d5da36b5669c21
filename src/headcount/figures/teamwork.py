"""The figure of `teamwork`: a map of all pairs of heads, and curves of sets against their sum."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
BOTTOM, TOP = -0.5, 3.5  # the y axis of the ratio ends here, even if bands go beyond
JOINT, SUM = "together", "sum of single"
BEST, OTHERS = "best", "random"
COLOURS = {BEST: style.BLUE, OTHERS: style.GREY}
LOOKS: dict[str, dict[str, Any]] = {
    JOINT: {"linestyle": "-", "marker": "o", "band": 0.2},
    SUM: {"linestyle": "--", "marker": "", "band": 0.0},
}
MARK: dict[str, Any] = {"marker": "o", "markersize": 3, "mfc": "white", "mec": "black", "mew": 0.6}


@dataclass(frozen=True)
class TeamMap:
    """One task: heads by name, their single losses, the interactions of all pairs, and the curves.

    against        heads that work against the answer
    interactions   NaN but where row > column
    judged         rows and columns of pairs whose interaction is clear
    ratios         joint loss over the sum of single losses, by size of the set
    losses         both, of the best heads and of random ones
    """

    title: str
    heads: Sequence[str]
    against: Collection[str]
    alone: Sequence[Ends]
    interactions: Float[np.ndarray, "heads heads"]
    judged: Sequence[tuple[int, int]]
    ratios: Points
    losses: Mapping[tuple[str, str], Points]


@style.for_print
def plot_teamwork(panels: Sequence[TeamMap]) -> Figure:
    """Draw each task in the width of a column: the map of pairs above, the curves below."""
    many = min(2, len(panels))
    high = max(1.7, 0.65 + 0.125 * max(len(panel.heads) for panel in panels))
    rows = -(-len(panels) // many)
    figure = style.new_figure(style.PAGE if many > 1 else style.COLUMN, rows * (high + 2.05))
    blocks = figure.subfigures(rows, many, squeeze=False).ravel()
    for block, panel in zip(blocks, panels, strict=False):
        _block(block, panel, high)
    return figure


def _block(block: SubFigure, panel: TeamMap, high: float) -> None:
    above, below = block.subfigures(2, 1, squeeze=False, height_ratios=(high + 0.35, 1.7))[:, 0]
    alone, heat = above.subplots(1, 2, sharey=True, width_ratios=(1, 3.4))
    _heat(heat, panel)
    _alone(alone, panel)
    above.suptitle(panel.title, fontsize=8)
    ratio, losses = below.subplots(1, 2)
    _curves(ratio, {(BEST, JOINT): panel.ratios}, level=1)
    ratio.set(title="ratio of the two", xlabel="heads off")
    bottom, top = ratio.get_ylim()
    ratio.set_ylim(max(bottom, BOTTOM), min(max(top, 1.2), TOP))
    _curves(losses, panel.losses, level=0)
    losses.set(title="loss", xlabel="heads off")
    handles, labels = losses.get_legend_handles_labels()
    style.legend_above(below, handles, labels, ncols=2)


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
    _in_colour(axes.get_yticklabels(), panel)


def _in_colour(labels: Sequence[Any], panel: TeamMap) -> None:
    for label in labels:
        if label.get_text() in panel.against:
            label.set_color(style.ORANGE)


def _heat(axes: Axes, panel: TeamMap) -> None:
    """Draw the interactions below the diagonal, and their scale in the free corner."""
    most = max(0.1, float(np.nanmax(np.abs(panel.interactions), initial=0.0)))
    image = axes.imshow(panel.interactions, cmap="RdBu_r", vmin=-most, vmax=most, aspect="auto")
    for row, column in panel.judged:
        axes.plot(column, row, **MARK)
    many = len(panel.heads)
    axes.set_xticks(range(many), panel.heads, rotation=90)
    _in_colour(axes.get_xticklabels(), panel)
    axes.set_xlim(-0.5, many - 0.5)
    axes.set_ylim(many - 0.5, -0.5)
    axes.tick_params(axis="y", labelleft=False)
    axes.tick_params(length=0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.set_title("joint loss − sum of single losses", fontsize=7)
    corner = axes.inset_axes((0.52, 0.84, 0.4, 0.05))
    bar = axes.figure.colorbar(image, cax=corner, orientation="horizontal", ticks=[-most, 0, most])
    bar.ax.set_xticklabels([f"−{most:.2f}\noverlap", "0", f"{most:.2f}\nbackup"])
    bar.ax.tick_params(labelsize=6)
    bar.outline.set_linewidth(0.4)


def _curves(axes: Axes, lines: Mapping[tuple[str, str], Points], *, level: float) -> None:
    """Draw lines against the size of the set; points without an interval are left out."""
    axes.axhline(level, color="#888888", linewidth=0.6)
    for (heads, what), points in lines.items():
        known = [point for point in points if np.isfinite(point[1:]).all()]
        if known:
            label = f"{heads}, {what}"
            style.draw_line(axes, known, COLOURS[heads], label=label, **LOOKS[what])
    counts = sorted({int(point[0]) for points in lines.values() for point in points})
    style.count_axis(axes, counts, "log")
    axes.grid(True)
