"""The figure of a curve, drawn from a table that is made by hand."""

from __future__ import annotations

import ast
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from PIL import Image

import headcount.figures
from headcount import Curve, HeadLayout, HeadScores
from headcount.curves import Point
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.measure.sweep import Values
from headcount.figures.curves import SINGLE
from headcount.figures.style import SERIES, save_figure
from headcount.metrics import METRICS


def made_up(
    counts: tuple[int, ...] = (0, 1, 2, 4, 8, 16),
    series: tuple[str, ...] = ("top", "random", "matched"),
    metric: str = "accuracy",
    ablation: str = "zero",
    **changes: Any,
) -> Curve:
    """A curve that falls, with intervals of a tenth to either side."""
    points = tuple(
        Point("tiny", "ioi", name, "accuracy", count, value, value - 0.1, value + 0.1, 40, draws, 0)
        for name in series
        for draws in [1 if name in ("top", "bottom") else 5]
        for count in counts
        for value in [0.9 - (0.04 if name == "top" else 0.01) * count]
    )
    layout = HeadLayout((20, 20))
    scores = HeadScores(layout, np.arange(40.0), ranking="attribution")
    whole = HeadSets.of(np.ones((1, 40)), layout)  # a figure is drawn of the points alone
    examples = tuple(map(str, range(40)))
    table = np.zeros((1, 40))
    own = np.stack([np.arange(40)] * 2, 1)  # a template and a content for each example
    values = Values(table, whole, examples, own, METRICS[metric], ablation)
    return replace(Curve(points, values, scores, "mask"), **changes)


def texts(figure: Figure) -> list[str]:
    (legend,) = figure.legends
    return [text.get_text() for text in legend.get_texts()]


def ticks(figure: Figure) -> list[str]:
    (axes,) = figure.axes
    return [label.get_text() for label in axes.get_xticklabels()]


def test_axes_say_what_they_show() -> None:
    (axes,) = made_up().figure().axes
    assert axes.get_xlabel() == "Number of heads masked (of 40)"
    assert axes.get_ylabel() == "Accuracy"
    assert axes.get_title() == "ioi · tiny · ranked by attribution"
    (kept,) = made_up(mode="keep", metric="logprob").figure().axes
    assert kept.get_xlabel() == "Number of heads kept (of 40)"
    assert kept.get_ylabel() == "Log-probability of right answer"


def test_the_legend_names_every_series_and_its_draws() -> None:
    assert texts(made_up().figure()) == [
        "TopK",
        "RandomK (mean of 5 draws)",
        "RandomK, layer-matched (mean of 5 draws)",
    ]
    assert texts(made_up(series=("bottom",)).figure()) == ["BottomK"]


def test_every_count_has_a_tick_and_no_other() -> None:
    assert ticks(made_up().figure()) == ["0", "1", "2", "4", "8", "16"]
    assert ticks(made_up(counts=(0, 3)).figure()) == ["0", "3"]
    (axes,) = made_up().figure().axes
    assert list(axes.get_xticks(minor=True)) == []


def test_lines_and_bands_are_the_points() -> None:
    curve = made_up()
    (axes,) = curve.figure().axes
    assert len(axes.lines) == len(axes.collections) == 3
    for line, band, name in zip(
        axes.lines, axes.collections, ("top", "random", "matched"), strict=True
    ):
        points = curve.series(name)
        assert list(line.get_xdata()) == [point.count for point in points]
        assert list(line.get_ydata()) == [point.value for point in points]
        (path,) = band.get_paths()
        corners = {tuple(np.round(corner, 6)) for corner in path.vertices}
        for point in points:
            assert (point.count, round(point.low, 6)) in corners
            assert (point.count, round(point.high, 6)) in corners


def test_series_differ_in_more_than_colour() -> None:
    (axes,) = made_up(series=("top", "bottom", "random", "matched")).figure().axes
    looks = [(line.get_linestyle(), line.get_marker()) for line in axes.lines]
    assert len(set(looks)) == 4
    assert len({line.get_color() for line in axes.lines}) == 4


def test_accuracies_are_drawn_from_zero_to_one() -> None:
    (axes,) = made_up().figure().axes
    low, high = axes.get_ylim()
    assert -0.1 < low < 0
    assert 1 < high < 1.1
    (free,) = made_up(metric="logprob").figure().axes
    assert free.get_ylim() != (low, high)


def test_the_note_tells_the_number_of_examples_and_the_ablation() -> None:
    figure = made_up(ablation="mean over 3 prompts").figure()
    (note,) = [text.get_text() for text in figure.texts]
    assert note == "bands: 95 % intervals · n = 40 examples · ablation: mean over 3 prompts"


def test_intervals_that_are_not_known_leave_a_gap() -> None:
    curve = made_up()
    unknown = tuple(replace(point, low=math.nan, high=math.nan) for point in curve.points)
    figure = replace(curve, points=unknown).figure()
    FigureCanvasAgg(figure).draw()
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [6, 6, 6]


def test_long_texts_stay_within_the_figure() -> None:
    long = made_up(
        ablation="mean over 100 corrupted prompts of the ranking split, per position within one "
        "template and length",
        points=tuple(
            replace(point, model="some-organisation/a-language-model-of-some-size-instruct-v0.3")
            for point in made_up().points
        ),
    )
    figure = long.figure()
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    everything = figure.get_tightbbox(canvas.get_renderer())
    width, height = figure.get_size_inches()
    assert everything is not None
    assert everything.x0 >= 0
    assert everything.y0 >= 0
    assert everything.x1 <= width
    assert everything.y1 <= height


def test_files_made_twice_are_equal_byte_for_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, clock in (("one", "1"), ("two", "86400")):
        (tmp_path / name).mkdir()
        monkeypatch.setenv("SOURCE_DATE_EPOCH", clock)  # another day
        save_figure(made_up().figure(), tmp_path / name)
    for suffix in ("png", "svg", "pdf"):
        one, two = ((tmp_path / name / f"figure.{suffix}").read_bytes() for name in ("one", "two"))
        assert len(one) > 1000
        assert one == two, suffix


def test_files_are_named_and_of_their_kind(tmp_path: Path) -> None:
    paths = save_figure(made_up().figure(), tmp_path, name="mine")
    assert [path.name for path in paths] == ["mine.png", "mine.svg", "mine.pdf"]
    starts = [path.read_bytes()[:6] for path in paths]
    assert starts[0][1:4] == b"PNG"
    assert starts[1].startswith(b"<?xml")
    assert starts[2].startswith(b"%PDF")


def test_pictures_have_few_colours_and_look_as_they_were_drawn(tmp_path: Path) -> None:
    figure = made_up().figure()
    figure.savefig(tmp_path / "drawn.png", dpi=200)
    path = save_figure(figure, tmp_path)[0]
    with Image.open(tmp_path / "drawn.png") as drawn, Image.open(path) as saved:
        assert saved.mode == "P"
        assert saved.info["dpi"] == pytest.approx((200, 200), abs=0.1)
        colours = [np.asarray(picture.convert("RGB"), dtype=int) for picture in (drawn, saved)]
    assert path.stat().st_size < 0.6 * (tmp_path / "drawn.png").stat().st_size
    assert np.abs(colours[0] - colours[1]).max() < 20  # of 255
    assert (colours[1][0, 0] == 255).all()  # white stays white


def test_figures_import_nothing_else_of_the_package() -> None:
    """Tables in, figures out: whoever has a table can draw it."""
    for path in Path(headcount.figures.__path__[0]).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", ())]
            for module in [getattr(node, "module", None) or "", *names]:
                parts = module.split(".")
                assert parts[0] not in ("torch", "transformers"), path
                assert parts[0] != "headcount" or parts[1] == "figures", path


def test_series_of_other_names_all_look_different() -> None:
    names = tuple(f"ranking {number}" for number in range(14))
    (axes,) = made_up(series=names).figure().axes
    assert len({(line.get_color(), line.get_marker()) for line in axes.get_lines()}) == len(names)


def test_no_two_series_of_a_curve_look_alike() -> None:
    assert set(SERIES) == set(SINGLE)
    looks = [tuple(sorted(look.items())) for look in SINGLE.values()]
    assert len({look["colour"] for look in SINGLE.values()}) == len(set(looks)) == len(SERIES)
