"""The figures of masked heads, drawn from points that are made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from figures.in_print import check_print
from matplotlib.backends.backend_agg import FigureCanvasAgg

from headcount.figures.masked import CONTROLS, MaskedLine, plot_heat, plot_masked
from headcount.figures.style import COLUMN, METRICS, PAGE

COUNTS = (0, 4, 8, 16)
METRIC_NAMES = ("Accuracy", "Similarity (MiniLM)")


def lines(names: Sequence[str] = METRIC_NAMES, counts: Sequence[int] = COUNTS) -> list[MaskedLine]:
    """TopK, which falls, and RandomK, which does not, by each metric."""
    return [
        MaskedLine(
            series,
            f"{series} {name}",
            colour,
            [(c, 0.9 - fall * c, 0.8 - fall * c, 1 - fall * c) for c in counts],
        )
        for name, colour in zip(names, METRICS, strict=False)
        for series, fall in (("top", 0.05), ("random", 0.005))
    ]


@pytest.mark.parametrize("panels", [1, 2, 4, 5, 8])
@pytest.mark.parametrize("names", [METRIC_NAMES[:1], METRIC_NAMES])
@pytest.mark.parametrize("width", [PAGE, COLUMN])
def test_everything_stays_within_the_printed_width(
    panels: int, names: tuple[str, ...], width: float
) -> None:
    made = {f"panel {i}": lines(names) for i in range(panels)}
    figure = plot_masked(made, label="Score", width=width)
    check_print(figure, width if panels > 2 else COLUMN)
    (legend,) = figure.legends
    assert len(legend.get_texts()) == 2 * len(names)  # each line once, however many panels


def test_bands_beyond_the_frame_are_marked() -> None:
    beyond = MaskedLine("top", "TopK", "black", [(4, 0.5, -0.2, 1.0), (8, 0.5, -0.4, 1.3)])
    (axes,) = plot_masked({"Math": [beyond]}, label="Score").axes
    marks = {line.get_marker(): line for line in axes.lines if line.get_marker() in ("^", "v")}
    assert set(marks) == {"^", "v"}
    assert {line.get_xdata()[0] for line in marks.values()} == {8}  # the farthest of a run
    assert [marks[mark].get_ydata()[0] for mark in ("v", "^")] == [0.0, 1.0]  # of the height


def test_lines_and_bands_are_the_points_and_treatment_and_control_both_have_bands() -> None:
    (axes,) = plot_masked({"Math": lines()}, label="Score").axes
    drawn = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert len(drawn) == 4
    bands = [band for band in axes.collections if len(band.get_paths()[0].vertices) > 4]
    assert len(bands) == 4
    for line, band, wanted in zip(drawn, bands, lines(), strict=True):
        masked, places = wanted.points[1:], list(line.get_xdata())
        assert places == pytest.approx([count for count, *_ in masked], rel=0.09)  # drawn apart
        assert list(line.get_ydata()) == [value for _, value, *_ in masked]
        corners = {tuple(np.round(corner, 6)) for corner in band.get_paths()[0].vertices}
        for place, (_, _, low, high) in zip(np.round(places, 6), masked, strict=True):
            assert {(place, round(low, 6)), (place, round(high, 6))} <= corners
    assert len({line.get_xdata()[0] for line in drawn}) == 4  # equal lines do not hide each other
    assert [band.get_hatch() for band in bands] == [None, "/////"] * 2  # and bands differ


def test_the_whole_model_stands_apart_behind_a_break() -> None:
    """A log axis has no 0: no line may lead there, as if it were a count."""
    (axes,) = plot_masked({"Math": lines()}, label="Score").axes
    ticks = [label.get_text() for label in axes.get_xticklabels()]
    assert ticks == ["0", "4", "8", "16"]
    aside = axes.get_xticks()[0]
    assert 0 < aside < 4 / 2
    lonely = [line for line in axes.lines if len(line.get_xdata()) == 1]
    assert [line.get_ydata()[0] for line in lonely] == [0.9]  # all series are the whole model
    assert lonely[0].get_xdata()[0] == pytest.approx(aside, rel=0.09)
    broken = [line for line in axes.lines if line.get_transform() == axes.transAxes]
    assert len(broken) == 3  # a gap in the axis, and a stroke on each side of it
    places = axes.transAxes.inverted().transform(axes.transData.transform([(aside, 0), (4, 0)]))
    for line in broken:
        assert all(places[0][0] < x < places[1][0] for x in line.get_xdata())


def test_counts_that_a_series_lacks_leave_no_line_and_no_error() -> None:
    only_whole = [MaskedLine("top", "TopK", "black", [(0, 0.5, 0.4, 0.6)])]
    matched = MaskedLine("matched", "matched", "black", [(4, 0.5, np.nan, np.nan)])
    for some in (only_whole, [*only_whole, matched]):
        figure = plot_masked({"Math": some}, label="Score")
        FigureCanvasAgg(figure).draw()
        assert figure.axes[0].get_xticklabels()[0].get_text() == "0"


def test_panels_share_the_axis_and_name_it_at_the_edge() -> None:
    figure = plot_masked({f"panel {i}": lines() for i in range(6)}, label="Score")
    shown = [axes for axes in figure.axes if axes.get_visible()]
    assert [axes.get_title() for axes in shown] == [f"panel {i}" for i in range(6)]
    assert [bool(axes.get_ylabel()) for axes in shown] == [True, *[False] * 3, True, False]
    assert [bool(axes.get_xlabel()) for axes in shown] == [False] * 2 + [True] * 4
    assert {axes.get_ylim() for axes in shown} == {(-0.03, 1.03)}


def test_controls_differ_in_more_than_colour() -> None:
    some = [
        MaskedLine(name, name, colour, [(4, 0.5, 0.4, 0.6), (8, 0.4, 0.3, 0.5)])
        for name, colour in CONTROLS.items()
    ]
    (axes,) = plot_masked({"Math": some}, label="Accuracy").axes
    drawn = [line for line in axes.lines if line.get_label() in CONTROLS]
    assert len({line.get_color() for line in drawn}) == len(CONTROLS) == 3
    assert len({(line.get_linestyle(), line.get_marker()) for line in drawn}) == 3


def test_the_heat_map_tells_every_number_and_what_is_missing() -> None:
    values = {
        "Attribution": {"Math": 0.25, "Retrieval": 0.9},
        "Probe": {"Math": 0.5},  # it does not suit the other function
    }
    figure = plot_heat(values, label="TopK accuracy", columns=["Math", "Retrieval"])
    axes, bar = figure.axes
    cells = {tuple(map(int, text.get_position())): text.get_text() for text in axes.texts}
    assert cells == {(0, 0): "0.25", (1, 0): "0.90", (0, 1): "0.50", (1, 1): "–"}
    (picture,) = axes.get_images()
    shown = np.ma.filled(np.ma.asarray(picture.get_array()).astype(float), np.nan)
    np.testing.assert_array_equal(shown, [[0.25, 0.9], [0.5, np.nan]])
    assert picture.get_clim() == (0, 1)  # colours mean the same in every figure
    assert [label.get_text() for label in axes.get_yticklabels()] == ["Attribution", "Probe"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["Math", "Retrieval"]
    assert bar.get_ylabel() == "TopK accuracy"


@pytest.mark.parametrize("value", [0.0, 0.5, 0.6, 1.0])
def test_numbers_of_the_heat_map_are_readable_on_their_colour(value: float) -> None:
    axes = plot_heat({"a": {"b": value}}, label="l", columns=["b"]).axes[0]
    (picture,) = axes.get_images()
    red, green, blue, _ = picture.cmap(picture.norm(value))
    light = 0.2126 * red + 0.7152 * green + 0.0722 * blue
    ink = {"black": 0.0, "white": 1.0}[axes.texts[0].get_color()]
    assert abs(light - ink) > 0.4
