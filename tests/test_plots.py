"""Results draw themselves into given axes or into a new figure, and become data frames."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pandas
import pytest
from figures.test_curve_figure import made_up
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from nbclient import NotebookClient

import headcount
from headcount import HeadcountError, HeadLayout, HeadScores
from headcount.claims import Claim
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.engine.measure.sweep import Values
from headcount.metrics import METRICS
from headcount.report.study import Study
from headcount.stats import Interval, paired_difference
from headcount.value_table import ValueTable

LAYOUT = HeadLayout((3, 2))


@pytest.fixture(autouse=True)
def _figures_are_closed() -> Iterator[None]:
    pyplot.close("all")
    yield
    pyplot.close("all")


def values_of(draws: dict[Hashable, Any], metric: str = "logprob", clusters: Any = None) -> Values:
    """Values whose head sets are told apart by their first gate: (draws, examples) by label."""
    rows = [(label, row) for label, table in draws.items() for row in np.atleast_2d(table)]
    entries = [
        HeadSetEntry(label, np.array([number, 1.0, 1.0, 1.0, 1.0]))
        for number, (label, _) in enumerate(rows)
    ]
    table = np.array([row for _, row in rows], dtype=np.float64)
    examples = table.shape[1]
    own = np.arange(examples) if clusters is None else np.asarray(clusters)
    clusters = np.stack([own, own], axis=-1)  # each template has a content of its own
    names = tuple(f"example {number}" for number in range(examples))
    head_sets = HeadSets.build(LAYOUT, entries)
    return Values(table, head_sets, names, clusters, METRICS[metric], "zero")


def few(metric: str = "logprob") -> Values:
    return values_of({"all heads": [1, 0, 1, 1], "without 0.1": [0, 0, 1, 0]}, metric)


def scores() -> HeadScores:
    samples = np.array([[0.0, 1, 2, 3, 4], [2, 1, 0, -3, 4], [1, 1, 1, 0, 4]])
    return HeadScores.averaged(LAYOUT, samples, "by hand")


def row(task: str, metric: str, series: str, count: int) -> dict[str, Any]:
    value = 0.9 - 0.1 * count / 8
    ends = {"value": value, "low": value - 0.05, "high": value + 0.05}
    facts = {"model": "tiny", "task": task, "series": series, "metric": metric}
    return {**facts, "count": count, **ends, "n": 40}


def value_table() -> ValueTable:
    table = ValueTable(("task", "count"), shared=("task",))
    table.name_examples([("example 0", "went", "lamp")], task="ioi")
    table.put([1.0], task="ioi", count=8)
    return table


def study(**changes: Any) -> Study:
    figure = Figure(figsize=(4, 2))
    left, _, hidden = figure.subplots(1, 3)
    left.plot([0, 1])
    hidden.set_visible(False)
    told: dict[str, Any] = {
        "name": "mine",
        "title": "My study",
        "rows": [
            row(task, metric, series, count)
            for task in ("ioi", "retrieval")
            for metric in ("accuracy", "logprob")
            for series in ("top", "facilitation")
            for count in (0, 8, 16)
        ],
        "claims": [Claim("heads matter", None, 0.5, 0.4, math.nan, "undecided")],
        "figures": {"figure": figure},
        "tables": {"Role shares": [{"role": "facilitation", "share": 0.5}]},
        "values": value_table(),
        "heads": [{"layer": 0, "head": 1, "value": 0.5}],
        "settings": {},
        "model": {},
    }
    return Study(**told | changes)


PLOTS: dict[str, Callable[..., Any]] = {
    "curve": lambda ax=None: made_up().plot(ax),
    "scores": lambda ax=None: scores().plot(ax),
    "values": lambda ax=None: few().plot(ax),
    "study": lambda ax=None: study().plot(ax, task="ioi", metric="accuracy"),
}


@pytest.mark.parametrize("name", PLOTS)
def test_given_axes_come_back_and_nothing_else_is_touched(name: str) -> None:
    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    before = dict(pyplot.rcParams)
    assert PLOTS[name](right) is right
    assert dict(pyplot.rcParams) == before
    assert pyplot.get_fignums() == []
    assert right.has_data()
    assert not left.has_data()
    assert figure.legends == []  # nor a note below: both stand within the axes
    assert figure.get_supxlabel() == ""
    FigureCanvasAgg(figure).draw()


@pytest.mark.parametrize("name", PLOTS)
def test_without_axes_pyplot_gets_one_new_figure(name: str, tmp_path: Path) -> None:
    mine = pyplot.figure()
    ax = PLOTS[name]()
    assert isinstance(ax, Axes)
    assert pyplot.get_fignums() == [1, 2]
    assert pyplot.gcf() is ax.figure is not mine
    ax.figure.savefig(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_a_cell_of_a_notebook_shows_one_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(headcount.__path__[0]).parent))
    monkeypatch.delenv("MPLBACKEND", raising=False)  # the kernel has its own
    make = "import numpy as np\nfrom headcount import HeadLayout, HeadScores\n"
    make += "scores = HeadScores(HeadLayout((2, 2)), np.arange(4.0), 'by hand')"
    into = "from matplotlib import pyplot\nleft, right = pyplot.subplots(1, 2)[1]\n"
    into += "scores.plot(left)\nscores.plot(right)"
    cells = [nbformat.v4.new_code_cell(text) for text in (make, "scores.plot()", into)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    resources = {"metadata": {"path": tmp_path}}
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
    pictures = [["image/png" in out.get("data", {}) for out in cell.outputs] for cell in cells]
    assert [sum(some) for some in pictures] == [0, 1, 1]


def test_pages_and_files_open_no_figure() -> None:
    made_up().figure()
    for result in (made_up(), scores(), study()):
        result._repr_html_()  # type: ignore[attr-defined]
    assert pyplot.get_fignums() == []


def legend_of(ax: Axes) -> tuple[str, list[str]]:
    legend = ax.get_legend()
    assert legend is not None
    title = " ".join(legend.get_title().get_text().replace("\u00a0", " ").split())
    return title, [text.get_text() for text in legend.get_texts()]


def test_a_curve_says_the_same_within_given_axes() -> None:
    ax = made_up().plot(Figure().add_subplot(), title="Mine")
    assert ax.get_title() == "Mine"
    assert ax.get_ylabel() == "Accuracy"
    note, series = legend_of(ax)
    assert series == ["TopK", "RandomK", "RandomK, layer-matched"]
    assert note == (
        "bands: 95 % intervals · n = 40 examples · ablation: zero · random: mean of 5 draws"
    )


def test_a_title_is_as_wide_as_its_axes() -> None:
    narrow = Figure(figsize=(12, 3)).subplots(1, 6)[0]
    lines = made_up().plot(narrow).get_title().splitlines()
    assert len(lines) > 1
    assert " ".join(lines) == "ioi · tiny · ranked by attribution"


def test_values_are_points_with_intervals() -> None:
    values = few("accuracy")
    ax = values.plot()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["all heads", "without 0.1"]
    assert ax.get_xlabel() == "Accuracy"
    assert ax.get_xlim() == (-0.03, 1.03)
    assert ax.yaxis_inverted()  # the first head set is on top
    (drawn,) = ax.containers
    points, _, (bars,) = drawn.lines
    found = [values.interval(label) for label in ("all heads", "without 0.1")]
    assert list(points.get_xdata()) == [interval.value for interval in found]
    for (start, end), interval in zip(bars.get_segments(), found, strict=True):
        assert (start[0], end[0]) == pytest.approx((interval.low, interval.high))
    inside = few().plot(Figure().add_subplot())
    assert legend_of(inside) == ("n = 4 · ablation: zero", ["mean, 95 % interval"])


def test_values_with_intervals_that_are_not_known_are_drawn() -> None:
    ax = values_of({("top", 8): [1.0]}).plot()
    FigureCanvasAgg(ax.figure).draw()
    assert [label.get_text() for label in ax.get_yticklabels()] == ["top 8"]


def test_a_study_shows_its_own_figure_once_however_often_it_is_asked() -> None:
    mine = study()
    for _ in range(2):
        axes: Any = mine.plot()
        assert axes.shape == (2,)  # the third is not visible
        assert [ax.figure for ax in axes] == [mine.figures["figure"]] * 2
        assert len(pyplot.get_fignums()) == 1
        assert pyplot.gcf() is mine.figures["figure"]
    pyplot.close("all")
    mine.plot()
    assert len(pyplot.get_fignums()) == 1


def test_a_study_draws_the_points_that_are_chosen() -> None:
    ax: Any = study().plot(task="retrieval", metric="logprob")
    assert (ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) == (
        "retrieval · tiny",
        "count",
        "logprob",
    )
    assert [line.get_label() for line in ax.lines] == ["TopK", "facilitation"]
    assert list(ax.lines[0].get_xdata()) == [0, 8, 16]
    one: Any = study().plot(task="ioi", metric="logprob", series="top", count=8)
    (end,) = one.collections  # a single point has its interval as a bar
    assert end.get_segments()[0][:, 1] == pytest.approx([0.75, 0.85])


def test_a_study_refuses_points_that_do_not_belong_together() -> None:
    ax = Figure().add_subplot()
    several = r"more than one task \(ioi, retrieval\) and metric \(accuracy, logprob\): .*task=\"io"
    with pytest.raises(HeadcountError, match=several):
        study().plot(ax)
    with pytest.raises(HeadcountError, match=r'no task "retreival" .* Did you mean "retrieval"'):
        study().plot(ax, task="retreival")
    with pytest.raises(HeadcountError, match=r'no column "tasks" .* Did you mean "task"'):
        study().plot(ax, tasks="ioi")
    with pytest.raises(HeadcountError, match="needs points with the columns series, count"):
        study(rows=[]).plot(ax)
    with pytest.raises(HeadcountError, match="has no figure"):
        study(figures={}).plot()
    assert not ax.has_data()


def test_frames_are_the_tables() -> None:
    curve = made_up()
    added = {"ranking": "attribution", "ablation": "zero"}
    assert curve.to_frame().to_dict("records") == [row | added for row in curve.rows]
    frame = scores().to_frame()
    assert list(frame.columns) == ["head", "layer", "index", "score", "low", "high"]
    assert frame["head"].tolist() == ["0.0", "0.1", "0.2", "1.0", "1.1"]
    assert frame["score"].tolist() == scores().values.tolist()
    np.testing.assert_array_equal(frame[["low", "high"]], scores().intervals())


def test_values_have_a_row_for_each_label_draw_and_example() -> None:
    frame = few().to_frame()
    assert list(frame.columns) == ["label", "example", "template", "content", "value"]
    assert frame.groupby("label")["value"].mean().to_dict() == {
        "all heads": 0.75,
        "without 0.1": 0.25,
    }
    drawn = values_of({"one": [0.5, 1.5], "two": [[1, 2], [3, 4]]}, clusters=[7, 8]).to_frame()
    assert drawn.values.tolist() == [
        ["one", 0, "example 0", 7, 7, 0.5],
        ["one", 0, "example 1", 8, 8, 1.5],
        ["two", 0, "example 0", 7, 7, 1.0],
        ["two", 0, "example 1", 8, 8, 2.0],
        ["two", 1, "example 0", 7, 7, 3.0],
        ["two", 1, "example 1", 8, 8, 4.0],
    ]


def test_a_study_has_a_frame_for_each_of_its_tables() -> None:
    mine = study()
    pandas.testing.assert_frame_equal(mine.to_frame(), pandas.DataFrame(mine.rows))
    claims = pandas.DataFrame([asdict(claim) for claim in mine.claims])
    pandas.testing.assert_frame_equal(mine.to_frame("claims"), claims)
    assert mine.to_frame("Role shares").to_dict("records") == list(mine.tables["Role shares"])
    assert mine.to_frame("values")["value"].tolist() == [1.0]
    assert mine.to_frame("heads")["head"].tolist() == [1]
    with pytest.raises(HeadcountError, match=r'no table "claim" .* Did you mean "claims"'):
        mine.to_frame("claim")


@pytest.mark.parametrize("result", [made_up(), scores(), few(), study()], ids=lambda one: type(one))
def test_without_pandas_one_sentence_says_what_to_install(
    result: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HeadcountError, match=r"^Data frames need pandas: .*\[frames\].*\.$"):
        result.to_frame()


def test_the_label_of_the_only_head_set_may_be_left_out() -> None:
    only = values_of({"all heads": [1, 0, 1]})
    assert only.interval() == only.interval("all heads")
    with pytest.raises(HeadcountError, match=r"2 head sets: .* \(all heads, without 0.1\)"):
        few().interval()


def test_an_unknown_label_gets_a_suggestion() -> None:
    known = r"\(known: all heads, without 0.1\)"
    wrong = rf'no head set "al heads" {known}\. Did you mean "all heads"\?'
    for ask in (few().interval, few().of, lambda label: few().difference("all heads", label)):
        with pytest.raises(HeadcountError, match=wrong):
            ask("al heads")
    with pytest.raises(HeadcountError, match='no head set "7"'):
        few().interval(7)


def ends(found: Interval) -> tuple[float, float, float]:
    return found.value, found.low, found.high


@given(
    rows=st.lists(st.tuples(*[st.floats(-9, 9, width=32)] * 2), min_size=2, max_size=12),
    binary=st.booleans(),
    clusters=st.integers(1, 12),
)
def test_a_difference_turned_round_has_the_other_sign(
    rows: list[tuple[float, float]], binary: bool, clusters: int
) -> None:
    one, other = np.array(rows).T
    if binary:
        one, other = (np.sign(np.abs(side)) for side in (one, other))
    metric = "accuracy" if binary else "logprob"
    values = values_of({0: one, 1: other}, metric, np.arange(len(one)) % clusters)
    there, back = values.difference(0, 1), values.difference(1, 0)
    turned = (-back.value, -back.high, -back.low)
    assert (there.value, there.low, there.high) == pytest.approx(turned, nan_ok=True, abs=1e-9)
    assert there.n == back.n
    same = values.difference(0, 0)
    assert same.value == 0
    free = np.array(ends(paired_difference(one, other, clusters=values.clusters)))
    most = 1 if binary else np.inf  # accuracies differ by 1 at most
    assert ends(there) == pytest.approx(tuple(np.clip(free, -most, most)), nan_ok=True)
