"""The picture of heads kept: what is written beside the threshold, and that it stays inside."""

from __future__ import annotations

import pytest

from headcount.figures.kept import KeptPanel, Line, plot_kept


def panel(*needed: int, total: int = 40) -> KeptPanel:
    def at(count: int, value: float) -> tuple[int, float, float, float]:
        return count, value, value - 0.1, value + 0.1

    lines = [
        Line(f"model {number}", [at(0, 0.0), at(count, 0.9), at(total, 1.0)], [], count)
        for number, count in enumerate(needed)
    ]
    ratio = needed[0] / needed[1] if len(needed) == 2 else None
    return KeptPanel("Task", lines, ratio)


@pytest.mark.parametrize(
    ("needed", "text"),
    [
        ((12, 4), "3.0x\n12 / 4 heads"),
        ((36, 4), "9.0x\n36 / 4 heads"),
        ((40, 4), "10.0x\nall 40 / 4 heads"),
        ((40, 40), "all 40 / all 40 heads"),  # a ratio of two that never got there says nothing
        ((6,), "6 heads"),
        ((40,), "all 40 heads"),
    ],
)
def test_counts_stand_inside_the_panel(needed: tuple[int, ...], text: str) -> None:
    figure = plot_kept([panel(*needed)] * 4, threshold=0.9)
    figure.draw_without_rendering()
    for axes in figure.axes:
        (label,) = axes.texts
        assert label.get_text() == text
        box, room = label.get_window_extent(), axes.get_window_extent()
        assert room.x0 <= box.x0 < box.x1 <= room.x1
        assert room.y0 <= box.y0 < box.y1 <= room.y1


@pytest.mark.parametrize(
    ("value", "low", "said"),
    [
        (0.0, -0.5, ""),
        (0.0, -3.0, "some bands continue beyond the frame"),
        (-2.0, -3.0, "some curves continue beyond the frame"),
    ],
)
def test_what_is_cut_off_is_said(value: float, low: float, said: str) -> None:
    points = [(0, value, low, 0.1), (40, 1.0, 0.9, 1.1)]
    figure = plot_kept([KeptPanel("Task", [Line("model", points, [], 40)], None)], threshold=0.9)
    assert figure.get_supxlabel() == said
