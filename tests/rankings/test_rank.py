"""`rank`: by name, function or ready scores, and never twice with a store."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, HeadLayout, HeadScores, Store, Task, rank, wrap
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.rankings import RANKINGS
from headcount.rankings.causal_gates import ROLES
from headcount.registry import Factory


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.fixture
def passes(model: Model) -> Iterator[list[int]]:
    """One entry for every forward pass."""
    seen: list[int] = []
    handle = model.module.register_forward_pre_hook(lambda *_: seen.append(1))
    yield seen
    handle.remove()


def by_hand(model: Model, task: Task) -> HeadScores:
    return HeadScores(model.layout, np.arange(8.0), ranking="by hand")


def test_scores_know_where_they_come_from(model: Model) -> None:
    task = replace(toy_task(), parameters={"n": 12})
    scores = rank(model, task, "integrated-gradients", steps=4)
    assert scores.ranking == "integrated-gradients"
    expected = {
        "model": "tiny",
        "task": "toy-0",
        "task_settings": {"n": 12},
        "metric": "logprob",
        "ablation": "zero",
        "steps": 4,
    }
    assert expected.items() <= scores.parameters.items()
    assert "progress" not in scores.parameters


def test_only_the_ranking_part_is_looked_at(model: Model) -> None:
    task = toy_task(16)
    scores = rank(model, task)
    assert scores.samples is not None
    assert scores.samples.shape == (len(task.split("ranking")), 8)
    test = {example.id for example in task.split("test")}
    spoilt = tuple(replace(e, target=" ba ba ba") if e.id in test else e for e in task.examples)
    again = rank(model, replace(task, examples=spoilt))
    np.testing.assert_array_equal(again.values, scores.values)


def test_functions_and_ready_scores(model: Model) -> None:
    scores = rank(model, toy_task(), by_hand)
    assert scores.ranking == "by hand"
    assert rank(model, toy_task(), scores) is scores


@pytest.mark.parametrize("counts", [(4,), (8,), (2, 6), (4, 4, 4)])
def test_scores_of_another_model_are_refused(model: Model, counts: tuple[int, ...]) -> None:
    """Their numbers would name other heads here, or none."""
    layout = HeadLayout(counts)
    scores = HeadScores(layout, np.arange(float(layout.total)), ranking="elsewhere")
    for ranking in (scores, lambda *_: scores):
        with pytest.raises(
            HeadcountError, match=r'"elsewhere" belong to another model.*tiny has 8'
        ):
            rank(model, toy_task(), ranking)


def test_settings_go_with_names(model: Model) -> None:
    ready = by_hand(model, toy_task())
    for ranking in (ready, by_hand):
        with pytest.raises(HeadcountError, match=r"Settings \(steps\) go with the name"):
            rank(model, toy_task(), ranking, steps=3)
    for settings, words in (
        ({"stpes": 3}, r'no setting "stpes".*Did you mean "steps"\?'),
        ({"steps": "many"}, r'"steps" of integrated-gradients is a whole number, such as 16'),
        ({"metric": "acuracy"}, r'no metric "acuracy"'),
        ({"ablation": "men"}, r'no ablation "men"'),
    ):
        chosen: dict[str, Any] = settings
        with pytest.raises(HeadcountError, match=words):
            rank(model, toy_task(), "integrated-gradients", **chosen)
    with pytest.raises(HeadcountError, match=r'no ranking "atribution".*"attribution"\?'):
        rank(model, toy_task(), "atribution")


# The probe tells cognitive functions apart, retrieval needs the answer in the prompt, and gates
# need more items than the toy task has, and contrastive ones a task to forget.
PARTICULAR = ("probe", "attention-retrieval", "retrieval-score")
PARTICULAR += ("budget-gates", "streaming-gates", "contrast", *ROLES)
ON_ANY_TASK = [name for name in RANKINGS if name not in PARTICULAR]


@pytest.mark.parametrize("ranking", ON_ANY_TASK)
def test_with_a_store_a_ranking_is_computed_once(
    model: Model, store: Store, passes: list[int], ranking: str
) -> None:
    first = rank(model, toy_task(), ranking, lab=Lab(store))
    passes.clear()
    again = rank(model, toy_task(), ranking, lab=Lab(store))
    assert passes == []
    assert again.values.tobytes() == first.values.tobytes()
    assert again.to_json() == first.to_json()


def upside_down(model: Model, task: Task, *, seed: int = 0) -> HeadScores:
    """A random ranking from its other end, with the same settings."""
    scores = rank(model, task, "random", seed=seed)
    return replace(scores, values=-scores.values)


def test_what_differs_in_anything_does_not_collide(
    model: Model, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(RANKINGS.entries, "upside-down", Factory("upside-down", "-", upside_down))
    other = wrap(tiny_model("llama", seed=1), toy_tokenizer(), name="tiny")
    cases: list[tuple[Model, Task, str, dict[str, Any]]] = [
        (model, toy_task(), "attribution", {}),
        (other, toy_task(), "attribution", {}),
        (model, replace(toy_task(seed=1), name="toy-0"), "attribution", {}),
        (model, toy_task(), "attribution", {"metric": "logprob_difference"}),
        (model, toy_task(), "attribution", {"ablation": "mean"}),
        (model, toy_task(), "integrated-gradients", {}),
        (model, toy_task(), "integrated-gradients", {"steps": 2}),
        (model, toy_task(), "random", {}),
        (model, toy_task(), "random", {"seed": 1}),
        (model, toy_task(), "upside-down", {"seed": 1}),
    ]
    plain = [rank(m, t, k, **s).values for m, t, k, s in cases]
    for _ in range(2):  # the second time all come from the store
        for (m, t, k, s), expected in zip(cases, plain, strict=True):
            stored = rank(m, t, k, **s, lab=Lab(store)).values
            np.testing.assert_array_equal(stored, expected)
    assert len({values.tobytes() for values in plain}) == len(cases)
