"""Heads kept: explained effect against the number of heads, of one model or two."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from textwrap import fill
from typing import TYPE_CHECKING

from headcount.figures import style
from headcount.figures.style import Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BOTTOM, TOP = -0.6, 2.2  # the y axis ends here, even if explained effects or bands go beyond


@dataclass(frozen=True)
class Line:
    """The curve of one model, its curve in random order, and the heads that it needs."""

    label: str
    points: Points
    random: Points
    needed: float  # NaN if unknown


@dataclass(frozen=True)
class KeptPanel:
    """One task: the line of one model, or of two models with the ratio of the heads they need."""

    title: str
    lines: Sequence[Line]
    ratio: float | None = None
    at_chance: Sequence[str] = ()  # the labels of models that are at chance


@style.figure_of_texts
def plot_kept(panels: Sequence[KeptPanel], *, threshold: float, note: str = "") -> Figure:
    """Draw one panel per task as published, with bands and a dashed line at the threshold.

    With two models, the dashed line joins their curves; its label gives the ratio of the heads
    needed and both counts. With one model, it ends at that model's count. Random orders are thin.
    """
    figure = style.new_figure(3.1 * len(panels) + 0.4, 3.7)
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    values, ends = [0.0, 1.0], [0.0, 1.0]  # y values of curves, and ends of their bands
    for number, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
        # As published: the first two panels share a pair of colours, the others another pair.
        for line, colour in zip(panel.lines, style.PAIRS[min(number // 2, 1)], strict=False):
            style.draw_line(axes, line.points, colour, band=0.2, label=line.label)
            if line.random:
                label = f"{line.label}, random order"
                style.draw_line(axes, line.random, colour, linewidth=0.7, alpha=0.8, label=label)
            known = [point for point in (*line.points, *line.random) if math.isfinite(point[2])]
            values += [value for _, value, _, _ in known]
            ends += [end for _, _, *both in line.points for end in both if math.isfinite(end)]
        _threshold(axes, panel, threshold)
        axes.set(title=panel.title, xlabel="Number of Heads Kept", yticks=[0.0, 0.5, 1.0])
        if panel.at_chance:
            which = f": {', '.join(panel.at_chance)}" * (len(panel.lines) > len(panel.at_chance))
            style.mark_chance(axes, fill(f"at chance{which}", 30))
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
    # The legend has one row for each pair of colours.
    columns = min(len(grid), 4)
    pairs = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in grid[:4:2]]
    entries = style.row_by_row(list(chain(*pairs)), columns)
    style.legend_above(figure, *zip(*entries, strict=True), ncols=columns, fontsize=8)
    lowest, highest = min(*values, *ends), max(*values, *ends)
    bottom, top = max(lowest, BOTTOM) - 0.12, min(highest, TOP) + 0.12
    grid[0].set(ylabel="Explained Effect", ylim=(bottom, top))
    if lowest < BOTTOM or highest > TOP:
        cut = "bands" if all(bottom <= value <= top for value in values) else "curves"
        note = f"{note} · some {cut} continue beyond the frame".removeprefix(" · ")
    if any(panel.at_chance for panel in panels):
        note = f"{note} · {style.AT_CHANCE}".removeprefix(" · ")
    style.small_print(figure, note)
    return figure


def _threshold(axes: Axes, panel: KeptPanel, threshold: float) -> None:
    needed = [line.needed for line in panel.lines]
    if any(math.isnan(count) for count in needed):  # there is nothing to mark
        return
    total = max(count for line in panel.lines for count, *_ in line.points)
    counts = " / ".join(f"all {total}" if count == total else f"{count:.0f}" for count in needed)
    left, right = (0.0, needed[0]) if len(needed) == 1 else (min(needed), max(needed))
    axes.plot([left, right], [threshold] * 2, color="black", linestyle="--", linewidth=1.2)
    text = "1 head" if counts == "1" else f"{counts} heads"
    if panel.ratio is not None and left < total:  # if both models need all heads, 1x is no result
        text = f"{panel.ratio:.1f}x\n{text}"
    # Next to the end of the line or, without room there, in the corner that has no curves.
    corner = right > 0.6 * total
    axes.annotate(
        text,
        (0.03, 0.97) if corner else (right, threshold),
        xycoords="axes fraction" if corner else "data",
        xytext=(0, 0) if corner else (5, -3),
        textcoords="offset points",
        va="top",
        fontsize=8,
        bbox={"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 1},
    )
