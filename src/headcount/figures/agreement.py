"""Agreement of rankings: a matrix of correlations, and overlap against chance."""

from __future__ import annotations

import math
from textwrap import fill
from typing import TYPE_CHECKING

from headcount.rankings.agreement import Agreement

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pair = tuple[str, str]

# Okabe and Ito's colours; where pairs outnumber them, the next dashes and marker tell them apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D")
MOST = 10  # pairs with a look of their own; of more, only those with the first ranking


def plot_agreement(agreement: Agreement, *, title: str | None = None) -> Figure:
    """Draw who agrees with whom: over all heads on the left, about the best K on the right."""
    from matplotlib.figure import Figure

    pairs = list(dict.fromkeys((one.one, one.other) for one in agreement.overlaps))
    named = [pair for pair in pairs if len(pairs) <= MOST or agreement.names[0] in pair]
    side = max(3.6, 0.75 * len(agreement.names) + 1.6)  # room for a number in each cell
    below = 0.22 * math.ceil((len(named) + 2) / 2)  # … and for the legend
    figure = Figure(figsize=(side + 5.2, side + 0.9 + below), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(side, 5.2))
    _matrix(left, agreement)
    _overlaps(right, agreement, named, [pair for pair in pairs if pair not in named])
    if title:
        figure.suptitle(fill(title, 80))
    handles, labels = right.get_legend_handles_labels()
    if handles:
        figure.legend(
            handles, labels, loc="outside lower right", ncols=2, frameon=False, fontsize=8
        )
    return figure


def _matrix(axes: Axes, agreement: Agreement) -> None:
    """Correlations as numbers on a colour that is white at 0; the diagonal is the stability."""
    names, size = agreement.names, len(agreement.names)
    shown = agreement.correlation.copy()
    for place, name in enumerate(names):
        shown[place, place] = agreement.stability[name].value
    axes.set_facecolor("#E6E6E6")  # what is not known
    axes.imshow(shown, vmin=-1, vmax=1, cmap="RdBu")
    for row in range(size):
        for column in range(size):
            value = shown[row, column]
            # + 0.0: a correlation that rounds to nothing has no sign
            text = "–" if math.isnan(value) else f"{round(value, 2) + 0.0:.2f}".replace("-", "−")
            ink = "white" if abs(value) > 0.65 else "black"
            style = "italic" if row == column else "normal"
            axes.text(column, row, text, ha="center", va="center", color=ink, fontstyle=style)
    axes.set_xticks(range(size), names, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(size), names)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_title(
        "Spearman correlation, all heads\n(diagonal: between halves of its own samples)",
        fontsize=10,
    )


def _overlaps(axes: Axes, agreement: Agreement, named: list[Pair], others: list[Pair]) -> None:
    """The share in common against K, over the band that chance gives."""

    def line(pair: Pair) -> tuple[list[int], list[float]]:
        points = [o for o in agreement.overlaps if (o.one, o.other) == pair]
        return [point.count for point in points], [point.share for point in points]

    counts = agreement.counts
    if not counts:
        axes.set_axis_off()
        return
    chance = {one.count: one for one in agreement.overlaps}
    axes.fill_between(
        counts,
        [chance[count].chance_low for count in counts],
        [chance[count].chance_high for count in counts],
        color="#555555",
        alpha=0.15,
        linewidth=0,
        label="chance, 95 % of draws",
    )
    axes.plot(counts, [chance[c].chance for c in counts], color="#555555", linewidth=1)
    for pair in others:
        label = "other pairs" if pair == others[0] else None
        axes.plot(*line(pair), color="#AAAAAA", linewidth=0.6, label=label)
    for place, pair in enumerate(named):
        turn = place // len(COLOURS)
        axes.plot(
            *line(pair),
            color=COLOURS[place % len(COLOURS)],
            linestyle=DASHES[turn % len(DASHES)],
            marker=MARKERS[turn % len(MARKERS)],
            markersize=4,
            label=" / ".join(pair),
        )
    if len(counts) > 2 and counts[-1] > 8:
        axes.set_xscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.minorticks_off()
    axes.set_ylim(-0.03, 1.03)
    axes.grid(alpha=0.25)
    axes.set_xlabel(f"K (of {agreement.total} heads)")
    axes.set_ylabel("Share of the best K in common")
    axes.set_title("Overlap of the best heads", fontsize=10)
