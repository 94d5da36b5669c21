"""Chance: what a model that knows nothing reaches, and when a model does no better."""

from __future__ import annotations

import math

import numpy as np
import pytest
from planted import plant
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Example, Task, curve, evaluate, rank, wrap
from headcount.metrics import get_metric
from headcount.metrics.chance import Chance, chance_of
from headcount.stats import Interval, wilson


def example(number: int, target: str, *foils: str, also: tuple[str, ...] = ()) -> Example:
    return Example(str(number), f"Question {number}:", target, foils, also=also)


OPEN = [example(n, " yes" if n < 3 else f" {n}") for n in range(10)]
PAIRS = [example(n, f" right{n}", " wrong") for n in range(10)]
UNEVEN = [example(n, " yes" if n < 8 else " no", " no" if n < 8 else " yes") for n in range(10)]
YEARS = [example(n, f" {n}", " x", also=(" 9",)) for n in range(4)]  # 9 is right everywhere


@pytest.mark.parametrize(
    ("metric", "examples", "level"),
    [
        ("accuracy", OPEN, 0.3),
        ("exact_match", OPEN, 0.3),
        ("maths", OPEN, 0.3),
        ("accuracy", PAIRS, 0.1),
        ("choice", PAIRS, 0.5),
        ("choice", [example(0, " a", " b", " c", " d"), example(1, " b", " a")], 0.5),
        ("choice", UNEVEN, 0.8),  # always giving the commonest answer beats guessing
        ("choice", YEARS, 2 / 3),  # two of three answers are right
        ("accuracy", YEARS, 0.25),
        ("logit_difference", PAIRS, 0.0),
        ("mass_difference", PAIRS, 0.0),
    ],
)
def test_chance_is_what_knowing_nothing_reaches(
    metric: str, examples: list[Example], level: float
) -> None:
    found = chance_of(get_metric(metric), examples)
    assert found is not None
    assert found.level == pytest.approx(level)


@pytest.mark.parametrize(
    "metric", ["logprob", "logprob_per_token", "similarity", "gold_similarity"]
)
def test_where_nobody_can_tell_nothing_is_said(metric: str) -> None:
    assert chance_of(get_metric(metric), PAIRS) is None


@pytest.mark.parametrize(
    ("right", "n", "better"), [(30, 40, True), (24, 40, False), (2, 2, False), (3, 40, False)]
)
def test_the_whole_interval_lies_above(right: int, n: int, better: bool) -> None:
    said = Chance(0.5, "guessing").sentence(wilson(right, n), "Accuracy")
    assert (said == "") == better
    assert better or said.endswith("is not clearly above 0.5 (guessing).")


def test_an_unknown_interval_says_nothing() -> None:
    guessing = Chance(0.5, "guessing")
    assert guessing.sentence(Interval(0.1, math.nan, math.nan, 20), "Accuracy") == ""
    assert guessing.sentence(Interval(0.1, 0.0, 0.2, n=1), "Accuracy") == ""


def test_a_model_that_does_the_task_is_not_at_chance() -> None:
    planted = plant(needed=["0.1"], n=48)
    for metric in ("accuracy", "choice", "logit_difference"):
        values = evaluate(planted.model, planted.task, {"a": [], "b": ["0.1"]}, metric=metric)
        assert values.at_chance == ""
    drawn = curve(planted.model, planted.task, counts=[0, 1], series=["top"])
    assert drawn.notes == ()
    assert drawn._draw(None, None).get_title() == "planted-0 · plant-0 · ranked by attribution"


@pytest.mark.parametrize("metric", ["accuracy", "choice", "logprob_difference"])
def test_a_random_model_is_at_chance(metric: str) -> None:
    model, task = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny"), toy_task(40)
    found = evaluate(model, task, {"a": ["0.1"], "whole": []}, metric=metric)
    name = get_metric(metric).name
    assert found.at_chance.startswith(f"The whole model is at chance: {name} ")
    # Of masked heads alone nobody can say what the whole model does.
    assert evaluate(model, task, ["0.1"], metric=metric).at_chance == ""
    assert evaluate(model, task, [], metric="logprob").at_chance == ""


@pytest.mark.parametrize(("mode", "whole"), [("mask", 0), ("keep", 8)])
def test_a_curve_at_chance_says_so_everywhere(mode: str, whole: int) -> None:
    model, task = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny"), toy_task(40)
    drawn = curve(model, task, counts=[whole, 2], series=["top"], mode=mode)
    assert "at chance" in drawn.at_chance
    assert drawn.notes == (drawn.at_chance,)
    assert str(drawn).endswith(drawn.at_chance)
    assert drawn.at_chance.split(" (")[0] in drawn._repr_html_()
    assert drawn.figure().axes[0].get_title().endswith("\nat chance")
    # Also where the whole model is no point of the curve, or chance by its metric is unknown.
    without = curve(model, task, counts=[2], series=["top"], mode=mode)
    assert without.at_chance == drawn.at_chance
    for metric in ("logprob", "logprob_per_token"):
        assert "Accuracy" in curve(model, task, counts=[2], metric=metric, mode=mode).at_chance


@pytest.mark.parametrize("ranking", ["attribution", "random"])
def test_a_ranking_at_chance_says_so(ranking: str) -> None:
    model, task = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny"), toy_task(40)
    scores = rank(model, task, ranking)
    assert scores.parameters["note"].startswith("The whole model is at chance: Accuracy")
    assert str(scores).endswith(scores.parameters["note"])
    planted = plant(needed=["0.1"], n=48)
    assert "note" not in rank(planted.model, planted.task, ranking).parameters


def test_the_commonest_answer_is_that_of_the_whole_task() -> None:
    """Few test prompts would make the answer of one of them look common."""
    model, task = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny"), toy_task(40)
    found = evaluate(model, task, [])
    assert found.chance is not None
    targets = [e.target for e in task]
    assert found.chance.level == max(np.bincount([targets.index(t) for t in targets])) / 40
    one = Task("one", 1, task.examples[:4])
    assert evaluate(model, one, []).chance != found.chance
