"""The figure of `teamwork`, drawn from numbers that are made by hand."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from headcount.figures.style import COLUMN, ORANGE, PAGE
from headcount.figures.teamwork import BEST, JOINT, OTHERS, SUM, TeamMap, plot_teamwork

COUNTS = (1, 2, 3, 5, 8, 13, 20)


def team(many: int, title: str = "IOI") -> TeamMap:
    rows, columns = np.indices((many, many))
    interactions = np.where(rows > columns, 0.02 * (rows - columns), np.nan)
    interactions[1, 0] = -0.3
    ratios = [(c, 1 + 0.1 * c, 1.0, 1 + 0.2 * c) for c in COUNTS if c <= many]
    ratios[1:2] = [(2, 1.2, math.nan, math.nan)]
    points = [(c, 0.1 * c, 0.0, 0.2 * c) for c in COUNTS if c <= many]
    losses = {(heads, what): points for heads in (BEST, OTHERS) for what in (JOINT, SUM)}
    names = [f"{29 - n}.{n % 9}" for n in range(many)]
    alone = [(0.3 / (n + 1), 0.0, 0.4) for n in range(many)]
    return TeamMap(title, names, names[1:2], alone, interactions, [(1, 0)], ratios, losses)


@pytest.mark.parametrize(("many", "tasks"), [(2, 1), (10, 2), (20, 1), (20, 3)])
def test_everything_is_readable_within_the_printed_width(many: int, tasks: int) -> None:
    figure = plot_teamwork([team(many, f"Task {n}") for n in range(tasks)])
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    assert figure.get_figwidth() == (COLUMN if tasks == 1 else PAGE)
    texts = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in texts) >= 6
    names = [text.get_window_extent() for text in figure.axes[1].get_xticklabels()]
    assert all(a.x1 <= b.x0 + 1 for a, b in pairwise(names))
    rows = [text.get_window_extent() for text in figure.axes[0].get_yticklabels()]
    assert all(a.y0 >= b.y1 - 1 for a, b in pairwise(rows))
    whole = figure.get_tightbbox(canvas.get_renderer())
    assert whole is not None
    assert whole.x0 >= 0
    assert whole.x1 <= figure.get_figwidth() + 0.02


def test_judged_pairs_are_marked_and_unknown_ratios_are_gaps() -> None:
    alone, heat, ratio, losses, *_ = plot_teamwork([team(8)]).axes
    (mark,) = heat.lines
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (0, 1)
    colours: Any = [label.get_color() for label in alone.get_yticklabels()]
    assert [n for n, colour in enumerate(colours) if colour == ORANGE] == [1]
    (best,) = ratio.lines[1:]
    assert best.get_xdata().tolist() == [1, 3, 5, 8]
    assert len(losses.lines) == 5  # two series, together and summed, and the line at 0
    (image,) = heat.images
    assert image.norm.vmin == -image.norm.vmax == -0.3  # 0 is white
