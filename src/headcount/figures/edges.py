"""Sparse post-training: open edges and held-out loss against training steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headcount.figures.style import BLUE, GREY, ORANGE, figure_of_texts, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Log = Sequence[Mapping[str, float]]


@figure_of_texts
def plot_edges(log: Log, *, control: Log = (), title: str = "Sparse post-training") -> Figure:
    """Draw two panels over the same steps: open edges (hard gates), and loss on held-out text."""
    from matplotlib.ticker import LogFormatter

    figure = new_figure(6.4, 6.0)
    edges, loss = figure.subplots(2, 1, sharex=True)
    steps = _column(log, "step")
    edges.plot(steps, [100 * share for share in _column(log, "open_edges")], color=BLUE)
    shown = [row for row in log if math.isfinite(row["averaged_edges"])]
    averaged = [100 * share for share in _column(shown, "averaged_edges")]
    dots = {"marker": "o", "linestyle": "", "markersize": 4}
    edges.plot(_column(shown, "step"), averaged, color=BLUE, label="averaged weights", **dots)
    edges.set(yscale="log", ylabel="Open edges (%)", title=title)
    edges.yaxis.set_major_formatter(LogFormatter())
    edges.yaxis.set_minor_formatter(LogFormatter())  # also between decades, which may have no label
    edges.grid(alpha=0.25, which="both")
    loss.plot(steps, _column(log, "constraint_loss"), color=BLUE, label="sparse")
    if control:
        dense = _column(control, "step"), _column(control, "constraint_loss")
        loss.plot(*dense, color=GREY, linestyle="--", label="dense control")
    if log and math.isfinite(log[-1]["limit"]):
        loss.plot(steps, _column(log, "limit"), color=ORANGE, linestyle=":", label="limit")
    loss.set(xlabel="Training step", ylabel="Held-out loss (nats per token)")
    loss.grid(alpha=0.25)
    edges.legend(frameon=False)
    loss.legend(frameon=False)
    return figure


def _column(rows: Log, name: str) -> list[float]:
    return [row[name] for row in rows]
