"""The composite figure of inserts, drawn from made-up numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from figures.in_print import check_print
from matplotlib.colors import to_hex

from headcount.figures.inserts import Bar, Profiles, plot_inserts, plot_profiles, plot_sweep
from headcount.figures.style import BLUE, COLUMN, GREEN, INSERTS, ORANGE, PAGE, save_figure

BARS = {
    "one": {
        "w/o": Bar(60, 50, 70),
        "w/ Mless": Bar(62, 57, 66),
        "w/ Mful": Bar(61, np.nan, np.nan),
    },
    "another": {"w/o": Bar(0, 0, 7), "w/ Mless": Bar(0, -3, 3), "w/ Mful": Bar(5, 1, 8)},
}


CHANGES = {model: {s: Bar(1, -2, 4) for s in of if s != "w/o"} for model, of in BARS.items()}
HOW: dict[str, Any] = {"title": "Results on MATH-500", "margin": 2}


def profiles() -> Profiles:
    rng = np.random.default_rng(0)
    full = {"w/o": rng.uniform(0, 0.1, 30)}
    for name in ("w/ Mless", "w/ Mful"):
        full[name] = np.insert(full["w/o"] * 0.6, 9, np.full(12, 0.01))
    span = list(range(9, 21))
    spans = {"w/o": [], "w/ Mless": span, "w/ Mful": span}
    return Profiles("Average attention on Head 14", full, "Mean", full, full, spans)


def test_bars_and_charts(tmp_path: Path) -> None:
    figure = plot_inserts(BARS, CHANGES, profiles(), **HOW)
    bars, changes, above, below, mean = figure.axes
    assert [label.get_text() for label in changes.get_xticklabels()] == ["one", "another"]
    faces = [to_hex(container.patches[0].get_facecolor()) for container in bars.containers[::2]]
    assert faces == [INSERTS[name] for name in ("w/o", "w/ Mless", "w/ Mful")]
    heights = [
        [bar.get_height() for bar in container.patches] for container in bars.containers[::2]
    ]
    assert heights == [[60, 0], [62, 0], [61, 5]]
    assert bars.get_ylim()[0] == 0
    assert len(changes.containers) == 2  # the inserts, each with its whiskers
    for axes, names, length in (
        (above, ["None", "Mless", "Mful", "uniform reader"], 30),
        (below, ["Mless", "Mful", "uniform reader"], 42),
        (mean, ["None", "Mless", "Mful", "uniform reader"], 30),
    ):
        assert [line.get_label() for line in axes.get_lines()] == names
        assert {len(line.get_xdata()) for line in axes.get_lines()} == {length}
    widths = {line.get_label(): line.get_linewidth() for line in above.get_lines()}
    assert widths["Mful"] > 2 * widths["Mless"]  # where they are alike, both are seen
    colours = [to_hex(line.get_color()).upper() for line in above.get_lines()[:3]]
    assert colours == [BLUE, ORANGE, GREEN]
    assert figure.get_figwidth() == PAGE
    first, second = (save_figure(figure, tmp_path, name) for name in ("a", "b"))
    assert first[0].read_bytes() == second[0].read_bytes()


def test_legends_stand_above_the_charts() -> None:
    figure = plot_inserts(BARS, CHANGES, profiles(), **HOW)
    figure.draw_without_rendering()
    for part, axes in zip(figure.subfigs, (figure.axes[:2], figure.axes[2:]), strict=True):
        (legend,) = part.legends
        lowest = legend.get_window_extent().y0
        assert all(one.get_window_extent().y1 < lowest for one in axes)


@pytest.mark.parametrize("width", [PAGE, COLUMN])
def test_it_can_be_read_in_print(width: float) -> None:
    check_print(plot_inserts(BARS, CHANGES, profiles(), **HOW, width=width), width)
    check_print(plot_inserts(BARS, CHANGES, None, **HOW), COLUMN)
    check_print(plot_profiles([profiles()] * 3), COLUMN)


def test_each_model_has_its_profiles() -> None:
    figure = plot_profiles([profiles(), replace(profiles(), title="another head")])
    assert [axes.get_title() for axes in figure.axes] == [
        "Average attention on Head 14",
        "another head",
    ]
    for axes in figure.axes:
        assert {len(line.get_xdata()) for line in axes.get_lines()} == {30}


def test_models_at_chance_are_marked() -> None:
    figure = plot_inserts(BARS, CHANGES, None, **HOW, at_chance=["another"])
    bars, changes = figure.axes
    ticks = [label.get_text() for label in changes.get_xticklabels()]
    assert ticks == ["one", "another\nat chance"]
    hatched = [[bar.get_hatch() for bar in box.patches] for box in bars.containers[::2]]
    assert hatched == [[None, "////"]] * 3


def test_inserted_places_are_removed() -> None:
    made = profiles()
    short = made.original("w/ Mless", made.head["w/ Mless"])
    np.testing.assert_allclose(short, made.head["w/o"] * 0.6)


def test_without_inserts_there_is_no_full_sequence() -> None:
    alone = {"w/o": profiles().head["w/o"]}
    made = Profiles("Head", alone, "Mean", alone, alone, {"w/o": []})
    _, _, above, below, _ = plot_inserts(BARS, CHANGES, made, **HOW).axes
    assert above.get_lines()
    assert not below.get_lines()


def test_sweeps() -> None:
    points = [("0", Bar(50, 40, 60)), ("10", Bar(45, 35, 55))]
    figure = plot_sweep({"w/ Mless": points}, label="Tokens inserted", title="t")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "10"]
    assert axes.get_xlabel() == "Tokens inserted"
