"""Several curves side by side, one panel for each function, two metrics in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING

from headcount.curves import SERIES, Curve, Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 4  # panels in a row
BLUE, RED = "#1f5fbf", "#c8281e"
LINES = {"top": "-", "random": "--", "matched": ":"}
BANDS = ("random", "matched")
# Of rankings, which the published figure has one of: told apart also by those who see few colours.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#882255")
MARKERS = "osD^vPX*"


def plot_panels(
    panels: Mapping[str, Sequence[tuple[str, Curve]]], *, total: int, note: str = ""
) -> Figure:
    """Draw score against the number of masked heads on a log-2 axis, in the published form.

    Each panel has the curves of one or two metrics under their short names: the first is blue, the
    second red; TopK is solid, RandomK dashed, the layer-matched control dotted without markers.
    """
    figure, grid = _grid(len(panels))
    for axes, (title, curves) in zip(grid, panels.items(), strict=False):
        axes.set_title(title)
        for (metric, curve), colour in zip(curves, (BLUE, RED), strict=False):
            for name, line in LINES.items():
                points = curve.series(name)
                if points:
                    _line(axes, points, f"{SERIES[name]} {metric}", colour, line, name)
        counts = sorted({point.count for _, curve in curves for point in curve.points})
        _count_axis(axes, counts)
        axes.set_ylim(-0.03, 1.03)
        axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
        axes.set_xlabel("# Masked Heads")
        axes.grid(alpha=0.25)
    for axes in grid[::WIDE]:
        axes.set_ylabel("Score")
    _legend(figure, grid, metrics=2)
    _note(figure, f"of {total} heads · bands: 95 % intervals{' · ' if note else ''}{note}")
    return figure


def plot_rankings(
    panels: Mapping[str, Mapping[str, Curve]], *, total: int, metric: str, note: str = ""
) -> Figure:
    """TopK by several rankings in each panel, and RandomK of the first as a grey band.

    A ranking looks the same in all panels, also where a panel lacks others.
    """
    figure, grid = _grid(len(panels))
    looks = _looks(dict.fromkeys(name for curves in panels.values() for name in curves))
    for axes, (title, curves) in zip(grid, panels.items(), strict=False):
        axes.set_title(title)
        counts: set[int] = set()
        for name, curve in curves.items():
            points = curve.series("top")
            colour, marker = looks[name]
            _line(axes, points, name, colour, "-", "top", marker)
            counts |= {point.count for point in points}
        first = next(iter(curves.values()))
        _line(axes, first.series("random"), "RandomK", "#777777", "--", "random")
        _count_axis(axes, sorted(counts))
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("# Masked Heads")
        axes.grid(alpha=0.25)
    for axes in grid[::WIDE]:
        axes.set_ylabel(metric)
    _legend(figure, grid, metrics=1)
    _note(figure, f"TopK by ranking · of {total} heads{' · ' if note else ''}{note}")
    return figure


def _looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each name: markers differ where colours come again."""
    return {
        name: (
            COLOURS[place % len(COLOURS)],
            MARKERS[(place + place // len(COLOURS)) % len(MARKERS)],
        )
        for place, name in enumerate(names)
    }


def _legend(figure: Figure, grid: Sequence[Axes], metrics: int) -> None:
    """One legend over all panels, with a row for each metric where the figure is wide enough."""
    found = {
        label: handle
        for axes in grid
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = sorted(found, key="RandomK".__eq__)  # a panel may have rankings that the first lacks
    wide = ceil(len(labels) / metrics)
    room = int(figure.get_figwidth() / (0.085 * max(map(len, labels))))  # inches of a sign
    columns = wide if wide <= room else max(1, min(room, 2) if metrics > 1 else room)
    if columns == wide:  # legends are filled column by column, and this one is read row by row
        labels = [labels[i] for start in range(wide) for i in range(start, len(labels), wide)]
    figure.legend(
        [found[label] for label in labels],
        labels,
        loc="outside upper center",
        ncols=columns,
        frameon=False,
        fontsize=9,
    )


def _note(figure: Figure, text: str) -> None:
    """Small print below the panels, in as many lines as it takes."""
    signs = int(17 * figure.get_figwidth())
    figure.supxlabel(fill(text, signs), fontsize=7, color="#666666")


def _grid(panels: int) -> tuple[Figure, list[Axes]]:
    from matplotlib.figure import Figure

    wide = min(WIDE, panels)
    high = ceil(panels / WIDE)
    # A single panel is as wide as the longest name in its legend, which then is one column.
    size = (3.1 * wide + 0.4, 3.1 * high + 0.7) if panels > 1 else (4.4, 4.4)
    figure = Figure(figsize=size, layout="constrained")
    grid = figure.subplots(high, wide, squeeze=False, sharey=True).ravel().tolist()
    for axes in grid[panels:]:
        axes.set_visible(False)
    return figure, grid


def _line(
    axes: Axes,
    points: Sequence[Point],
    label: str,
    colour: str,
    line: str,
    name: str,
    marker: str = "o",
) -> None:
    if not points:
        return
    x = [_place(point.count, points) for point in points]
    control = name == "matched"
    axes.plot(
        x,
        [point.value for point in points],
        label=label,
        color=colour,
        linestyle=line,
        marker="" if control else marker,
        markersize=4,
        linewidth=1.2 if control else 1.6,
    )
    if name in BANDS:
        axes.fill_between(
            x,
            [point.low for point in points],
            [point.high for point in points],
            color=colour,
            alpha=0.06 if control else 0.13,
            linewidth=0,
        )


def _place(count: int, points: Sequence[Point]) -> float:
    """Zero has no place on a logarithmic axis: it stands one step before the first count."""
    return count or min((point.count for point in points if point.count), default=2) / 2


def _count_axis(axes: Axes, counts: Sequence[int]) -> None:
    places = [count or min((c for c in counts if c), default=2) / 2 for count in counts]
    axes.set_xscale("log", base=2)
    axes.set_xticks(places, [str(count) for count in counts])
    axes.minorticks_off()
