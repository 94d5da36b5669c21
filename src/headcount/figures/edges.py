"""Sparse post-training: open edges and held-out loss against training steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING

from headcount.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Log = Sequence[Mapping[str, float]]
TICKS = [step * 10**power for power in range(-2, 3) for step in (1, 1.5, 2, 3, 5)]


@style.for_print
def plot_edges(log: Log, *, control: Log = (), title: str = "Sparse post-training") -> Figure:
    """Draw two panels over the same steps: open edges (hard gates), and loss on held-out text."""
    figure = style.new_figure(style.COLUMN, 3.9)
    edges, loss = figure.subplots(2, 1, sharex=True)
    steps = _column(log, "step")
    edges.plot(steps, [100 * share for share in _column(log, "open_edges")], color=style.BLUE)
    shown = [row for row in log if math.isfinite(row["averaged_edges"])]
    averaged = [100 * share for share in _column(shown, "averaged_edges")]
    edges.plot(_column(shown, "step"), averaged, "o", color=style.BLUE, label="averaged weights")
    edges.set(yscale="log", ylabel="Open edges (%)", title=fill(title, 50))
    _ticks(edges)
    loss.plot(steps, _column(log, "constraint_loss"), color=style.BLUE, label="sparse")
    if control:
        dense = _column(control, "step"), _column(control, "constraint_loss")
        loss.plot(*dense, color=style.GREY, linestyle="--", label="dense control")
    if log and math.isfinite(log[-1]["limit"]):
        loss.plot(steps, _column(log, "limit"), color=style.ORANGE, linestyle=":", label="limit")
    loss.set(xlabel="Training step", ylabel="Held-out loss (nats per token)")
    for axes in (edges, loss):
        axes.grid(True)
        axes.legend(frameon=False)
    return figure


def _ticks(axes: Axes) -> None:
    """Label so many percentages of a log axis that every value can be read off it."""
    low, high = axes.get_ylim()
    ticks = [tick for tick in TICKS if low / 1.1 <= tick <= high * 1.1]
    axes.set_yticks(ticks, [f"{tick:.3g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_ylim(low, high)


def _column(rows: Log, name: str) -> list[float]:
    return [row[name] for row in rows]
