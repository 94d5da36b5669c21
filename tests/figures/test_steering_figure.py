"""The figure of `steering`, drawn from numbers that are made by hand."""

from __future__ import annotations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from headcount.figures.steering import plot_steering
from headcount.figures.style import COLUMN, PAGE

SERIES = ("learned direction, best heads", "random direction", "random heads")
POINTS = [(float(a), 0.5 + 0.05 * a, 0.4 + 0.05 * a, 0.6 + 0.05 * a) for a in (5, -5, 0, 2)]


@pytest.mark.parametrize("many", [1, 3])
def test_it_is_readable_within_the_printed_width(many: int) -> None:
    tasks = {f"Task {n}": dict.fromkeys(SERIES, POINTS) for n in range(many)}
    figure = plot_steering({"accuracy": tasks, "log-probability": tasks})
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    whole = figure.get_tightbbox(canvas.get_renderer())
    assert whole is not None
    assert whole.x0 >= 0
    assert whole.x1 <= figure.get_figwidth() == (COLUMN if many == 1 else PAGE)
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 6
    lines = [line for line in figure.axes[0].lines if len(line.get_xdata()) == len(POINTS)]
    assert [line.get_xdata().tolist() for line in lines] == [[-5, 0, 2, 5]] * 3
