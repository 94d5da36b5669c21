"""Heads kept: explained effect against the number of heads, dense and sparse side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

from headcount.stats import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# As published: one pair of colours for the first two panels, another for the others.
COLOURS = (("#1f77b4", "#ff7f0e"), ("#2ca02c", "#e377c2"))
BOTTOM, TOP = -0.6, 2.2  # what lies beyond is cut off: the explained effect may pass 2

Points = Sequence[tuple[int, Interval]]  # by number of heads


@dataclass(frozen=True)
class Line:
    """One model's curve, the same in random order, and the heads that it needs."""

    label: str
    points: Points
    random: Points
    needed: float  # NaN where it cannot be known


@dataclass(frozen=True)
class KeptPanel:
    """One task: one line, or two and the ratio of the heads that they need."""

    title: str
    lines: Sequence[Line]
    ratio: Interval | None = None


def plot_kept(panels: Sequence[KeptPanel], *, threshold: float, note: str = "") -> Figure:
    """Draw the published form: four panels, bands over prompts, a dashed line at the threshold.

    The dashed line joins the two curves and bears the ratio of the heads needed, with both counts
    below it. With one model it marks that model's count. Random orders are thin lines.
    """
    from matplotlib.figure import Figure

    size = (3.1 * len(panels) + 0.4, 3.7)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    lowest, highest = 0.0, 1.0
    values: list[float] = []
    for number, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
        colours = COLOURS[min(number // 2, 1)]
        for line, colour in zip(panel.lines, colours, strict=False):
            _draw(axes, line, colour)
            drawn = [one for _, one in line.points if one.known]
            values += [one.value for _, one in (*line.points, *line.random) if one.known]
            lowest = min([lowest, *values, *(one.low for one in drawn)])
            highest = max([highest, *values, *(one.high for one in drawn)])
        _threshold(axes, panel, threshold)
        axes.set_title(panel.title)
        axes.set_xlabel("Number of Heads Kept")
        axes.set_yticks([0.0, 0.5, 1.0])
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
    _legend(figure, grid)
    grid[0].set_ylabel("Explained Effect")
    bottom, top = max(lowest, BOTTOM) - 0.12, min(highest, TOP) + 0.12
    grid[0].set_ylim(bottom, top)
    if lowest < BOTTOM or highest > TOP:
        cut = "bands" if all(bottom <= value <= top for value in values) else "curves"
        note = f"{note} · some {cut} go on beyond the frame".removeprefix(" · ")
    if note:
        figure.supxlabel(fill(note, int(17 * size[0])), fontsize=7, color="#666666")
    return figure


def _legend(figure: Figure, grid: Sequence[Axes]) -> None:
    """Above the panels, where it hides no curve: a row for each pair of colours."""
    found = [zip(*axes.get_legend_handles_labels(), strict=True) for axes in grid[:4:2]]
    entries = [entry for pair in found for entry in pair]
    columns = min(len(grid), 4)
    # Legends are filled column by column, and this one is read row by row.
    order = [i for start in range(columns) for i in range(start, len(entries), columns)]
    figure.legend(
        [entries[i][0] for i in order],
        [entries[i][1] for i in order],
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def _draw(axes: Axes, line: Line, colour: str) -> None:
    x = [count for count, _ in line.points]
    axes.plot(x, [one.value for _, one in line.points], color=colour, label=line.label)
    lows, highs = ([getattr(one, end) for _, one in line.points] for end in ("low", "high"))
    axes.fill_between(x, lows, highs, color=colour, alpha=0.2, linewidth=0)
    if line.random:
        x = [count for count, _ in line.random]
        values = [one.value for _, one in line.random]
        label = f"{line.label}, random order"
        axes.plot(x, values, color=colour, linewidth=0.7, alpha=0.8, label=label)


def _threshold(axes: Axes, panel: KeptPanel, threshold: float) -> None:
    needed = [line.needed for line in panel.lines]
    if any(count != count for count in needed):  # NaN: nothing to mark
        return
    total = max(count for line in panel.lines for count, _ in line.points)
    counts = " / ".join(f"all {total}" if count == total else f"{count:.0f}" for count in needed)
    left, right = (0.0, needed[0]) if len(needed) == 1 else (min(needed), max(needed))
    axes.plot([left, right], [threshold] * 2, color="black", linestyle="--", linewidth=1.2)
    text = f"{counts} heads"
    if panel.ratio is not None and left < total:  # with all heads on both sides it tells nothing
        text = f"{panel.ratio.value:.1f}x\n{text}"
    # Beside the end of the line or, where there is no room, in the corner that curves leave free.
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
