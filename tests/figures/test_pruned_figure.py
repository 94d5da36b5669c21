"""The figure of `pruned`, drawn from points that are made by hand."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from headcount.figures.pruned import COLOURS, PrunedLine, plot_pruned
from headcount.figures.style import PAGE

LINES = [
    PrunedLine(series, treatment, [(67.0, 0.8, 0.7, 0.9), (33.0, 0.5, 0.4, 0.6)])
    for series in ("best", "random")
    for treatment in COLOURS
]


def picture(columns: int) -> Any:
    panels = {f"kept {column}": (LINES, 0.95) for column in range(columns)}
    return plot_pruned({"Accuracy": panels, "Loss": panels})


@pytest.mark.parametrize("columns", [1, 2])
def test_everything_is_readable_within_the_printed_width(columns: int) -> None:
    figure = picture(columns)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    whole = figure.get_tightbbox(canvas.get_renderer())
    assert whole is not None
    assert whole.x0 >= 0
    assert whole.x1 <= figure.get_figwidth() <= PAGE
    assert whole.y1 <= figure.get_figheight()
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 6


def test_lines_stand_apart_around_their_share() -> None:
    axes = picture(1).axes[0]
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 2 and line.get_marker() != ""]
    lines = [line for line in drawn if line.get_label() != "all heads"]
    starts = [line.get_xdata()[0] for line in lines]
    assert len({*starts}) == len(LINES) == len(starts)
    assert sum(starts) / len(starts) == pytest.approx(67)
    below = picture(1).axes[1]  # both rows have the ticks of the last
    assert [tick.get_text() for tick in below.get_xticklabels()] == ["33", "67"]
    assert "all heads" in {line.get_label() for line in axes.lines}
