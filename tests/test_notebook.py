"""What models, rankings, curves, studies and tasks show in a console and in a notebook."""

from __future__ import annotations

import math
import re
import sys
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure
from planted import Plant, plant

from headcount import Curve, HeadLayout, HeadScores, curve, rank
from headcount.claims import Claim
from headcount.figures.html import frame, table
from headcount.report.study import Study
from headcount.system.progress import progress

EVIL = "<script>alert('x')</script> & \"co\""


@cache
def planted() -> Plant:
    return plant(needed=["0.1", "1.2"], interfering=["1.0"], layers=2, heads=4)


@cache
def scores() -> HeadScores:
    return rank(planted().model, planted().task, "attribution")


@cache
def measured(metric: str = "accuracy") -> Curve:
    one = planted()
    return curve(one.model, one.task, scores(), counts=[0, 1, 6], seeds=2, metric=metric)


def study(claims: int = 1) -> Study:
    claim = Claim(f"claim {EVIL}", f"published {EVIL}", 0.5, 0.25, math.nan, "undecided")
    figure = Figure(figsize=(2, 1))
    figure.add_subplot().plot([0, 1])
    return Study(
        name="some-study",
        title=f"some-study · {EVIL}",
        rows=[{"count": 1}, {"count": 2}],
        claims=[claim] * claims,
        figures={"figure": figure, "further": figure},
        settings={},
        model={},
        notes=[f"note {EVIL}"],
    )


class Page(HTMLParser):
    """Refuses tags that are not closed in order, and gathers tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)
        assert self.stack == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "img":
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown() -> dict[str, tuple[str, str]]:
    """Plain and HTML form of everything whose names a stranger may have chosen."""
    model = replace(planted().model, name=EVIL)
    ranking = HeadScores(
        scores().layout, scores().values, EVIL, {"task": EVIL, "model": EVIL}, scores().samples
    )
    points = tuple(replace(point, model=EVIL, task=EVIL) for point in measured().points)
    values = replace(measured().values, ablation=EVIL)
    drawn = replace(measured(), points=points, scores=ranking, values=values)
    things = {"model": model, "scores": ranking, "curve": drawn, "study": study()}
    return {name: (repr(thing), thing._repr_html_()) for name, thing in things.items()}  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["model", "scores", "curve", "study"])
def test_html_is_whole_escaped_small_and_loads_nothing(name: str) -> None:
    plain, html = shown()[name]
    page = Page(html)
    assert "script" not in [tag for tag, _ in page.tags]
    assert EVIL in page.text  # as text, all of it
    assert EVIL in plain
    assert "\n" not in plain
    for _, attributes in page.tags:
        assert not [key for key in attributes if key.startswith("on") or key == "href"]
        assert (attributes.get("src") or "data:image/png").startswith("data:image/png")
    assert len(html) < 30_000
    assert not re.search(r"https?:|url\(|@import", html)
    assert "background" not in html  # the page's own stays, light or dark


def test_a_model_says_what_it_is() -> None:
    model = planted().model
    assert repr(model) == (
        f"<Model plant-0: LlamaForCausalLM, 8 heads in 2 layers, 4 × 16, float32 weights on "
        f"{model.device}, {model.kernel}>"
    )
    text = Page(model._repr_html_()).text
    assert "a gate of 0 equals zeroed columns" in text


def test_scores_say_which_heads_lead() -> None:
    first = scores().top(3)
    assert repr(scores()).startswith("<HeadScores by attribution: 8 heads in 2 layers; best ")
    assert [*re.findall(r"\b\d\.\d\b(?= [+-])", repr(scores()))] == [str(head) for head in first]
    lines = str(scores()).splitlines()
    assert lines[1].split()[0] == str(first[0])
    assert re.fullmatch(r" +\d\.\d +\+\d\.\d\d  \+\d\.\d\d to \+\d\.\d\d", lines[1])
    assert len(lines) == 1 + 8


def test_many_heads_are_summed_up() -> None:
    many = HeadScores(HeadLayout((9,) * 30), np.linspace(-1, 1, 270), "by hand")
    lines = str(many).splitlines()
    assert lines[-1] == "… and 260 others"
    assert "interval" not in Page(many._repr_html_()).text  # without samples there is none
    assert " to " not in "".join(lines)


def test_a_curve_has_every_point_and_a_gap_where_there_is_none() -> None:
    drawn = measured()
    assert repr(drawn) == (
        "<Curve of planted-0 on plant-0, heads masked by attribution: Accuracy at 0, 1, 6 heads>"
    )
    page = Page(drawn._repr_html_())
    for point in drawn.points:
        assert f"{point.value:.3f} [{point.low:.3f}, {point.high:.3f}]" in page.text
    assert "–" in page.text  # six random heads outside the top six there are not
    assert [tag for tag, _ in page.tags].count("img") == 1


def test_other_metrics_have_their_own_scale() -> None:
    text = Page(measured("logprob")._repr_html_()).text
    assert "Log-probability of right answer" in text


def test_a_study_shows_claims_figure_and_notes() -> None:
    assert repr(study(2)) == (
        f"<Study some-study · {EVIL}: 2 claims (2 undecided), 2 points, figures: figure, further>"
    )
    assert repr(study(0)).startswith(f"<Study some-study · {EVIL}: 0 claims, 2 points")
    page = Page(study()._repr_html_())
    assert [tag for tag, _ in page.tags].count("img") == 1
    assert "0.50unknown" in page.text  # an interval with an end that is not known
    assert "claim" not in Page(study(0)._repr_html_()).text


def test_a_task_says_how_it_is_split() -> None:
    task = planted().task
    ranking, test = len(task.split("ranking")), len(task.split("test"))
    assert repr(task) == f"<Task planted-0: 32 examples, {ranking} to rank, {test} to test>"
    assert (
        repr(task.split("test")) == f"<Task planted-0: {test} examples, 0 to rank, {test} to test>"
    )


def test_tables_and_titles_are_escaped() -> None:
    html = frame(EVIL, table([EVIL, "n"], [[EVIL, 1]], numbers=1))
    assert "<script>" not in html
    assert Page(html).text.count(EVIL) == 3


@pytest.mark.parametrize("notebook", [False, True])
def test_progress_shows_in_notebooks_and_not_in_logs(
    notebook: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = SimpleNamespace(kernel=object()) if notebook else None
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    with progress("measuring", 2, show=True) as bar:
        assert bar.disable == (not notebook)
    with progress("measuring", 2, show=False) as bar:
        assert bar.disable
