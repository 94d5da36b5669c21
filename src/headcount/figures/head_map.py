"""A map of heads: layer × head, coloured by a score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from headcount.figures.style import BLUE, ORANGE, figure_of_texts, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@figure_of_texts
def draw_head_map(
    values: Sequence[float],
    counts: Sequence[int],
    *,
    title: str = "",
    axes: Axes | None = None,
    across: bool = False,
) -> Axes:
    """One cell per head: blue above zero, orange below, stronger the farther from it.

    `values` are in the order of all heads; `counts` are the heads of each layer. Layers go from top
    to bottom or, with `across`, from left to right. Draws into `axes`, or into a new figure.
    """
    from matplotlib.colors import LinearSegmentedColormap

    picture = by_layer(values, counts)  # (layers, heads)
    picture = picture.T if across else picture
    if axes is None:
        cell = 0.13 if max(picture.shape) <= 40 else 0.07
        size = (max(2.4, cell * picture.shape[1] + 1.4), max(1.6, cell * picture.shape[0] + 0.8))
        axes = new_figure(*size).add_subplot()
    most = float(np.nanmax(np.abs(picture))) or 1.0
    shades = LinearSegmentedColormap.from_list("scores", [ORANGE, "white", BLUE])
    image = axes.imshow(picture, cmap=shades, vmin=-most, vmax=most, aspect="auto")
    axes.figure.colorbar(image, ax=axes)
    names = ("layer", "head") if across else ("head", "layer")
    axes.set(xlabel=names[0], ylabel=names[1])
    whole_ticks(axes)
    if title:
        axes.set_title(title, fontsize=10)
    return axes


def whole_ticks(axes: Axes) -> None:
    """Put ticks at whole numbers only, since layers and heads are numbered."""
    from matplotlib.ticker import MaxNLocator

    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True))


def by_layer(values: Sequence[float], counts: Sequence[int]) -> np.ndarray:
    """Arrange values in one row per layer; NaN fills layers with fewer heads than the largest.

    >>> by_layer([1, 2, 3], [2, 1])
    array([[ 1.,  2.],
           [ 3., nan]])
    """
    picture = np.full((len(counts), max(counts)), np.nan)
    picture[np.arange(max(counts)) < np.asarray(counts)[:, None]] = values
    return picture
