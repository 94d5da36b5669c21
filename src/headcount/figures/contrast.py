"""Contrastive gates: what happens to the kept and to the forgotten form of each skill."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from textwrap import fill
from typing import TYPE_CHECKING, Any

from headcount.figures import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {"kept": style.BLUE, "forgotten": style.ORANGE}
LOOKS: dict[str, dict[str, Any]] = {
    "gates": {"marker": "o", "markerfacecolor": "white"},
    "heads": {"marker": "o"},
    "random heads": {"marker": "x", "alpha": 0.6},
    "layer-matched heads": {"marker": "+", "alpha": 0.6, "markersize": 5},
}
STEP, GAP = 0.09, 0.12  # between two dots, and between the dots of the two forms
MIDDLE = GAP + STEP * (len(LOOKS) - 1) / 2  # of the dots of a form, from that of the skill


@dataclass(frozen=True)
class Dot:
    """A change with its interval: of the form that is kept or forgotten, under one series."""

    role: str
    series: str
    value: float
    low: float
    high: float


@style.for_print
def plot_contrast(
    panels: Mapping[str, Mapping[str, Sequence[Dot]]],
    *,
    label: str,
    at_chance: Collection[tuple[str, str]] = (),
) -> Figure:
    """Draw one panel for each title, with the dots of each skill above its name.

    Panels stand one below the other, in the width of a column. Of one skill alone, both forms are
    named. Skills `at_chance`, by title and name, are marked.
    """
    figure = style.new_figure(style.COLUMN, 0.8 + 1.6 * len(panels))
    grid = figure.subplots(len(panels), 1, squeeze=False, sharey=True).ravel()
    for axes, (title, skills) in zip(grid, panels.items(), strict=True):
        axes.set_title(fill(title, 40))
        axes.axhline(0, color="#888888", linewidth=0.6)
        for place, dots in enumerate(skills.values()):
            _dots(axes, place, dots)
        marks = ["\nat chance" * ((title, name) in at_chance) for name in skills]
        if len(skills) == 1:  # room to name both forms
            (name,) = skills
            axes.set_xticks([-MIDDLE, MIDDLE], [f"{name},\n{role}{marks[0]}" for role in COLOURS])
        else:
            names = [fill(name.replace("-", " "), 10) for name in skills]
            axes.set_xticks(range(len(skills)), [a + b for a, b in zip(names, marks, strict=True)])
        axes.set_xlim(-0.6, len(skills) - 0.4)
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=True, axis="y")
    for axes in grid:
        axes.set_ylabel(fill(label, 22))
    handles, labels = _legend()
    style.legend_above(figure, handles, labels, 6)
    return figure


def _dots(axes: Axes, place: int, dots: Sequence[Dot]) -> None:
    """The dots of one skill side by side: those of the kept form on the left."""
    series = list(LOOKS)
    for dot in dots:
        side = -1 if dot.role == "kept" else 1
        x = place + side * MIDDLE + STEP * (series.index(dot.series) - (len(series) - 1) / 2)
        colour, look = COLOURS[dot.role], LOOKS[dot.series]
        axes.plot([x], [dot.value], color=colour, linestyle="", zorder=3, **look)
        if not isnan(dot.low):
            axes.vlines(x, dot.low, dot.high, color=colour, linewidth=0.8, alpha=0.6)


def _legend() -> tuple[list[Any], list[str]]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    handles: list[Any] = [Patch(color=colour) for colour in COLOURS.values()]
    handles += [
        Line2D([], [], color=style.GREY, linestyle="", **{**look, "alpha": 1.0})
        for look in LOOKS.values()
    ]
    return handles, [f"{role} form" for role in COLOURS] + list(LOOKS)
