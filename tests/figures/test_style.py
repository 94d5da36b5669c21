"""What all figures share: texts that are printed as they are, files, and maps of heads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from figures.test_agreement_figure import made_up as rankings
from figures.test_curve_figure import made_up as curve
from figures.test_inserts_figure import profiles
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.text import Text

from headcount.figures.agreement import plot_agreement
from headcount.figures.edges import plot_edges
from headcount.figures.head_map import draw_head_map
from headcount.figures.inserts import Bar, plot_inserts, plot_sweep
from headcount.figures.kept import KeptLine, KeptPanel, plot_areas, plot_kept, plot_ratios
from headcount.figures.masked import MaskedLine, plot_heat, plot_masked
from headcount.figures.roles import RoleLine, plot_role_maps, plot_roles
from headcount.figures.style import BLUE, ORANGE, count_axis, figure_of, new_figure, save_figure

NAME = r"some $\frac{ model$"  # to matplotlib a formula, and a broken one
POINTS = [(0, 0.0, -0.1, 0.1), (4, 1.0, 0.9, 1.1)]
BAR = Bar(50, 40, 60)
STEP = {"step": 1, "open_edges": 0.5, "averaged_edges": 0.5, "constraint_loss": 3, "limit": 4}


FIGURES: dict[str, Callable[[], Figure]] = {
    "agreement": lambda: plot_agreement(rankings((NAME, "other", "third")).to_json(), title=NAME),
    "curve": lambda: figure_of(curve()._draw(None, NAME)),
    "edges": lambda: plot_edges([STEP], title=NAME),
    "head map": lambda: figure_of(draw_head_map([0.5, -1.0], [1, 1], title=NAME)),
    "heat": lambda: plot_heat({NAME: {NAME: 0.5}}, label=NAME, columns=[NAME]),
    "inserts": lambda: plot_inserts(
        {NAME: {"w/o": BAR}}, {NAME: {}}, profiles(), title=NAME, margin=2
    ),
    "kept": lambda: plot_kept(
        [KeptPanel(NAME, [KeptLine(NAME, BLUE, POINTS)], (4,), NAME)], threshold=0.9
    ),
    "kept, areas": lambda: plot_areas({NAME: {NAME: {NAME: (0.5, 0.4, 0.6)}}}, label=NAME),
    "kept, ratios": lambda: plot_ratios({NAME: {NAME: [(0.5, 2.0, 1.0, 4.0, False)]}}),
    "masked": lambda: plot_masked({NAME: [MaskedLine("top", NAME, BLUE, POINTS)]}, label=NAME),
    "roles": lambda: plot_roles({(NAME, NAME): {"facilitation": RoleLine(POINTS)}}, label=NAME),
    "role maps": lambda: plot_role_maps(
        {(NAME, NAME): (np.array(["undecided"]), np.array([False]))}, {NAME: [1]}
    ),
    "sweep": lambda: plot_sweep({NAME: [(NAME, BAR)]}, label=NAME, title=NAME),
}


@pytest.mark.parametrize("name", FIGURES)
def test_names_are_text_and_not_formulas(name: str, tmp_path: Path) -> None:
    figure = FIGURES[name]()
    shown = [text.get_text() for text in figure.findobj(Text)]  # type: ignore[attr-defined]
    assert any(NAME in text.replace("\n", " ") for text in shown)
    assert all(path.stat().st_size > 1000 for path in save_figure(figure, tmp_path))


def test_the_map_has_a_cell_for_each_head_in_its_place_and_colour() -> None:
    axes = draw_head_map([0.0, 2.0, -1.0, 1.0, -2.0], [2, 3])
    (image,) = axes.get_images()
    picture = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_array_equal(picture, [[0, 2, np.nan], [-1, 1, -2]])
    colours = [to_hex(image.cmap(image.norm(value))) for value in (-2, 2)]
    assert colours == [ORANGE.lower(), BLUE.lower()]
    red, green, blue, _ = image.cmap(image.norm(0.0))
    assert min(red, green, blue) > 0.98  # white
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("head", "layer")


def test_scores_that_are_all_zero_have_a_map_too() -> None:
    figure_of(draw_head_map([0.0] * 4, [2, 2])).draw_without_rendering()


def test_ticks_without_room_are_left_out() -> None:
    wide, narrow = new_figure(12, 2).add_subplot(), new_figure(1.5, 2).add_subplot()
    counts = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]
    for axes in (wide, narrow):
        axes.plot(counts, counts)
        count_axis(axes, counts, "symlog", linthresh=1)
    assert list(wide.get_xticks()) == counts
    assert 1 < len(narrow.get_xticks()) < 7
    assert set(narrow.get_xticks()) < set(counts)
