"""Several curves side by side, one panel for each function, two metrics in each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from headcount.figures.style import (
    METRICS,
    PALETTE,
    SERIES,
    Points,
    Row,
    draw_line,
    figure_of_texts,
    legend_above,
    points_of,
    row_by_row,
    small_print,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 4  # panels in a row
MARKERS = "osD^vPX*"
TOP: dict[str, Any] = {"linestyle": "-", "marker": "o", "markersize": 4, "linewidth": 1.6}
LOOKS = {
    "top": TOP,
    "random": {**TOP, "linestyle": "--", "band": 0.13},
    "matched": {**TOP, "linestyle": ":", "marker": "", "linewidth": 1.2, "band": 0.06},
}


@figure_of_texts
def plot_panels(
    panels: Mapping[str, Sequence[tuple[str, Sequence[Row]]]], *, total: int, note: str = ""
) -> Figure:
    """Draw score against the number of masked heads on a log-2 axis, in the published form.

    Each panel has the tidy tables of one or two metrics under their short names: the first is blue,
    the second red; TopK is solid, RandomK dashed, the layer-matched control dotted without markers.
    """
    figure, grid = _grid(len(panels))
    for axes, (title, tables) in zip(grid, panels.items(), strict=False):
        for (metric, rows), colour in zip(tables, METRICS, strict=False):
            for name, look in LOOKS.items():
                points, label = points_of(rows, name), f"{SERIES[name]} {metric}"
                _draw(axes, points, colour, label=label, **look)
        _finish(axes, title, {row["count"] for _, rows in tables for row in rows})
        axes.set_yticks([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    for axes in grid[::WIDE]:
        axes.set_ylabel("Score")
    _legend(figure, grid, metrics=2)
    small_print(figure, f"of {total} heads · bands: 95 % intervals{' · ' if note else ''}{note}")
    return figure


@figure_of_texts
def plot_rankings(
    panels: Mapping[str, Mapping[str, Sequence[Row]]], *, total: int, metric: str, note: str = ""
) -> Figure:
    """TopK by several rankings in each panel, and RandomK of the first as a grey band.

    A ranking looks the same in all panels, also where a panel lacks others.
    """
    figure, grid = _grid(len(panels))
    looks = _looks(dict.fromkeys(name for tables in panels.values() for name in tables))
    for axes, (title, tables) in zip(grid, panels.items(), strict=False):
        counts: set[int] = set()
        for name, rows in tables.items():
            colour, marker = looks[name]
            _draw(axes, points_of(rows, "top"), colour, label=name, **{**TOP, "marker": marker})
            counts |= {row["count"] for row in rows if row["series"] == "top"}
        control = points_of(next(iter(tables.values())), "random")
        _draw(axes, control, "#777777", label="RandomK", **LOOKS["random"])
        _finish(axes, title, counts)
    for axes in grid[::WIDE]:
        axes.set_ylabel(metric)
    _legend(figure, grid, metrics=1)
    small_print(figure, f"TopK by ranking · of {total} heads{' · ' if note else ''}{note}")
    return figure


def _looks(names: Iterable[str]) -> dict[str, tuple[str, str]]:
    """A colour and a marker for each name: markers differ where colours come again."""
    size = len(PALETTE)
    return {
        name: (PALETTE[number % size], MARKERS[(number + number // size) % len(MARKERS)])
        for number, name in enumerate(names)
    }


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


def _draw(axes: Axes, points: Points, colour: str, **look: Any) -> None:
    if points:
        places = _places([count for count, *_ in points])
        draw_line(axes, [(places[count], *rest) for count, *rest in points], colour, **look)  # type: ignore[misc]


def _places(counts: Sequence[int]) -> dict[int, float]:
    """Zero has no place on a logarithmic axis: it stands one step before the first count."""
    return {count: count or min((c for c in counts if c), default=2) / 2 for count in counts}


def _finish(axes: Axes, title: str, counts: Iterable[int]) -> None:
    """Title and axes of a panel: all counts on a log-2 axis, and scores from 0 to 1."""
    places = _places(sorted(counts))
    axes.set_title(title)
    axes.set_xscale("log", base=2)
    axes.set_xticks(list(places.values()), [str(count) for count in places])
    axes.minorticks_off()
    axes.set_ylim(-0.03, 1.03)
    axes.set_xlabel("# Masked Heads")
    axes.grid(alpha=0.25)


def _legend(figure: Figure, grid: Sequence[Axes], metrics: int) -> None:
    """One legend over all panels, with a row for each metric where the figure is wide enough."""
    handles = {
        label: handle
        for axes in grid
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = sorted(handles, key="RandomK".__eq__)  # a panel may have rankings that others lack
    wide = ceil(len(labels) / metrics)
    room = int(figure.get_figwidth() / (0.085 * max(map(len, labels))))  # inches of a sign
    columns = wide if wide <= room else max(1, min(room, 2) if metrics > 1 else room)
    if columns == wide:
        labels = row_by_row(labels, wide)
    legend_above(figure, [handles[label] for label in labels], labels, ncols=columns, fontsize=9)
