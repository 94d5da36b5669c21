"""Accuracy with and without inserts as grouped bars, next to two charts of attention profiles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headcount.figures.style import AT_CHANCE, INSERTS, figure_of_texts, new_figure, small_print

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHORT = {"w/o": "None", "w/ Mless": "Mless", "w/ Mful": "Mful"}
OTHER = "#999999"  # the colour of series that the published figure lacks


@dataclass(frozen=True)
class Bar:
    """A percentage, and the ends of its whisker."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Profiles:
    """The profiles of one head: each series over the full prompt, and the inserted positions."""

    title: str
    full: Mapping[str, Float[np.ndarray, "_"]]
    spans: Mapping[str, Sequence[int]]

    def original(self, series: str) -> Float[np.ndarray, "tokens"]:
        """The profile without the inserted positions."""
        return np.delete(self.full[series], list(self.spans[series]))


@figure_of_texts
def plot_inserts(
    bars: Mapping[str, Mapping[str, Bar]],
    profiles: Profiles | None,
    *,
    title: str,
    note: str = "",
    at_chance: Collection[str] = (),
) -> Figure:
    """Draw bars by model on the left; on the right the profiles of the first model.

    The upper chart shows the original tokens, the lower one the full sequence. The names of models
    `at_chance` are marked below their bars.
    """
    wide = 3.6 + 1.5 * len(bars)
    figure = new_figure(wide + (6.2 if profiles else 0), 4.9)
    if profiles is None:
        _bars(figure.add_subplot(), bars, title, at_chance)
    else:
        grid = figure.add_gridspec(2, 2, width_ratios=[wide, 6.2])
        _bars(figure.add_subplot(grid[:, 0]), bars, title, at_chance)
        _charts(figure.add_subplot(grid[0, 1]), figure.add_subplot(grid[1, 1]), profiles)
    if at_chance:
        note = f"{note} · {AT_CHANCE}".removeprefix(" · ")
    small_print(figure, note)
    return figure


def _bars(
    axes: Axes, bars: Mapping[str, Mapping[str, Bar]], title: str, at_chance: Collection[str]
) -> None:
    series = list(dict.fromkeys(name for of_model in bars.values() for name in of_model))
    width = 0.8 / len(series)
    for number, name in enumerate(series):
        x = [model - 0.4 + width * (number + 0.5) for model in range(len(bars))]
        of_series = [of_model[name] for of_model in bars.values()]
        heights = [bar.value for bar in of_series]
        axes.bar(x, heights, width * 0.94, label=name, color=INSERTS.get(name, OTHER))
        _whiskers(axes, x, of_series, fmt="none", ecolor="#333333", linewidth=1)
        for centre, bar in zip(x, of_series, strict=True):
            top = (centre, max(bar.value, np.nan_to_num(bar.high)))
            how: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
            axes.annotate(f"{bar.value:.1f}", top, xytext=(0, 3), **how)
    for model, of_model in enumerate(bars.values()):
        base = of_model["w/o"].value
        axes.hlines(base, model - 0.4, model + 0.4, INSERTS["w/o"], "--", linewidth=0.8)
    every = [bar for of_model in bars.values() for bar in of_model.values()]
    tops = [bar.value if np.isnan(bar.high) else bar.high for bar in every]
    axes.set(ylim=(0, min(108, 1.18 * max([10, *tops]))), ylabel="Accuracy (%)", title=title)
    names = [fill(name, 22) + "\nat chance" * (name in at_chance) for name in bars]
    axes.set_xticks(range(len(bars)), names)
    axes.grid(axis="y", alpha=0.25)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, ncols=len(series), loc="upper center", fontsize=9)


def _whiskers(axes: Axes, x: Sequence[float], bars: Sequence[Bar], **how: Any) -> None:
    """Draw intervals as whiskers; an unknown interval gets a whisker of length 0."""
    ends = np.array([[bar.value - bar.low, bar.high - bar.value] for bar in bars]).T  # (2, bars)
    yerr = np.nan_to_num(ends).clip(min=0)
    axes.errorbar(x, [bar.value for bar in bars], yerr=yerr, capsize=3, **how)


def _charts(above: Axes, below: Axes, profiles: Profiles) -> None:
    for name, full in profiles.full.items():
        _filled(above, profiles.original(name), name)
        if profiles.spans[name]:
            _filled(below, full, name)
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


def _filled(axes: Axes, values: Float[np.ndarray, "tokens"], name: str) -> None:
    x, colour = np.arange(len(values)), INSERTS.get(name, OTHER)
    axes.plot(x, values, label=SHORT.get(name, name), color=colour, linewidth=1.2)
    axes.fill_between(x, 0, values, color=colour, alpha=0.25, linewidth=0)


@figure_of_texts
def plot_sweep(
    lines: Mapping[str, Sequence[tuple[str, Bar]]], *, label: str, title: str, note: str = ""
) -> Figure:
    """Draw accuracy against the length or the place of the insert, one line per series."""
    figure = new_figure(6.4, 4.4)
    axes = figure.add_subplot()
    ticks = list(dict.fromkeys(x for points in lines.values() for x, _ in points))
    joined = label.startswith("Tokens")  # lengths are ordered, places are not
    dots = {"marker": "o", "markersize": 4}
    for number, (name, points) in enumerate(lines.items()):
        shift = 0.06 * (number - (len(lines) - 1) / 2)
        x = [ticks.index(tick) + shift for tick, _ in points]
        line_style = {"color": INSERTS.get(name), "linestyle": "-" if joined else "none", **dots}
        _whiskers(axes, x, [bar for _, bar in points], label=name, **line_style)
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set(xlabel=label, ylabel="Accuracy (%)", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    small_print(figure, note, width=108)
    return figure
