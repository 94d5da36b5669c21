"""The curves of silent heads: every line stays within its panel."""

from __future__ import annotations

import pytest

from headcount.figures.silent import SilentLine, plot_silent


@pytest.mark.parametrize("lowest", [0.2, -0.7, -4.0])
def test_no_line_leaves_its_panel_and_bands_that_do_are_marked(lowest: float) -> None:
    falls = [(0.0, 1.0, 1.0, 1.0), (30.0, lowest, lowest - 2, lowest + 0.1)]
    stays = [(0.0, 1.0, 1.0, 1.0), (30.0, 0.9, 0.8, 1.0)]
    lines = [SilentLine("a", "#000000", stays, strong=True), SilentLine("b", "#FF0000", falls)]
    figure = plot_silent({"Margin": lines}, mark=(12, 0.99))
    (axes,) = figure.axes
    bottom, top = axes.get_ylim()
    assert bottom < lowest < 1 < top
    assert bottom > lowest - 2  # the interval goes on below the frame
    assert [line.get_marker() for line in axes.lines].count("v") == 1
    assert len(axes.collections) == 2  # a band, and upright lines
