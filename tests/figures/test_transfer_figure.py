"""The figures of `transfer`, drawn from a matrix that is made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from headcount.figures.style import COLUMN, PAGE
from headcount.figures.transfer import plot_shared, plot_transfer
from headcount.tasks import FUNCTIONS

NAMES = [function.name for function in FUNCTIONS.values()]


def picture(many: int, **how: Any) -> Any:
    """A matrix whose diagonal is high, and one negative cell."""
    losses = np.where(np.eye(many, dtype=bool), 0.9, 0.2)
    losses[0, 1] = -0.3
    specific = {
        "TopK": [(0.6, 0.4, 0.8)] * many,
        "layer-matched": [(0.1, -0.3, 0.5)] * many,
    }
    for place, name in enumerate(NAMES[:many]):
        if name in how.get("at_chance", ()):
            losses[:, place] = np.nan
            specific = {
                series: [None if i == place else e for i, e in enumerate(ends)]  # type: ignore[misc]
                for series, ends in specific.items()
            }
    ends = np.stack([losses, losses - 0.25, losses + 0.1], axis=-1)
    stars = (losses > 0.5) * (1 + np.arange(many) % 2)
    return plot_transfer(NAMES[:many], ends, stars, specific, **how)


@pytest.mark.parametrize("many", [2, 4, 8])
def test_everything_is_readable_within_the_printed_width(many: int) -> None:
    for figure in (
        picture(many, at_chance=NAMES[1:2], border=many // 2),
        plot_shared(NAMES[:many], np.full((many, many), 0.25), 0.02),
    ):
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        whole = figure.get_tightbbox(canvas.get_renderer())
        assert whole is not None
        assert whole.x0 >= 0
        assert whole.y0 >= 0
        assert whole.x1 <= figure.get_figwidth() <= (COLUMN if many <= 4 else PAGE)
        assert whole.y1 <= figure.get_figheight()
        texts = [text for text in figure.findobj(Text) if text.get_text()]
        assert min(text.get_fontsize() for text in texts) >= 6
        cells = figure.axes[0].texts
        side = figure.axes[0].get_window_extent().width / many
        assert all(cell.get_window_extent().width < side for cell in cells)


def test_cells_have_their_numbers_and_stars() -> None:
    heat, dots = picture(4).axes
    texts = np.reshape([text.get_text() for text in heat.texts], (4, 4))
    rows = [text.split("\n")[0] for text in texts[0]]
    assert rows == ["0.90*", "−0.30", "0.20", "0.20"]
    assert [text.split("\n")[0] for text in np.diag(texts)] == ["0.90*", "0.90**"] * 2
    assert texts[0, 1] == "−0.30\n−0.55, −0.20"  # the interval below the value
    values = [line.get_xdata()[0] for line in dots.lines if len(line.get_xdata()) == 1]
    assert sorted(values) == [0.1] * 4 + [0.6] * 4
    assert dots.get_ylim() == heat.get_ylim() == (3.5, -0.5)
    rows = [text.get_text() for text in dots.get_yticklabels()]
    assert rows == [text.get_text() for text in heat.get_yticklabels()]


def test_a_task_at_chance_is_grey_and_has_no_specificity() -> None:
    heat, dots = picture(4, at_chance=NAMES[2:3]).axes
    texts = np.reshape([text.get_text() for text in heat.texts], (4, 4))
    assert texts[:, 2].tolist() == ["–"] * 4
    assert "at chance" in heat.get_xticklabels()[2].get_text().replace("\n", " ")
    assert len([line for line in dots.lines if len(line.get_xdata()) == 1]) == 6
