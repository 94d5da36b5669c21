"""Where panels, axes and marks stand: grids for a page and a column, log axes, clipped bands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headcount.figures.style import COLUMN, NARROW, Points, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def mark_clipped(axes: Axes, points: Points, colour: str) -> None:
    """Mark with a small triangle at the frame where a band leaves the axes, in their final range.

    Of neighbouring points beyond one edge, the farthest is marked.
    """
    bottom, top = axes.get_ylim()
    edge: dict[str, Any] = {"color": colour, "markersize": 3.5, "clip_on": False, "zorder": 6}
    for beyond, place, marker in (
        (lambda low, high: high - top, 1.0, "^"),
        (lambda low, high: bottom - low, 0.0, "v"),
    ):
        runs: list[list[tuple[float, float]]] = [[]]
        for x, _, low, high in points:
            out = beyond(low, high)
            if out > 0:
                runs[-1].append((out, x))
            elif runs[-1]:
                runs.append([])
        for run in filter(None, runs):
            x = max(run)[1]
            axes.plot([x], [place], marker, transform=axes.get_xaxis_transform(), **edge)


def break_axis(axes: Axes, at: float) -> None:
    """Mark a break of the x axis at this share of its width: left of it stands 0."""
    how: dict[str, Any] = {"transform": axes.transAxes, "clip_on": False, "zorder": 5}
    axes.plot([at - 0.012, at + 0.012], [0, 0], color="white", linewidth=2.2, **how)
    for shift in (-0.012, 0.012):
        ends = [at + shift - 0.008, at + shift + 0.008]
        axes.plot(ends, [-0.025, 0.025], color="black", linewidth=0.6, **how)


def log_axis(axes: Axes, ticks: Sequence[float], labels: Sequence[str], *, base: int = 10) -> None:
    """A log x axis with these ticks, and a minor tick at every whole number between powers of ten.

    On an axis of another base the ticks are all there is.
    """
    from matplotlib.ticker import LogLocator, NullFormatter

    axes.set_xscale("log", base=base)
    axes.set_xticks(list(ticks), list(labels))
    if base == 10:
        axes.xaxis.set_minor_locator(LogLocator(subs=range(2, 10)))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.tick_params(which="minor", length=1.5, width=0.4)
    else:
        axes.minorticks_off()


def both_widths(
    name: str, plot: Callable[..., Figure], *arguments: Any, **options: Any
) -> dict[str, Figure]:
    """The figure `name`, and NAME-column as wide as a column unless the first one is."""
    figures = {name: plot(*arguments, **options)}
    if figures[name].get_figwidth() > COLUMN:
        figures[f"{name}{NARROW}"] = plot(*arguments, **options, width=COLUMN)
    return figures


def panel_grid(
    count: int, width: float, high: float, above: float, **shared: Any
) -> tuple[Figure, list[Axes]]:
    """A figure with `count` panels, four in a row on a page and two in a column.

    `high` is the height of a panel with its title and axis, `above` that of the legend. A single
    panel or two have the width of a column.
    """
    if count < 3:
        width = COLUMN
    across = min(count, 4 if width > COLUMN else 2)
    rows = -(-count // across)
    figure = new_figure(width, above + high * rows)
    grid = figure.subplots(rows, across, squeeze=False, **shared).ravel().tolist()
    for empty in grid[count:]:
        empty.set_visible(False)
    for number, axes in enumerate(grid[:count]):
        axes.tick_params(labelbottom=number + across >= count or not shared.get("sharex"))
    return figure, grid[:count]


def panel_pairs(
    count: int, width: float, *, both: bool
) -> tuple[Figure, list[Axes], list[list[Axes]]]:
    """A figure with two axes for each of `count` panels, or without `both` with one.

    Two axes stand one below the other on a page, and side by side in a column. Returned are all
    axes row by row, and those of each panel.
    """
    if not both:
        figure, grid = panel_grid(count, width, 1.7, 0.5 if width > COLUMN else 0.7, sharey=True)
        return figure, grid, [[axes] for axes in grid]
    beside = width <= COLUMN or count == 1
    figure = new_figure(COLUMN if beside else width, 0.6 + (1.4 * count if beside else 3.2))
    table = figure.subplots(*((count, 2) if beside else (2, count)), squeeze=False, sharey=True)
    return figure, table.ravel().tolist(), (table if beside else table.T).tolist()


def outer_labels(grid: Sequence[Axes], xlabel: str, ylabel: str) -> None:
    """Name the axes at the edges of a grid: below the lowest panels and left of the first ones."""
    across = grid[0].get_subplotspec().get_gridspec().ncols  # type: ignore[union-attr]
    for number, axes in enumerate(grid):
        if number + across >= len(grid):
            axes.set_xlabel(xlabel)
        if number % across == 0:
            axes.set_ylabel(ylabel)
