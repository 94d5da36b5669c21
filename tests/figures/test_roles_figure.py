"""The figures of head-roles, drawn from numbers that are made by hand."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from figures.in_print import check_print
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from headcount.figures.roles import BEYOND, RoleLine, plot_role_maps, plot_roles
from headcount.figures.style import COLUMN, PAGE, ROLES, UNDECIDED

ROWS = ("Syntax", "Common Sense", "Math")
COUNTS = range(0, 51, 10)


LABEL = "Δ Log Probability of Target Response"


def made_up(*models: str, carriers: float = 100) -> dict[tuple[str, str], Mapping[str, RoleLine]]:
    slopes = {"facilitation": -0.06, "irrelevance": -0.001, "interference": 0.01}
    return {
        (row, model): {
            role: RoleLine(
                [
                    (count, slope * count * scale, slope * count * scale - 0.2, slope * count)
                    for count in COUNTS
                ],
                carriers,
            )
            for role, slope in slopes.items()
        }
        for row, scale in zip(ROWS, (1, 0.8, 40), strict=True)
        for model in models
    }


def boxes(figure: Figure) -> list[tuple[float, float, float, float]]:
    """Where the texts of a figure stand, as shares of it."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    texts = [
        text
        for axes in figure.axes
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label)
        if text.get_text()
    ]
    texts += [t for t in (figure._supxlabel, figure._supylabel) if t is not None]  # type: ignore[attr-defined]
    texts += [t for legend in figure.legends for t in (legend.get_title(), *legend.get_texts())]
    found = [part.get_window_extent() for part in (*texts, *figure.legends)]
    return [(b.x0 / width, b.y0 / height, b.x1 / width, b.y1 / height) for b in found]


@pytest.mark.parametrize("models", [("A",), ("A", "B"), ("A", "B", "C", "D")])
def test_the_grid_has_the_published_form(models: tuple[str, ...]) -> None:
    figure = plot_roles(made_up(*models), label=LABEL)
    assert figure.get_figwidth() == (COLUMN if len(models) == 1 else PAGE)
    grid = np.array(figure.axes).reshape(3, len(models))
    assert [axes.get_title() for axes in grid[0]] == list(models)
    assert not any(axes.get_title() for axes in grid[1:].ravel())
    assert [axes.get_ylabel() for axes in grid[:, -1]] == list(ROWS)
    assert all(axes.yaxis.get_label_position() == "right" for axes in grid[:, -1])
    labels = {" ".join(axes.get_xlabel().split()) for axes in grid[-1]}
    assert labels == {"Number of Ablated Heads"}
    assert figure._supylabel.get_text() == LABEL  # type: ignore[attr-defined]
    (legend,) = figure.legends
    assert legend.get_title().get_text() == "Metric"
    assert [t.get_text() for t in legend.get_texts()] == [
        *("Facilitation", "Irrelevance", "Interference")
    ]
    for x0, y0, x1, y1 in boxes(figure):
        assert -0.01 <= x0 < x1 <= 1.01
        assert -0.01 <= y0 < y1 <= 1.01


def test_lines_have_their_colours_values_and_bands() -> None:
    panels = made_up("A", "B")
    figure = plot_roles(panels, label=LABEL)
    axes = figure.axes[0]
    lines = {line.get_label(): line for line in axes.get_lines()}
    for role, colour in ROLES.items():
        line = lines[role.capitalize()]
        assert line.get_color() == colour
        given = panels["Syntax", "A"][role].points
        np.testing.assert_allclose(line.get_xdata(), [point[0] for point in given])
        np.testing.assert_allclose(line.get_ydata(), [point[1] for point in given])
    assert len({line.get_linestyle() for line in lines.values()} | {"-"}) == 3  # not colour alone
    assert len({lines[role.capitalize()].get_marker() for role in ROLES}) == 3
    assert len(axes.collections) == 3
    green, blue, red = (
        np.array([int(c[i : i + 2], 16) for i in (1, 3, 5)]) for c in ROLES.values()
    )
    assert (green.argmax(), blue.argmax(), red.argmax()) == (1, 2, 0)
    low, high = axes.get_xlim()
    assert low <= 0
    assert 50 <= high < 60
    assert figure.axes[4].get_ylim() == figure.axes[5].get_ylim()  # a row shares its axis
    assert figure.axes[0].get_ylim() != figure.axes[4].get_ylim()


@pytest.mark.parametrize("models", [1, 2, 4])
@pytest.mark.parametrize("width", [PAGE, COLUMN])
def test_the_grid_can_be_read_in_print(models: int, width: float) -> None:
    names = [f"Qwen2.5-Coder-{size}B (Q4_K_M)" for size in (0.5, 1.5, 3, 7)][:models]
    figure = plot_roles(made_up(*names), label=LABEL, width=width)
    check_print(figure, width if models > 1 else COLUMN)
    for axes in figure.axes:
        low, high = axes.get_ylim()
        assert sum(low <= tick <= high for tick in axes.get_yticks()) >= 3


def test_unknown_intervals_leave_the_line() -> None:
    nan = float("nan")
    line = RoleLine([(0, 0.0, nan, nan), (2, -1.0, nan, nan)])
    figure = plot_roles({("Syntax", "A"): {"facilitation": line}}, label=LABEL)
    assert len(figure.axes[0].get_lines()) == 2  # zero, and the line
    FigureCanvasAgg(figure).draw()


@pytest.mark.parametrize(
    ("carriers", "coloured", "grey"),
    [(25.0, [0, 10, 20], [20, 30, 40, 50]), (50, list(COUNTS), []), (0, [0], list(COUNTS))],
)
def test_beyond_the_heads_that_carry_a_role_its_line_is_grey(
    carriers: float, coloured: list[int], grey: list[int]
) -> None:
    panels = made_up("A", carriers=carriers)
    axes = plot_roles(panels, label=LABEL).axes[0]
    lines = axes.get_lines()[1:]  # without that of zero
    own = [line for line in lines if line.get_color() != BEYOND]
    beyond = [line for line in lines if line.get_color() == BEYOND]
    assert [line.get_color() for line in own] == list(ROLES.values())
    assert all(list(line.get_xdata()) == coloured for line in own)
    assert len(beyond) == (3 if grey else 0)
    for line, role in zip(beyond, ROLES, strict=False):
        assert list(line.get_xdata()) == grey
        given = {point[0]: point[1] for point in panels["Syntax", "A"][role].points}
        np.testing.assert_allclose(line.get_ydata(), [given[count] for count in grey])
        assert line.get_linewidth() < own[0].get_linewidth()
    (legend,) = axes.figure.legends  # type: ignore[union-attr]
    assert ("beyond its heads" in [t.get_text() for t in legend.get_texts()]) == bool(grey)


def test_zoomed_panels_have_their_own_axes() -> None:
    panels = {
        (row, "A"): {"interference": RoleLine([(0, 0.0, 0.0, 0.0), (count, height, 0.0, height)])}
        for row, count, height in (("Syntax", 60, 1.0), ("Math", 30, 20.0))
    }
    first, second = plot_roles(panels, label=LABEL, zoomed=True).axes
    assert first.get_ylim()[1] < 2 < 20 <= second.get_ylim()[1]
    assert second.get_xlim()[1] < 40 < 60 <= first.get_xlim()[1]
    one, other = plot_roles(panels, label=LABEL).axes
    assert one.get_xlim() == other.get_xlim()


def test_a_cell_that_was_not_run_is_empty_and_says_so() -> None:
    panels = made_up("A", "B")
    del panels["Math", "B"]
    figure = plot_roles(panels, label=LABEL, at_chance=[("Syntax", "B")])
    grid = np.array(figure.axes).reshape(3, 2)
    assert [text.get_text() for text in grid[2, 1].texts] == ["not run"]
    assert not any(axes.texts for axes in grid.ravel()[:-1])
    assert grid[2, 1].get_ylabel() == "Math"  # the label of the row
    assert grid[0, 1].get_title() == "B\nat chance"
    heads = np.array(["facilitation", "undecided"]), np.array([True, False])
    maps = dict.fromkeys(panels, heads)
    drawn = plot_role_maps(maps, {"A": [2], "B": [2]})
    assert [axes.get_visible() for axes in drawn.axes] == [True] * 5 + [False]


def test_the_map_shows_the_role_of_each_head_and_whether_it_holds_in_all_seeds() -> None:
    labels = np.array(["facilitation", "irrelevance", "interference", "undecided", "irrelevance"])
    stable = np.array([True, True, False, False, False])
    maps = {("Syntax", "A"): (labels, stable), ("Math", "A"): (labels[::-1], stable)}
    figure = plot_role_maps(maps, {"A": [2, 3]})
    first, second = figure.axes
    assert (first.get_title(), second.get_title()) == ("Syntax", "Math")
    (image,) = first.get_images()
    picture = np.ma.filled(image.get_array(), np.nan)
    np.testing.assert_array_equal(picture, [[0, 1, np.nan], [6, 3, 5]])
    colours = [to_hex(image.cmap(image.norm(number))) for number in range(7)]
    assert colours[:4] == [*ROLES.values(), UNDECIDED]
    for strong, pale in zip(colours[:3], colours[4:], strict=True):
        parts = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in (strong, pale)])
        assert (parts[1] > parts[0]).all()  # pale is nearer to white
        assert parts[0].argmax() == parts[1].argmax()  # in the same hue
    assert (first.get_xlabel(), first.get_ylabel()) == ("head", "layer")
    (legend,) = figure.legends
    names = {"Facilitation", "Irrelevance", "Interference", "Undecided"}
    assert {text.get_text() for text in legend.get_texts()} == names


def test_maps_of_several_models_stand_in_rows() -> None:
    rng = np.random.default_rng(0)
    counts = {"A": [4] * 6, "B": [3, 5]}
    maps = {
        (task, model): (rng.choice([*ROLES, "undecided"], sum(heads)), rng.random(sum(heads)) < 0.5)
        for model, heads in counts.items()
        for task in ROWS
    }
    figure = plot_role_maps(maps, counts)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == [f"{task}, {model}" for model in counts for task in ROWS]
    shapes = [axes.get_images()[0].get_array().shape for axes in figure.axes]
    assert shapes == [(6, 4)] * 3 + [(2, 5)] * 3
    for x0, y0, x1, y1 in boxes(figure):
        assert -0.01 <= x0 < x1 <= 1.01
        assert -0.01 <= y0 < y1 <= 1.01
