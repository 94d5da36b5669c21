"""Values of a few head sets side by side: a point with its interval for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headcount.figures.style import BLUE, figure_of_texts, legend_and_note, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@figure_of_texts
def draw_values(
    points: Sequence[tuple[str, float, float, float]],
    *,
    xlabel: str,
    note: str,
    shares: bool = False,
    axes: Axes | None = None,
) -> Axes:
    """Draw points, each with its name, value, and the ends of its interval, from top to bottom.

    Draws into `axes`, or into a new figure. Values that are `shares` are drawn from 0 to 1.
    """
    alone = axes is None
    axes = axes or new_figure(6.4, 1.4 + 0.3 * len(points)).add_subplot()
    names, values, lows, highs = zip(*points, strict=True)
    places = range(len(points))
    ends = [
        [value - low for value, low in zip(values, lows, strict=True)],
        [high - value for value, high in zip(values, highs, strict=True)],
    ]
    label = "mean, 95 % interval"
    axes.errorbar(values, places, xerr=ends, fmt="o", color=BLUE, capsize=3, label=label)
    axes.set_yticks(places, names)
    axes.set(xlabel=xlabel, ylim=(len(points) - 0.5, -0.5))
    if shares:
        axes.set_xlim(-0.03, 1.03)
    axes.grid(alpha=0.25, axis="x")
    legend_and_note(axes, note, alone=alone)
    return axes
