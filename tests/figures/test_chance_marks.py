"""Panels whose whole model is at chance are marked, and the mark covers nothing."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headcount.figures.curves import draw_curve
from headcount.figures.inserts import Bar, plot_inserts
from headcount.figures.kept import MODELS, KeptLine, KeptPanel, plot_kept
from headcount.figures.masked import MaskedLine, plot_masked
from headcount.figures.roles import RoleLine, plot_roles
from headcount.figures.style import figure_of, points_of

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


def masked() -> Figure:
    lines = [MaskedLine(s, s, "black", points_of(ROWS, s)) for s in ("top", "random")]
    return plot_masked({"Math": lines, "Retrieval": lines}, label="Score", at_chance=["Math"])


def kept() -> Figure:
    lines = [KeptLine(name, MODELS[0], POINTS) for name in (LONG, "other")]
    some = KeptPanel("Greater Than", lines, (4, 8), "2x", [LONG])
    return plot_kept([some, KeptPanel("IOI", lines, (4, 8), "2x")], threshold=0.9)


def roles() -> Figure:
    lines = {role: RoleLine(POINTS) for role in ("facilitation", "interference")}
    cells = {(task, model): lines for task in ("Syntax", "Math") for model in ("one", LONG)}
    return plot_roles(cells, label="Δ", at_chance=[("Syntax", LONG), ("Math", "one")])


def inserts() -> Figure:
    bars = {name: dict.fromkeys(("w/o", "w/ Mless"), Bar(5, 1, 9)) for name in (LONG, "other")}
    changes = {name: {"w/ Mless": Bar(0, -2, 2)} for name in bars}
    return plot_inserts(bars, changes, None, title="Results", margin=2, at_chance=[LONG])


DRAWN: dict[Callable[[], Figure], list[str]] = {
    a_curve: ["at chance"],
    masked: ["at chance", ""],
    # The second row shows the same curves on a log axis, below the marked titles.
    kept: ["at chance:\nsparse:smollm2-135m-q4 in\nbfloat16", "", "", ""],
    roles: ["", "at chance", "at chance", ""],
}


@pytest.mark.parametrize(
    ("draw", "marks"), DRAWN.items(), ids=lambda it: getattr(it, "__name__", "")
)
def test_only_panels_at_chance_are_marked(draw: Callable[[], Figure], marks: list[str]) -> None:
    plain = draw().axes[marks.index("")].get_facecolor() if "" in marks else None
    for axes, mark in zip(draw().axes, marks, strict=True):
        assert axes.get_title().endswith(mark)
        assert ("at chance" in axes.get_title()) == bool(mark)
        assert (axes.get_facecolor() == plain) != bool(mark)


def test_a_figure_without_a_caption_says_what_the_mark_means() -> None:
    """Figures of studies have captions; a single curve may stand anywhere."""
    assert "at chance: the whole model does not clearly beat" in small_print(a_curve())


def test_a_model_at_chance_is_marked_below_its_bars() -> None:
    first, second = (label.get_text() for label in inserts().axes[-1].get_xticklabels())
    assert first.endswith("\nat chance")
    assert second == "other"


@pytest.mark.parametrize("draw", [*DRAWN, inserts])
def test_the_mark_covers_nothing(draw: Callable[[], Figure]) -> None:
    figure = draw()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    things: list[Any] = [axes.title for axes in figure.axes if axes.get_title()]
    things += [axes.patch for axes in figure.axes]
    below = figure._supxlabel  # type: ignore[attr-defined]
    things += [*figure.legends, *([below] if below else [])]
    if draw is inserts:
        things += figure.axes[-1].get_xticklabels()
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
