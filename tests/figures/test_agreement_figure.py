"""The figure of agreement, drawn from rankings that are made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from headcount import HeadLayout, HeadScores
from headcount.figures.agreement import plot_agreement
from headcount.figures.style import save_figure
from headcount.rankings.agreement import Agreement, agreement

NAMES = (
    "attribution",
    "ablation",
    "random",
    "probe",
    "attention-induction",
    "attention-retrieval",
    "integrated-gradients",
)


def made_up(names: tuple[str, ...] = NAMES[:3], heads: int = 40) -> Agreement:
    """Rankings that share a truth, each with noise of its own; the third has no samples."""
    rng = np.random.default_rng(0)
    truth = rng.exponential(size=heads)
    rankings = {}
    for place, name in enumerate(names):
        samples = truth + place * rng.normal(size=(20, heads))
        rankings[name] = HeadScores(
            HeadLayout((heads // 2, heads // 2)),
            samples.mean(0) if place < 2 else rng.random(heads),
            name,
            samples=samples if place != 2 else None,
        )
    return agreement(rankings)


def drawn(figure: Figure) -> FigureCanvasAgg:
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return canvas


def test_the_matrix_shows_every_correlation() -> None:
    found = made_up()
    left, _ = plot_agreement(found.to_json()).axes
    numbers = [text.get_text() for text in left.texts]
    assert len(numbers) == 9
    assert numbers[1] == numbers[3] == f"{found.correlation[0, 1]:.2f}".replace("-", "−")
    assert numbers[0] == f"{found.stability['attribution'].value:.2f}"
    assert numbers[8] == "–"  # random has no samples, so nothing to halve
    assert [label.get_text() for label in left.get_xticklabels()] == list(NAMES[:3])
    assert [label.get_text() for label in left.get_yticklabels()] == list(NAMES[:3])


def test_lines_are_the_overlaps_and_the_band_is_chance() -> None:
    found = made_up()
    _, right = plot_agreement(found.to_json()).axes
    chance, *lines = right.lines
    assert list(chance.get_xdata()) == found.counts
    for line, (one, other) in zip(
        lines,
        [("attribution", "ablation"), ("attribution", "random"), ("ablation", "random")],
        strict=True,
    ):
        points = [o for o in found.overlaps if (o.one, o.other) == (one, other)]
        assert list(line.get_ydata()) == [o.share for o in points]
        assert line.get_label() == f"{one} / {other}"
    (band,) = right.collections
    corners = {tuple(np.round(corner, 6)) for corner in band.get_paths()[0].vertices}
    for o in found.overlaps:
        assert (o.count, round(o.chance_low, 6)) in corners
        assert (o.count, round(o.chance_high, 6)) in corners


def test_axes_say_what_they_show() -> None:
    figure = plot_agreement(made_up().to_json(), title="ioi · tiny")
    left, right = figure.axes
    assert "Spearman" in left.get_title()
    assert right.get_xlabel() == "K (of 40 heads)"
    assert right.get_ylabel() == "Share of the best K in common"
    assert [label.get_text() for label in right.get_xticklabels()] == ["1", "2", "4", "8", "16"]
    (legend,) = figure.legends
    assert "random rankings: 95 % interval" in [text.get_text() for text in legend.get_texts()]
    assert figure.get_suptitle() == "ioi · tiny"


def test_ten_pairs_can_be_told_apart() -> None:
    _, right = plot_agreement(made_up(NAMES[:5]).to_json()).axes
    looks = {(line.get_color(), line.get_linestyle(), line.get_marker()) for line in right.lines}
    assert len(looks) == 11


def test_of_many_pairs_those_with_the_first_ranking_stand_out() -> None:
    figure = plot_agreement(made_up(NAMES).to_json())
    _, right = figure.axes
    assert len(right.lines) == 1 + 21
    coloured = [line for line in right.lines if line.get_marker() != "None"]
    assert [line.get_label() for line in coloured] == [f"{NAMES[0]} / {n}" for n in NAMES[1:]]
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts.count("other pairs") == 1
    assert len(texts) == 8


@pytest.mark.parametrize("count", [2, 3, 5, 7])
def test_everything_stays_within_the_figure(count: int) -> None:
    figure = plot_agreement(
        made_up(NAMES[:count]).to_json(), title="some-organisation/a-model " * 4
    )
    everything = figure.get_tightbbox(drawn(figure).get_renderer())
    width, height = figure.get_size_inches()
    assert everything is not None
    assert everything.x0 >= 0
    assert everything.y0 >= 0
    assert everything.x1 <= width
    assert everything.y1 <= height


def test_without_counts_there_is_only_the_matrix() -> None:
    rankings = {
        name: HeadScores(HeadLayout((4,)), np.arange(4.0), name) for name in ("one", "other")
    }
    figure = plot_agreement(agreement(rankings, []).to_json())
    drawn(figure)
    assert not figure.legends


def test_files_made_twice_are_equal_byte_for_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        save_figure(plot_agreement(made_up().to_json()), tmp_path / name)
    for suffix in ("png", "svg", "pdf"):
        one, two = ((tmp_path / name / f"figure.{suffix}").read_bytes() for name in ("one", "two"))
        assert len(one) > 1000
        assert one == two, suffix
