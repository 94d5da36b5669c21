"""The pictures of heads kept: what is written beside the threshold, and that it stays inside."""

from __future__ import annotations

import pytest

from headcount.figures.kept import MODELS, KeptLine, KeptPanel, plot_areas, plot_kept, plot_ratios


def panel(*needed: int, words: str = "", total: int = 40) -> KeptPanel:
    def at(count: int, value: float) -> tuple[int, float, float, float]:
        return count, value, value - 0.1, value + 0.1

    lines = [
        KeptLine(f"model {n}", MODELS[n], [at(0, 0.0), at(count, 0.9), at(total, 1.0)])
        for n, count in enumerate(needed)
    ]
    return KeptPanel("Task", lines, needed, words)


@pytest.mark.parametrize("panels", [1, 4])
@pytest.mark.parametrize("needed", [(12, 4), (40, 4), (6,)])
def test_words_stand_inside_the_panel(needed: tuple[int, ...], panels: int) -> None:
    words = "0.28x [0.11, 270]"
    figure = plot_kept([panel(*needed, words=words)] * panels, threshold=0.9)
    figure.draw_without_rendering()
    for axes in figure.axes[:panels]:
        (label,) = axes.texts
        assert label.get_text() == words
        box, room = label.get_window_extent(), axes.get_window_extent()
        assert room.x0 <= box.x0 < box.x1 <= room.x1
        assert room.y0 <= box.y0 < box.y1 <= room.y1


def test_a_model_has_one_colour_and_one_entry_in_the_legend() -> None:
    figure = plot_kept([panel(12, 4)] * 4, threshold=0.9)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["model 0", "model 1"]
    for axes in figure.axes:
        colours = {line.get_color() for line in axes.lines if line.get_label() == "model 1"}
        assert colours == {MODELS[1]}


def test_ticks_reach_as_far_as_the_curve() -> None:
    points = [(0, 0.0, -0.1, 0.1), (5, 1.7, 1.6, 1.8), (40, 1.0, 0.9, 1.1)]
    figure = plot_kept([KeptPanel("Task", [KeptLine("m", MODELS[0], points)])], threshold=0.9)
    assert max(figure.axes[0].get_yticks()) == 1.5


def test_censored_ratios_are_hollow_and_equal_lines_are_apart() -> None:
    line = [(0.5, 2.0, 1.5, 3.0, False), (0.9, 8.0, 2.0, 20.0, True)]
    figure = plot_ratios({"IOI": {"one": line, "other": line}})
    dots = [
        drawn
        for drawn in figure.axes[0].lines
        if drawn.get_marker() == "o" and len(drawn.get_xdata()) == 1
    ]
    assert [dot.get_markerfacecolor() == "white" for dot in dots] == [False, True, False, True]
    assert len({float(dot.get_xdata()[0]) for dot in dots}) == 4


def test_areas_have_a_row_for_each_order() -> None:
    dots = {"dense": (0.2, 0.1, 0.3), "sparse": (0.1, 0.05, 0.2)}
    figure = plot_areas(
        {"IOI": {"patching": dots, "random": {"dense": (0.6, 0.5, 0.7)}}}, label="CMD"
    )
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["patching", "random"]
