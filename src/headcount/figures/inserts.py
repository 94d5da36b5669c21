"""Accuracy with and without inserts as grouped bars, beside two charts of attention profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"w/o": "#8064a2", "w/ Mless": "#2a9d8f", "w/ Mful": "#9ecae1", "ARM": "#e0a03c"}
SHORT = {"w/o": "None", "w/ Mless": "Mless", "w/ Mful": "Mful"}


@dataclass(frozen=True)
class Bar:
    """A share in percent, and the ends of its whisker."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Profiles:
    """One head's profiles: the full sequence of each series, and where its insert stands."""

    title: str
    full: Mapping[str, Float[np.ndarray, "_"]]
    spans: Mapping[str, Sequence[int]]

    def original(self, series: str) -> Float[np.ndarray, "tokens"]:
        """The profile without the inserted places."""
        return np.delete(self.full[series], list(self.spans[series]))


def plot_inserts(
    bars: Mapping[str, Mapping[str, Bar]],
    profiles: Profiles | None,
    *,
    title: str,
    note: str = "",
) -> Figure:
    """Bars by model on the left; on the right original tokens above, the full sequence below."""
    from matplotlib.figure import Figure

    wide = 3.6 + 1.5 * len(bars)
    figure = Figure(figsize=(wide + (6.2 if profiles else 0), 4.9), layout="constrained")
    if profiles is None:
        _bars(figure.add_subplot(), bars, title)
    else:
        grid = figure.add_gridspec(2, 2, width_ratios=[wide, 6.2])
        _bars(figure.add_subplot(grid[:, 0]), bars, title)
        above, below = figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1])
        _charts(above, below, profiles)
    signs = int(17 * figure.get_figwidth())
    figure.supxlabel(fill(note, signs), fontsize=7, color="#666666")
    return figure


def _bars(axes: Axes, bars: Mapping[str, Mapping[str, Bar]], title: str) -> None:
    series = list(dict.fromkeys(name for one in bars.values() for name in one))
    width = 0.8 / len(series)
    for number, name in enumerate(series):
        places = [model - 0.4 + width * (number + 0.5) for model in range(len(bars))]
        some = [one[name] for one in bars.values()]
        values = [bar.value for bar in some]
        ends = np.array(
            [[b.value - b.low for b in some], [b.high - b.value for b in some]]
        )  # (2, models)
        axes.bar(places, values, width * 0.94, label=name, color=COLOURS.get(name, "#999999"))
        axes.errorbar(
            places,
            values,
            yerr=np.nan_to_num(ends).clip(min=0),
            fmt="none",
            ecolor="#333333",
            capsize=3,
            linewidth=1,
        )
        for x, bar in zip(places, some, strict=True):
            axes.annotate(
                f"{bar.value:.1f}",
                (x, max(bar.value, np.nan_to_num(bar.high))),
                xytext=(0, 3),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    for model, one in enumerate(bars.values()):
        axes.hlines(one["w/o"].value, model - 0.4, model + 0.4, COLOURS["w/o"], "--", linewidth=0.8)
    tops = [b.high if b.high == b.high else b.value for one in bars.values() for b in one.values()]
    axes.set_ylim(0, min(108, 1.18 * max([10, *tops])))
    axes.set_xticks(range(len(bars)), [fill(name, 22) for name in bars])
    axes.set_ylabel("Accuracy (%)")
    axes.set_title(title)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, ncols=len(series), loc="upper center", fontsize=9)


def _charts(above: Axes, below: Axes, profiles: Profiles) -> None:
    for name in profiles.full:
        values = profiles.original(name)
        _filled(above, values, SHORT.get(name, name), COLOURS.get(name, "#999999"))
        if profiles.spans[name]:
            _filled(below, profiles.full[name], SHORT.get(name, name), COLOURS[name])
    above.set_xlabel("Original tokens (inserted positions removed)")
    below.set_xlabel("Full sequence")
    spans = [span for span in profiles.spans.values() if span]
    if spans:
        below.axvspan(spans[0][0] - 0.5, spans[0][-1] + 0.5, color="#000000", alpha=0.06, zorder=0)
    above.set_title(profiles.title)
    for axes in (above, below):
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
        axes.grid(alpha=0.25)
        axes.set_ylabel("Attention received", fontsize=9)
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper right")


def _filled(axes: Axes, values: Float[np.ndarray, "tokens"], label: str, colour: str) -> None:
    places = np.arange(len(values))
    axes.plot(places, values, label=label, color=colour, linewidth=1.2)
    axes.fill_between(places, 0, values, color=colour, alpha=0.25, linewidth=0)


def plot_sweep(
    lines: Mapping[str, Sequence[tuple[str, Bar]]],
    *,
    label: str,
    title: str,
    note: str = "",
) -> Figure:
    """Accuracy against the length or the place of the insert, one line for each kind of it."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 4.4), layout="constrained")
    axes = figure.add_subplot()
    ticks = list(dict.fromkeys(x for points in lines.values() for x, _ in points))
    for number, (name, points) in enumerate(lines.items()):
        shift = 0.06 * (number - (len(lines) - 1) / 2)
        places = [ticks.index(x) + shift for x, _ in points]
        values = np.array([bar.value for _, bar in points])
        ends = np.array([[b.value - b.low, b.high - b.value] for _, b in points]).T
        axes.errorbar(
            places,
            values,
            yerr=np.nan_to_num(ends).clip(min=0),
            label=name,
            color=COLOURS.get(name),
            marker="o",
            markersize=4,
            capsize=3,
            linestyle="-" if label.startswith("Tokens") else "none",
        )
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set_xlabel(label)
    axes.set_ylabel("Accuracy (%)")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    figure.supxlabel(fill(note, 108), fontsize=7, color="#666666")
    return figure
