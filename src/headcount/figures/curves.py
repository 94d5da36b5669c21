"""Head curves: a metric against the number of heads, with intervals as bands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from headcount.figures import style
from headcount.figures.style import Points, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The series of a single curve: solid lines for the ranking, broken lines for controls.
SINGLE: dict[str, dict[str, Any]] = {
    "top": {"colour": style.BLUE, "linestyle": "-", "marker": "o"},
    "bottom": {"colour": style.GREEN, "linestyle": "-", "marker": "s"},
    "random": {"colour": style.GREY, "linestyle": "--", "marker": "o"},
    "matched": {"colour": style.ORANGE, "linestyle": ":", "marker": "^"},
}
WIDE = 4  # the largest number of panels in a row
MARKERS = "osD^vPX*"
TOP: dict[str, Any] = {"linestyle": "-", "marker": "o", "markersize": 4, "linewidth": 1.6}
LOOKS = {
    "top": TOP,
    "random": {**TOP, "linestyle": "--", "band": 0.13},
    "matched": {**TOP, "linestyle": ":", "marker": "", "linewidth": 1.2, "band": 0.06},
}


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
) -> Axes:
    """Draw a tidy table, with the intervals of its points as bands: one line for each series.

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
        points = sorted(style.points_of(rows, name))
        if points:
            draws = max(row.get("draws", 1) for row in rows if row["series"] == name)
            several = f" (mean of {draws} draws)" * (alone and draws > 1)
            label = f"{style.SERIES.get(name, name)}{several}"
            style.draw_line(axes, points, label=label, band=0.15, **{"markersize": 5, **look})
    counts = sorted({row["count"] for row in rows})
    style.count_axis(axes, counts, "symlog", linthresh=1)
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


class _Line(NamedTuple):
    """A line of a panel and its style."""

    points: Points
    label: str
    colour: str
    look: dict[str, Any]


@style.figure_of_texts
def plot_panels(
    panels: Mapping[str, Sequence[tuple[str, Sequence[Row]]]],
    *,
    total: int,
    note: str = "",
    at_chance: Collection[str] = (),
) -> Figure:
    """Draw scores against the number of masked heads on a log-2 axis, as in the published figure.

    Each panel has the tidy tables of one or two metrics, by short name. The first metric is blue,
    the second red; TopK is solid, RandomK dashed, the layer-matched control dotted without markers.
    The panels of the titles `at_chance` are marked.
    """
    lines = {
        title: [
            _Line(style.points_of(rows, name), f"{style.SERIES[name]} {metric}", colour, look)
            for (metric, rows), colour in zip(tables, style.METRICS, strict=False)
            for name, look in LOOKS.items()
        ]
        for title, tables in panels.items()
    }
    words = [f"model of {total} heads", "bands: 95 % intervals of the random series", note]
    small = " · ".join(filter(None, words))
    return _plot(lines, "Score", small, at_chance, metrics=2)


@style.figure_of_texts
def plot_rankings(
    panels: Mapping[str, Mapping[str, Sequence[Row]]],
    *,
    total: int,
    metric: str,
    note: str = "",
    at_chance: Collection[str] = (),
) -> Figure:
    """Draw TopK of several rankings in each panel, and RandomK of the first ranking in grey.

    A ranking has the same colour and marker in all panels, even if some panels lack rankings. The
    panels of the titles `at_chance` are marked.
    """
    styles = _styles(dict.fromkeys(name for tables in panels.values() for name in tables))
    lines = {}
    for title, tables in panels.items():
        best = {name: style.points_of(rows, "top") for name, rows in tables.items()}
        control = style.points_of(next(iter(tables.values())), "random")
        lines[title] = [_Line(points, name, *styles[name]) for name, points in best.items()]
        lines[title].append(_Line(control, "RandomK", "#777777", LOOKS["random"]))
    small = f"TopK by each ranking · model of {total} heads{' · ' if note else ''}{note}"
    return _plot(lines, metric, small, at_chance, metrics=1)


def _styles(names: Iterable[str]) -> dict[str, tuple[str, dict[str, Any]]]:
    """A colour-blind-safe colour and a marker for each name; repeated colours change the marker."""
    styles = {}
    for number, name in enumerate(names):
        turn, colour = divmod(number, len(style.PALETTE))
        marker = MARKERS[(number + turn) % len(MARKERS)]
        styles[name] = (style.PALETTE[colour], {**TOP, "marker": marker})
    return styles


def _plot(
    panels: Mapping[str, Sequence[_Line]],
    label: str,
    small_print: str,
    at_chance: Collection[str],
    *,
    metrics: int,
) -> Figure:
    wide, high = min(WIDE, len(panels)), ceil(len(panels) / WIDE)
    # A single panel must be wide enough for a legend of one column.
    size = (3.1 * wide + 0.4, 3.1 * high + 0.7) if len(panels) > 1 else (4.4, 4.4)
    figure = style.new_figure(*size)
    grid = figure.subplots(high, wide, squeeze=False, sharey=True).ravel().tolist()
    for axes in grid[len(panels) :]:
        axes.set_visible(False)
    for axes, (title, lines) in zip(grid, panels.items(), strict=False):
        for line in lines:
            if line.points:
                x_of = _on_log_axis([count for count, *_ in line.points])
                points = [(x_of[n], value, low, high) for n, value, low, high in line.points]
                style.draw_line(axes, points, line.colour, label=line.label, **line.look)
        x_of = _on_log_axis(sorted({count for line in lines for count, *_ in line.points}))
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(x_of.values()), [str(count) for count in x_of])
        axes.minorticks_off()
        axes.set(title=title, xlabel="# Masked Heads")
        axes.set(ylim=(-0.03, 1.03), yticks=[0, 0.2, 0.4, 0.6, 0.8, 1.0])
        if title in at_chance:
            style.mark_chance(axes)
        axes.grid(alpha=0.25)
    for axes in grid[::WIDE]:
        axes.set_ylabel(label)
    _legend(figure, grid, metrics)
    style.small_print(figure, small_print + f" · {style.AT_CHANCE}" * bool(at_chance))
    return figure


def _on_log_axis(counts: Sequence[float]) -> dict[float, float]:
    """The x of each count; 0, which a log axis cannot show, stands one step before the first."""
    return {count: count or min((c for c in counts if c), default=2) / 2 for count in counts}


def _legend(figure: Figure, grid: Sequence[Axes], metrics: int) -> None:
    """Draw one legend above all panels, with a row for each metric if the figure is wide enough."""
    handles = {
        label: handle
        for axes in grid
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = sorted(handles, key="RandomK".__eq__)  # RandomK comes last
    wide = ceil(len(labels) / metrics)
    inches = 0.085 * max(map(len, labels))  # a character is 0.085 inches wide
    room = int(figure.get_figwidth() / inches)
    columns = wide if wide <= room else max(1, min(room, 2) if metrics > 1 else room)
    if columns == wide:
        labels = style.row_by_row(labels, wide)
    drawn = [handles[label] for label in labels]
    style.legend_above(figure, drawn, labels, ncols=columns, fontsize=9)
