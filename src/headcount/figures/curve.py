"""A head curve: value against number of heads, one line per series, bands for intervals."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from headcount.figures.style import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SERIES,
    Row,
    draw_line,
    figure_of_texts,
    points_of,
    small_print,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Solid for the ranking under test, dashed for controls.
LOOKS: dict[str, dict[str, Any]] = {
    "top": {"colour": BLUE, "linestyle": "-", "marker": "o"},
    "bottom": {"colour": GREEN, "linestyle": "-", "marker": "s"},
    "random": {"colour": GREY, "linestyle": "--", "marker": "o"},
    "matched": {"colour": ORANGE, "linestyle": ":", "marker": "^"},
}


@figure_of_texts
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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for name, look in LOOKS.items():
        points = points_of(rows, name)
        if points:
            draws = max(row["draws"] for row in rows if row["series"] == name)
            label = SERIES[name] + (f" (mean of {draws} draws)" if draws > 1 else "")
            draw_line(axes, points, label=label, band=0.15, markersize=5, **look)
    counts = sorted({row["count"] for row in rows})
    if len(counts) > 2 and counts[-1] > 8:
        axes.set_xscale("symlog", base=2, linthresh=1)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
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
    small_print(figure, note, signs=96)
    return figure
