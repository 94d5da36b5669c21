"""The composite figure of inserts, drawn from made-up numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headcount.figures.inserts import Bar, Profiles, plot_inserts, plot_sweep
from headcount.figures.style import INSERTS, save_figure

BARS = {
    "one": {
        "w/o": Bar(60, 50, 70),
        "w/ Mless": Bar(62, 57, 66),
        "w/ Mful": Bar(61, np.nan, np.nan),
    },
    "another": {"w/o": Bar(0, 0, 7), "w/ Mless": Bar(0, -3, 3), "w/ Mful": Bar(5, 1, 8)},
}


def profiles() -> Profiles:
    rng = np.random.default_rng(0)
    full = {"w/o": rng.uniform(0, 0.1, 30)}
    for name in ("w/ Mless", "w/ Mful"):
        full[name] = np.insert(full["w/o"] * 0.6, 9, np.full(12, 0.01))
    span = list(range(9, 21))
    return Profiles(
        "Average attention on Head 14", full, {"w/o": [], "w/ Mless": span, "w/ Mful": span}
    )


def test_bars_and_charts(tmp_path: Path) -> None:
    figure = plot_inserts(BARS, profiles(), title="Results on Math-500", note="n = 60")
    bars, above, below = figure.axes
    assert [label.get_text() for label in bars.get_xticklabels()] == ["one", "another"]
    from matplotlib.colors import to_hex

    faces = [to_hex(container.patches[0].get_facecolor()) for container in bars.containers[::2]]
    assert faces == [INSERTS[name] for name in ("w/o", "w/ Mless", "w/ Mful")]
    heights = [
        [bar.get_height() for bar in container.patches] for container in bars.containers[::2]
    ]
    assert heights == [[60, 0], [62, 0], [61, 5]]
    assert len(above.get_lines()) == 3
    assert {len(line.get_xdata()) for line in above.get_lines()} == {30}
    assert len(below.get_lines()) == 2
    assert {len(line.get_xdata()) for line in below.get_lines()} == {42}
    first, second = (save_figure(figure, tmp_path, name) for name in ("a", "b"))
    assert first[0].read_bytes() == second[0].read_bytes()


def test_inserted_places_are_removed() -> None:
    made = profiles()
    np.testing.assert_allclose(made.original("w/ Mless"), made.full["w/o"] * 0.6)


def test_without_profiles_there_is_one_chart() -> None:
    assert len(plot_inserts(BARS, None, title="t").axes) == 1


def test_sweeps() -> None:
    points = [("0", Bar(50, 40, 60)), ("10", Bar(45, 35, 55))]
    figure = plot_sweep({"w/ Mless": points}, label="Tokens inserted", title="t")
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "10"]
    assert axes.get_xlabel() == "Tokens inserted"
