"""Head curves: a metric against the number of heads, with intervals as bands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

from headcount.figures import style
from headcount.figures.style import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# The series of a single curve: solid lines for the ranking, broken lines for controls.
SINGLE: dict[str, dict[str, Any]] = {
    "top": {"colour": style.BLUE, "linestyle": "-", "marker": "o"},
    "bottom": {"colour": style.GREEN, "linestyle": "-", "marker": "s"},
    "random": {"colour": style.GREY, "linestyle": "--", "marker": "o"},
    "matched": {"colour": style.ORANGE, "linestyle": ":", "marker": "^"},
    "anywhere": {"colour": "#882255", "linestyle": "-.", "marker": "D"},
    "reranked": {"colour": "#56B4E9", "linestyle": ":", "marker": "v"},
}
MARKERS = "osD^vPX*"


@style.figure_of_texts
def draw_curve(
    rows: Sequence[Row],
    *,
    xlabel: str,
    ylabel: str,
    title: str,
    note: str = "",
    shares: bool = False,
    axes: Axes | None = None,
    at_chance: bool = False,
    x: str = "count",
) -> Axes:
    """Draw a tidy table, with the intervals of its points as bands: one line for each series.

    `x` is the column along which it is drawn: the count, or a share from 0 to 1.
    Draws into `axes`, or into a new figure. Values that are `shares` are drawn from 0 to 1. `note`
    is added to the small print about bands and the number of examples. `at_chance` marks the panel.
    """
    alone = axes is None
    axes = axes or style.new_figure(6.4, 4.8).add_subplot()
    names = dict.fromkeys(row["series"] for row in rows)
    others = _styles(name for name in names if name not in SINGLE)
    lines = SINGLE | {name: {"colour": colour, **look} for name, (colour, look) in others.items()}
    drawn = max(row.get("draws", 1) for row in rows)
    for name, look in lines.items():
        points = sorted(style.points_of(rows, name, x))
        if points:
            draws = max(row.get("draws", 1) for row in rows if row["series"] == name)
            several = f" (mean of {draws} draws)" * (alone and draws > 1)
            label = f"{style.SERIES.get(name, name)}{several}"
            style.draw_line(axes, points, label=label, band=0.15, **{"markersize": 5, **look})
    if x == "count":
        style.count_axis(axes, sorted({row["count"] for row in rows}), "symlog", linthresh=1)
    else:
        style.share_axis(axes)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if shares:
        axes.set_ylim(-0.03, 1.03)
    axes.set_title(fill(title, style.characters_across(axes)))
    if at_chance:
        style.mark_chance(axes)
    axes.grid(alpha=0.25)
    fewest, most = (some(row["n"] for row in rows) for some in (min, max))
    n = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    words = ["bands: 95 % intervals", f"n = {n} examples", note, style.AT_CHANCE * at_chance]
    if drawn > 1 and not alone:  # a legend within the axes is short
        words.append(f"random: mean of {drawn} draws")
    style.legend_and_note(axes, " · ".join(filter(None, words)), alone=alone)
    return axes


def _styles(names: Iterable[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """A colour-blind-safe colour and a marker for each name; repeated colours change the marker."""
    styles = {}
    for number, name in enumerate(names):
        turn, colour = divmod(number, len(style.PALETTE))
        marker = MARKERS[(number + turn) % len(MARKERS)]
        styles[name] = (style.PALETTE[colour], {"linestyle": "-", "marker": marker})
    return styles
