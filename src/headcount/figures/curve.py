"""A head curve: value against number of heads, one line per series, bands for intervals."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from headcount.figures import style
from headcount.figures.style import Row

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Solid for the ranking under test, dashed for controls.
LOOKS: dict[str, dict[str, Any]] = {
    "top": {"colour": style.BLUE, "linestyle": "-", "marker": "o"},
    "bottom": {"colour": style.GREEN, "linestyle": "-", "marker": "s"},
    "random": {"colour": style.GREY, "linestyle": "--", "marker": "o"},
    "matched": {"colour": style.ORANGE, "linestyle": ":", "marker": "^"},
}


@style.figure_of_texts
def plot_curve(
    rows: Sequence[Row],
    *,
    heads: int,
    metric: str,
    ranking: str,
    stand_in: str,
    verb: str = "masked",
    shares: bool = False,
    title: str | None = None,
) -> Figure:
    """Draw the tidy table of a curve, with the intervals of all its points as bands.

    `heads` is how many the model has; values that are `shares` are drawn from 0 to 1.
    """
    figure = style.new_figure(6.4, 4.8)
    axes = figure.add_subplot()
    for name, look in LOOKS.items():
        points = style.points_of(rows, name)
        if points:
            draws = max(row["draws"] for row in rows if row["series"] == name)
            label = style.SERIES[name] + (f" (mean of {draws} draws)" if draws > 1 else "")
            style.draw_line(axes, points, label=label, band=0.15, markersize=5, **look)
    counts = sorted({row["count"] for row in rows})
    style.count_axis(axes, counts, "symlog", linthresh=1)
    axes.set_xlabel(f"Number of heads {verb} (of {heads})")
    axes.set_ylabel(metric)
    if shares:
        axes.set_ylim(-0.03, 1.03)
    first = rows[0]
    title = title or f"{first['task']} · {first['model']} · ranked by {ranking}"
    axes.set_title(fill(title, 56))  # as many signs as the figure is wide
    axes.grid(alpha=0.25)
    figure.legend(loc="outside upper center", ncols=2, frameon=False)
    note = f"bands: 95 % intervals · n = {first['n']} · stand-in: {stand_in}"
    style.small_print(figure, note, signs=96)
    return figure
