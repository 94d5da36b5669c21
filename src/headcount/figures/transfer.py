"""The matrix of `transfer`: heads ranked on one task, tested on another, and what is specific."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from headcount.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Ends = tuple[float, float, float]  # value, low, high
ABSENT = "#E6E6E6"
IN_COLUMN, ON_PAGE = 4, 8  # tasks whose intervals can be read in the matrix
INSET = 0.47  # half the side of a box: boxes of neighbours do not touch
LOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "TopK": (style.METRICS[0], {"marker": "o"}),
    "layer-matched": (style.ORANGE, {"marker": "^", "mfc": "white"}),
}


@style.for_print
def plot_transfer(
    names: Sequence[str],
    losses: Float[np.ndarray, "ranked tested ends"],
    stars: Int[np.ndarray, "ranked tested"],
    specific: Mapping[str, Sequence[Ends | None]],
    *,
    at_chance: Collection[str] = (),
    border: int = 0,
) -> Figure:
    """Draw the losses (value, low, high) as a heat map, and below it the specificity of each task.

    Each value is followed by its `stars`, and stands above its interval where there is room for
    that. `specific` has the intervals of each series by row, columns of tasks `at_chance` are grey,
    and a line stands before the row and column `border`, unless it is 0.
    """
    many = len(names)
    wide = style.COLUMN if many <= IN_COLUMN else style.PAGE
    high = 0.34 if many <= ON_PAGE else 0.26
    figure = style.new_figure(wide, 1.75 + high * many + 0.23 * many)
    heat, dots = figure.subplots(2, 1, height_ratios=(high, 0.23))
    _heat(heat, names, losses[..., 0], at_chance)
    for text, ends, marks in zip(heat.texts, losses.reshape(-1, 3), stars.ravel(), strict=True):
        text.set_text(text.get_text() + "*" * int(marks))
        if many <= ON_PAGE and not np.isnan(ends).any():
            low, top = map(_number, ends[1:])
            text.set_text(f"{text.get_text()}\n{low}, {top}")
    for place in range(many):  # the box of a task under its own heads
        around = np.array([[-1, 1, 1, -1, -1], [-1, -1, 1, 1, -1]]) * INSET + place
        heat.plot(*around, color="black", linewidth=0.9)
    if border:
        for line in (heat.axhline, heat.axvline):
            line(border - 0.5, color="black", linewidth=0.6, linestyle=(0, (4, 3)))
    heat.set_title("loss, share of what can be lost")
    heat.set(xlabel="tested on", ylabel="heads ranked on")
    _dots(dots, specific, names)
    if dots.get_legend_handles_labels()[0]:  # none if all tasks are at chance
        dots.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False)
    return figure


def _dots(axes: Axes, specific: Mapping[str, Sequence[Ends | None]], names: Sequence[str]) -> None:
    """Draw the intervals of each series, a row for each task."""
    shifts = np.linspace(-0.15, 0.15, len(specific))
    for (series, intervals), shift in zip(specific.items(), shifts, strict=True):
        colour, look = LOOKS[series]
        label: str | None = series
        for row, ends in enumerate(intervals):
            if ends is not None:
                value, low, high = ends
                axes.hlines(row + shift, low, high, color=colour, linewidth=1.0)
                axes.plot([value], [row + shift], color=colour, label=label, **look)
                label = None
    axes.axvline(0, color=style.GREY, linewidth=0.6)
    axes.set_yticks(range(len(names)), [fill(name, 14) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("specificity:\nown loss − mean of row and column")
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0)


@style.for_print
def plot_shared(
    names: Sequence[str], shares: Float[np.ndarray, "one other"], chance: float
) -> Figure:
    """Draw the share of best heads that two tasks have in common, as a heat map, with chance."""
    figure = style.new_figure(style.COLUMN, 1.2 + 0.26 * len(names))
    axes = figure.add_subplot()
    _heat(axes, names, shares, ())
    axes.set_title(f"share of best heads in common\n(by chance {chance:.3f})")
    return figure


def _heat(
    axes: Axes,
    names: Sequence[str],
    shown: Float[np.ndarray, "rows columns"],
    at_chance: Collection[str],
) -> None:
    """Draw numbers on colours, from 0 to 1; what is not known stays grey."""
    axes.set_facecolor(ABSENT)
    axes.imshow(shown, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for (row, column), value in np.ndenumerate(shown):
        ink = "white" if value > 0.6 else "black"
        axes.text(column, row, _number(value), ha="center", va="center", color=ink, fontsize=6)
    titles = [f"{name} (at chance)" if name in at_chance else name for name in names]
    columns = [fill(title, 14) for title in titles]
    axes.set_xticks(range(len(names)), columns, rotation=90)
    axes.set_yticks(range(len(names)), [fill(title, 14) for title in titles])
    axes.tick_params(length=0)


def _number(value: float) -> str:
    # + 0.0 turns -0.0 into 0.0, so that a rounded zero has no minus
    return "–" if np.isnan(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")
