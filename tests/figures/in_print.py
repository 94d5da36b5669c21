"""Whether a figure can be read in print: its width, the size of its letters, and their places."""

from __future__ import annotations

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from headcount.figures.style import COLUMN, PAGE

SMALLEST = 6.0  # points


def check_print(figure: Figure, width: float | None = None) -> None:
    """No letter is too small, nothing is cut off, and the width is that of a page or a column."""
    assert figure.get_figwidth() in ((width,) if width else (PAGE, COLUMN))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    across, high = canvas.get_width_height()
    for text in figure.findobj(Text):
        if not (text.get_text().strip() and text.get_visible()):
            continue
        assert text.get_fontsize() >= SMALLEST, text
        box = text.get_window_extent()
        if box.width and any(axes.get_visible() for axes in figure.axes if axes is text.axes):
            assert box.x0 >= -1, text
            assert box.x1 <= across + 1, text
            assert box.y0 >= -1, text
            assert box.y1 <= high + 1, text
    for legend in [*figure.legends, *(one for part in figure.subfigs for one in part.legends)]:
        box = legend.get_window_extent()
        assert box.x0 >= -1
        assert box.x1 <= across + 1
        covered = [axes for axes in figure.axes if axes.get_visible()]
        assert not any(box.overlaps(axes.get_window_extent().padded(-2)) for axes in covered)
    assert high / across <= 2.4  # it fits on a page
