"""Panels whose whole model is at chance are marked, and the mark covers nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headcount.figures.curves import draw_curve, plot_panels, plot_rankings
from headcount.figures.inserts import Bar, plot_inserts
from headcount.figures.kept import KeptPanel, Line, plot_kept
from headcount.figures.roles import plot_roles
from headcount.figures.style import figure_of

LONG = "sparse:smollm2-135m-q4 in bfloat16"
ROWS = [
    {"series": s, "count": c, "value": 0.1, "low": 0.0, "high": 0.2, "n": 20}
    for s in ("top", "random")
    for c in (0, 4, 8)
]
POINTS = [(count, 0.1 * count, 0.1 * count - 0.3, 0.1 * count + 0.2) for count in (0, 4, 8)]


def a_curve() -> Figure:
    named = {"xlabel": "heads", "ylabel": "Accuracy", "title": f"ioi · {LONG} · ranked by probe"}
    return figure_of(draw_curve(ROWS, at_chance=True, shares=True, **named))


def panels() -> Figure:
    tables = {name: [("Accuracy", ROWS), ("Comet", ROWS)] for name in ("Math", "Retrieval")}
    return plot_panels(tables, total=64, at_chance=["Math"])


def rankings() -> Figure:
    tables = {name: {"one": ROWS, "other": ROWS} for name in ("Math", "Retrieval")}
    return plot_rankings(tables, total=64, metric="Accuracy", at_chance=["Math"])


def kept() -> Figure:
    lines = [Line(name, POINTS, POINTS, 4) for name in (LONG, "other")]
    some = KeptPanel("Greater Than", lines, 1.0, [LONG])
    return plot_kept([some, KeptPanel("IOI", lines, 1.0)], threshold=0.9)


def roles() -> Figure:
    lines = {"facilitation": POINTS, "interference": POINTS}
    cells = {(task, model): lines for task in ("Syntax", "Math") for model in ("one", LONG)}
    return plot_roles(cells, at_chance=[("Syntax", LONG), ("Math", "one")])


def inserts() -> Figure:
    bars = {name: dict.fromkeys(("w/o", "w/ Mless"), Bar(5, 1, 9)) for name in (LONG, "other")}
    return plot_inserts(bars, None, title="Results", at_chance=[LONG])


DRAWN: dict[Callable[[], Figure], list[str]] = {
    a_curve: ["at chance"],
    panels: ["at chance", ""],
    rankings: ["at chance", ""],
    kept: ["at chance:\nsparse:smollm2-135m-q4 in\nbfloat16", ""],
    roles: ["", "at chance", "at chance", ""],
}


@pytest.mark.parametrize(
    ("draw", "marks"), DRAWN.items(), ids=lambda it: getattr(it, "__name__", "")
)
def test_only_panels_at_chance_are_marked(draw: Callable[[], Figure], marks: list[str]) -> None:
    figure = draw()
    for axes, mark in zip(figure.axes, marks, strict=True):
        assert axes.get_title().endswith(mark)
        assert ("at chance" in axes.get_title()) == bool(mark)
    assert "at chance: the whole model does not clearly beat" in small_print(figure)


def test_a_model_at_chance_is_marked_below_its_bars() -> None:
    (axes,) = inserts().axes
    first, second = (label.get_text() for label in axes.get_xticklabels())
    assert first.endswith("\nat chance")
    assert second == "other"
    assert "at chance: " in small_print(inserts())


@pytest.mark.parametrize("draw", [*DRAWN, inserts])
def test_the_mark_covers_nothing(draw: Callable[[], Figure]) -> None:
    figure = draw()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    things: list[Any] = [axes.title for axes in figure.axes if axes.get_title()]
    things += [axes.patch for axes in figure.axes]
    things += [*figure.legends, figure._supxlabel]  # type: ignore[attr-defined]
    if draw is inserts:
        things += figure.axes[0].get_xticklabels()
    boxes = [thing.get_window_extent() for thing in things]
    for box in boxes:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height
    for one, other in combinations(boxes, 2):
        assert not one.overlaps(other)


def small_print(figure: Figure) -> str:
    return " ".join(figure.get_supxlabel().split())
