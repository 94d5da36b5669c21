"""How edges shut while a model is trained: open edges and held-out loss against steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, ORANGE, GREY = "#0072B2", "#D55E00", "#555555"  # Okabe and Ito


def plot_edges(
    log: Sequence[Mapping[str, float]],
    *,
    control: Sequence[Mapping[str, float]] = (),
    title: str = "Sparse post-training",
) -> Figure:
    """Two panels over the same steps: open edges (hard gates), and loss on text not trained on."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogFormatter

    figure = Figure(figsize=(6.4, 6.0), layout="constrained")
    edges, loss = figure.subplots(2, 1, sharex=True)
    steps = [row["step"] for row in log]
    edges.plot(steps, [100 * row["open_edges"] for row in log], color=BLUE)
    shown = [row for row in log if math.isfinite(row["averaged_edges"])]
    edges.plot(
        [row["step"] for row in shown],
        [100 * row["averaged_edges"] for row in shown],
        color=BLUE,
        marker="o",
        linestyle="",
        markersize=4,
        label="averaged weights",
    )
    edges.set_yscale("log")
    edges.set_ylabel("Open edges (%)")
    edges.yaxis.set_major_formatter(LogFormatter())
    edges.yaxis.set_minor_formatter(LogFormatter())  # labels where a decade has few others
    edges.grid(alpha=0.25, which="both")
    loss.plot(steps, [row["constraint_loss"] for row in log], color=BLUE, label="sparse")
    if control:
        loss.plot(
            [row["step"] for row in control],
            [row["constraint_loss"] for row in control],
            color=GREY,
            linestyle="--",
            label="dense control",
        )
    if log and math.isfinite(log[-1]["limit"]):
        loss.plot(steps, [row["limit"] for row in log], color=ORANGE, linestyle=":", label="limit")
    loss.set_ylabel("Held-out loss (nats per token)")
    loss.set_xlabel("Training step")
    loss.grid(alpha=0.25)
    edges.legend(frameon=False)
    loss.legend(frameon=False)
    edges.set_title(title)
    return figure
