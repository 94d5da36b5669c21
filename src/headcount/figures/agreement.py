"""The agreement of rankings: a matrix of correlations, and the overlap compared with chance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.figures.style import GREY, PALETTE, Row, count_axis, figure_of_texts, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pair = tuple[str, str]

# With more pairs than colours, dashes and markers tell pairs of one colour apart.
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")
MOST = 10  # with more pairs than this, only those with the first ranking get a colour


@figure_of_texts
def plot_agreement(agreement: Row, *, title: str | None = None) -> Figure:
    """Draw the agreement of rankings: over all heads on the left, of the best K on the right.

    `agreement` is the output of `Agreement.to_json`.
    """
    names = agreement["rankings"]
    pairs = list(dict.fromkeys((row["one"], row["other"]) for row in agreement["overlaps"]))
    named = [pair for pair in pairs if len(pairs) <= MOST or names[0] in pair]
    side = max(3.6, 0.75 * len(names) + 1.6)  # inches, so that each cell has room for a number
    legend = 0.22 * math.ceil((len(named) + 2) / 2)  # inches for the legend
    figure = new_figure(side + 5.2, side + 0.9 + legend)
    left, right = figure.subplots(1, 2, width_ratios=(side, 5.2))
    stability = [agreement["stability"][name]["value"] for name in names]
    _matrix(left, names, agreement["spearman"], stability)
    _overlaps(right, agreement["overlaps"], named, [pair for pair in pairs if pair not in named])
    right.set_xlabel(f"K (of {agreement['heads']} heads)")
    if title:
        figure.suptitle(fill(title, 80))
    handles, labels = right.get_legend_handles_labels()
    if handles:
        how: dict[str, Any] = {"ncols": 2, "frameon": False, "fontsize": 8}
        figure.legend(handles, labels, loc="outside lower right", **how)
    return figure


def _matrix(
    axes: Axes,
    names: Sequence[str],
    correlation: Sequence[Sequence[float]],
    stability: Sequence[float],
) -> None:
    """Draw correlations as numbers on colours (white is 0); the diagonal shows the stability."""
    shown = np.array(correlation)
    np.fill_diagonal(shown, stability)
    axes.set_facecolor("#E6E6E6")  # the colour of unknown correlations
    axes.imshow(shown, vmin=-1, vmax=1, cmap="RdBu")
    for (row, column), value in np.ndenumerate(shown):
        # + 0.0 turns -0.0 into 0.0, so that a rounded zero has no minus
        text = "–" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")
        ink = "white" if abs(value) > 0.65 else "black"
        style = "italic" if row == column else "normal"
        axes.text(column, row, text, ha="center", va="center", color=ink, fontstyle=style)
    axes.set_xticks(range(len(names)), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    title = "Spearman correlation, all heads\n(diagonal: between halves of the ranking's samples)"
    axes.set_title(title, fontsize=10)


def _overlaps(
    axes: Axes, overlaps: Sequence[Row], named: Sequence[Pair], others: Sequence[Pair]
) -> None:
    """Draw the share of the best K in common against K, over the band of random rankings."""

    def line(pair: Pair) -> tuple[list[int], list[float]]:
        points = [row for row in overlaps if (row["one"], row["other"]) == pair]
        return [row["count"] for row in points], [row["share"] for row in points]

    chance = {row["count"]: row for row in sorted(overlaps, key=lambda row: row["count"])}
    counts = list(chance)
    if not counts:
        axes.set_axis_off()
        return
    low, middle, high = (
        [row[key] for row in chance.values()] for key in ("chance_low", "chance", "chance_high")
    )
    label = "random rankings: 95 % interval"
    axes.fill_between(counts, low, high, color=GREY, alpha=0.15, linewidth=0, label=label)
    axes.plot(counts, middle, color=GREY, linewidth=1)
    for pair in others:
        label = "other pairs" if pair == others[0] else "_"
        axes.plot(*line(pair), color="#AAAAAA", linewidth=0.6, label=label)
    for number, pair in enumerate(named):
        turn, colour = divmod(number, len(PALETTE))
        style: dict[str, Any] = {"color": PALETTE[colour], "marker": MARKERS[turn % len(MARKERS)]}
        style["linestyle"] = DASHES[turn % len(DASHES)]
        axes.plot(*line(pair), markersize=4, label=" / ".join(pair), **style)
    count_axis(axes, counts, "log")
    axes.grid(alpha=0.25)
    axes.set(ylim=(-0.03, 1.03), ylabel="Share of the best K in common")
    axes.set_title("Overlap of the best heads", fontsize=10)
