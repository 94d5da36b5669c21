"""Accuracy with and without inserts as grouped bars, next to charts of attention profiles."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from headcount.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHORT = {"w/o": "None", "w/ Mless": "Mless", "w/ Mful": "Mful"}
# The published colours. Where both inserts are alike, Mful is a wide pale line below a thin one.
LINES = {"w/o": style.BLUE, "w/ Mless": style.ORANGE, "w/ Mful": style.GREEN}
LOOKS: dict[str, dict[str, Any]] = {
    "w/o": {"linewidth": 0.8, "zorder": 2},
    "w/ Mful": {"linewidth": 2.0, "alpha": 0.5, "zorder": 3},
    "w/ Mless": {"linewidth": 0.6, "zorder": 4},
}
GREY: dict[str, Any] = {"color": style.GREY, "linewidth": 0.8, "linestyle": "--", "zorder": 5}
UNIFORM = "uniform reader"
OTHER = "#999999"  # the colour of series that the published figure lacks


@dataclass(frozen=True)
class Bar:
    """A percentage, and the ends of its whisker."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Profiles:
    """Profiles over the full prompt by series: of one head, of its layer, of a uniform reader.

    `spans` has the inserted positions of each series.
    """

    title: str
    head: Mapping[str, Float[np.ndarray, "_"]]
    mean_title: str
    mean: Mapping[str, Float[np.ndarray, "_"]]
    uniform: Mapping[str, Float[np.ndarray, "_"]]
    spans: Mapping[str, Sequence[int]]

    def original(self, series: str, full: Float[np.ndarray, "all"]) -> Float[np.ndarray, "tokens"]:
        """A profile of a series without the inserted positions."""
        return np.delete(full, list(self.spans[series]))


@style.for_print
def plot_inserts(
    bars: Mapping[str, Mapping[str, Bar]],
    changes: Mapping[str, Mapping[str, Bar]],
    profiles: Profiles | None,
    *,
    title: str,
    margin: float,
    at_chance: Collection[str] = (),
    width: float = style.PAGE,
) -> Figure:
    """Draw bars by model with their paired differences below, and profiles of one model.

    `changes` are the differences to w/o, drawn with a band of ± `margin`. The bars of models
    `at_chance` are hatched, and their names marked. Profiles stand beside the bars on a page, and
    below them in a column.
    """
    if profiles is None:
        figure = style.new_figure(style.COLUMN, 3.4)
        _accuracies(figure, bars, changes, title, margin, at_chance)
        return figure
    beside = width > style.COLUMN
    figure = style.new_figure(width, 4.6 if beside else 7.2)
    share = min(0.62, 0.3 + 0.08 * len(bars)) if beside else 0.46  # of the width, or of the height
    split = [share, 1 - share]
    parts: Any = (
        figure.subfigures(1, 2, width_ratios=split)
        if beside
        else figure.subfigures(2, 1, height_ratios=split)
    )
    first, second = parts
    _accuracies(first, bars, changes, title, margin, at_chance)
    _charts(second, profiles)
    return figure


def _accuracies(
    figure: Any,
    bars: Mapping[str, Mapping[str, Bar]],
    changes: Mapping[str, Mapping[str, Bar]],
    title: str,
    margin: float,
    at_chance: Collection[str],
) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[2.4, 1])
    _bars(above, bars, at_chance)
    above.set_title(title)
    _changes(below, bars, changes, margin)
    names = [
        fill(name, 16, break_on_hyphens=True) + "\nat chance" * (name in at_chance) for name in bars
    ]
    below.set_xticks(range(len(bars)), names)
    below.tick_params(axis="x", length=0)
    above.tick_params(axis="x", length=0)
    handles, labels = above.get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=len(labels), columnspacing=1.0)


def _places(
    bars: Mapping[str, Mapping[str, Bar]],
) -> tuple[float, dict[str, list[tuple[int, float]]]]:
    """The width of a bar, and for each series the number and the place of each model's bar."""
    series = list(dict.fromkeys(name for of_model in bars.values() for name in of_model))
    width = 0.8 / len(series)
    return width, {
        name: [
            (model, model - 0.4 + width * (number + 0.5))
            for model, of_model in enumerate(bars.values())
            if name in of_model
        ]
        for number, name in enumerate(series)
    }


def _bars(axes: Axes, bars: Mapping[str, Mapping[str, Bar]], at_chance: Collection[str]) -> None:
    width, places = _places(bars)
    models = list(bars)
    for name, at in places.items():
        shown = [bars[models[model]][name] for model, _ in at]
        x = [place for _, place in at]
        colour = style.INSERTS.get(name, OTHER)
        drawn = axes.bar(x, [bar.value for bar in shown], width * 0.94, label=name, color=colour)
        for (model, _), patch in zip(at, drawn.patches, strict=True):
            if models[model] in at_chance:
                patch.set(facecolor="white", edgecolor=colour, hatch="////", linewidth=0.6)
        _whiskers(axes, x, shown, fmt="none", ecolor="#333333", elinewidth=0.8)
        for centre, bar in zip(x, shown, strict=True):
            top = (centre, max(bar.value, np.nan_to_num(bar.high)))
            how: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "fontsize": 6}
            axes.annotate(f"{bar.value:.1f}", top, xytext=(0, 2), **how)
    every = [bar for of_model in bars.values() for bar in of_model.values()]
    tops = [bar.value if np.isnan(bar.high) else bar.high for bar in every]
    axes.set(ylim=(0, min(108, 1.12 * max([20, *tops]))), ylabel="Accuracy (%)")
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _changes(
    axes: Axes,
    bars: Mapping[str, Mapping[str, Bar]],
    changes: Mapping[str, Mapping[str, Bar]],
    margin: float,
) -> None:
    """Differences to w/o as dots below their bars."""
    models, (_, places) = list(changes), _places(bars)
    axes.axhspan(-margin, margin, color="#000000", alpha=0.12, linewidth=0)
    axes.axhline(0, color="#333333", linewidth=0.6)
    for name, at in places.items():
        some = [(x, changes[models[model]].get(name)) for model, x in at]
        known = [(x, bar) for x, bar in some if bar is not None]
        if known:
            dots = {"fmt": "o", "color": style.INSERTS.get(name, OTHER), "ecolor": "#333333"}
            look: dict[str, Any] = {**dots, "elinewidth": 0.8, "markeredgecolor": "#333333"}
            look["markeredgewidth"] = 0.4
            _whiskers(axes, [x for x, _ in known], [bar for _, bar in known], **look)
    axes.set_ylabel("Minus w/o (points)")
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, -1.5 * margin), max(high, 1.5 * margin))
    axes.locator_params(axis="y", nbins=5)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def _whiskers(axes: Axes, x: Sequence[float], bars: Sequence[Bar], **how: Any) -> None:
    """Draw intervals as whiskers; an unknown interval gets a whisker of length 0."""
    ends = np.array([[bar.value - bar.low, bar.high - bar.value] for bar in bars]).T  # (2, bars)
    yerr = np.nan_to_num(ends).clip(min=0)
    axes.errorbar(x, [bar.value for bar in bars], yerr=yerr, capsize=2, capthick=0.8, **how)


def _charts(figure: Any, profiles: Profiles) -> None:
    """The head on the original tokens and on the full sequence, and the mean over its layer."""
    above, below, mean = figure.subplots(3, 1, height_ratios=[1.2, 1.2, 1])
    _originals(above, profiles, profiles.head, filled=True)
    _originals(mean, profiles, profiles.mean)
    inserted = [name for name, span in profiles.spans.items() if span]
    for name in inserted:
        _line(below, profiles.head[name], name)
    if inserted:
        span = profiles.spans[inserted[0]]
        below.axvspan(span[0] - 0.5, span[-1] + 0.5, color="#e0e0e0", linewidth=0, zorder=0)
        below.plot(profiles.uniform[inserted[0]], label=UNIFORM, **GREY)
    above.set(
        title=fill(profiles.title, 34), xlabel="Original tokens of the prompt (insert removed)"
    )
    below.set_xlabel("Full sequence (insert shaded)")
    mean.set(title=profiles.mean_title, xlabel="Original tokens of the prompt (insert removed)")
    for axes in (above, below, mean):
        _chart_axes(axes)
    figure.supylabel("Attention received", fontsize=7.5)
    handles, labels = above.get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=len(labels), columnspacing=1.0)


@style.for_print
def plot_profiles(models: Sequence[Profiles]) -> Figure:
    """Draw the head of each model on the original tokens, one chart below the other."""
    figure = style.new_figure(style.COLUMN, 0.5 + 1.35 * len(models))
    charts = figure.subplots(len(models), 1, squeeze=False).ravel()
    for axes, profiles in zip(charts, models, strict=True):
        _originals(axes, profiles, profiles.head, filled=True)
        axes.set_title(profiles.title)
        _chart_axes(axes)
    charts[-1].set_xlabel("Original tokens of the prompt (insert removed)")
    figure.supylabel("Attention received", fontsize=7.5)
    handles, labels = charts[0].get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=len(labels), columnspacing=1.0)
    return figure


def _originals(
    axes: Axes,
    profiles: Profiles,
    received: Mapping[str, Float[np.ndarray, "_"]],
    *,
    filled: bool = False,
) -> None:
    """What the original tokens receive in each series, beside a uniform reader."""
    for name, full in received.items():
        without = filled and not profiles.spans[name]
        _line(axes, profiles.original(name, full), name, filled=without)
    axes.plot(profiles.uniform["w/o"], label=UNIFORM, **GREY)


def _chart_axes(axes: Axes) -> None:
    axes.set_ylim(bottom=0)
    axes.margins(x=0.01)
    axes.locator_params(axis="y", nbins=4)
    axes.grid(True)


def _line(
    axes: Axes, values: Float[np.ndarray, "tokens"], name: str, *, filled: bool = False
) -> None:
    x, colour = np.arange(len(values)), LINES.get(name, OTHER)
    axes.plot(x, values, label=SHORT.get(name, name), color=colour, **LOOKS.get(name, {}))
    if filled:
        axes.fill_between(x, 0, values, color=colour, alpha=0.3, linewidth=0)


@style.for_print
def plot_sweep(lines: Mapping[str, Sequence[tuple[str, Bar]]], *, label: str, title: str) -> Figure:
    """Draw accuracy against the length or the place of the insert, one line per series."""
    figure = style.new_figure(style.COLUMN, 2.6)
    axes = figure.add_subplot()
    ticks = list(dict.fromkeys(x for points in lines.values() for x, _ in points))
    joined = label.startswith("Tokens")  # lengths are ordered, places are not
    for number, (name, points) in enumerate(lines.items()):
        shift = 0.06 * (number - (len(lines) - 1) / 2)
        x = [ticks.index(tick) + shift for tick, _ in points]
        colour = style.INSERTS.get(name, OTHER)
        how: dict[str, Any] = {"color": colour, "linestyle": "-" if joined else "none"}
        _whiskers(axes, x, [bar for _, bar in points], label=name, marker="o", **how)
    axes.set_xticks(range(len(ticks)), ticks)
    axes.set(xlabel=label, ylabel="Accuracy (%)", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(True)
    handles, labels = axes.get_legend_handles_labels()
    style.legend_above(figure, handles, labels, ncols=len(labels))
    return figure
