"""Head sets of single examples, and examples with several right answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from slow import SlowLoop, projections
from test_evaluate import counted, soft_gates
from tiny import tiny_model
from toy import WORDS, toy_task, toy_tokenizer

from headcount import HeadcountError, Store, evaluate, wrap
from headcount.models.model import Model
from headcount.tasks import Task, encode


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer())


@pytest.fixture(scope="module")
def task() -> Task:
    return toy_task(24)


@pytest.mark.parametrize("stand_in", ["zero", "mean", "corrupted"])
def test_only_what_is_asked_for_is_measured(model: Model, task: Task, stand_in: str) -> None:
    examples = len(task.part("test"))
    gates = soft_gates(model, sets=examples + 1)
    whole = evaluate(model, task, gates, stand_in=stand_in, progress=False).values
    only = np.eye(examples + 1, examples, dtype=bool)  # each its own
    only[-1] = True  # and one for all
    with counted(model) as tokens:
        some = evaluate(model, task, gates, stand_in=stand_in, only=only, progress=False).values
        fewer = sum(tokens)
    assert (~np.isnan(some) == only).all()
    np.testing.assert_allclose(some[only], whole[only], atol=1e-4)
    with counted(model) as tokens:
        evaluate(model, task, gates, stand_in=stand_in, progress=False)
    assert fewer < 0.6 * sum(tokens)


def test_equal_head_sets_of_different_examples_are_one(model: Model, task: Task) -> None:
    examples = len(task.part("test"))
    gates = np.repeat(soft_gates(model, sets=1), 2, axis=0)
    only = np.zeros((2, examples), dtype=bool)
    only[0, 0] = only[1, 1:] = True
    values = evaluate(model, task, gates, only=only, progress=False).values
    whole = evaluate(model, task, gates[:1], progress=False).values[0]
    np.testing.assert_allclose(values[0], whole, atol=1e-4)
    np.testing.assert_allclose(values[1], whole, atol=1e-4)


def test_the_store_knows_them(model: Model, task: Task, tmp_path: Path) -> None:
    examples = len(task.part("test"))
    gates, only = soft_gates(model, sets=examples), np.eye(examples, dtype=bool)
    with Store(tmp_path / "store.sqlite") as store:
        first = evaluate(model, task, gates, only=only, store=store, progress=False).values
        with counted(model) as tokens:
            again = evaluate(model, task, gates, only=only, store=store, progress=False).values
            assert not tokens
    np.testing.assert_array_equal(first, again)


def test_bad_shapes_and_metrics_of_texts_are_refused(model: Model, task: Task) -> None:
    with pytest.raises(HeadcountError, match="one truth value for each of 2 head sets"):
        evaluate(model, task, soft_gates(model), only=np.ones((1, 1), dtype=bool))
    only = np.ones((2, len(task.part("test"))), dtype=bool)
    with pytest.raises(HeadcountError, match="without `only`"):
        evaluate(model, task, soft_gates(model), only=only, metric="exact_match")


def test_several_right_and_wrong_answers_of_different_number(model: Model) -> None:
    slow = SlowLoop(model.module, projections(model.module, "llama"), model.layout.counts[0])
    task = toy_task(8, targets=[1], foils=3)
    spare = [f" {word}" for word in WORDS]
    examples = []
    for number, example in enumerate(task):
        free = [word for word in spare if word not in (example.target, *example.foils)]
        examples.append(
            replace(example, foils=example.foils[: 1 + number % 3], also=tuple(free[: number % 4]))
        )
    task = replace(task, examples=tuple(examples))
    gates = soft_gates(model, sets=2)
    encoded = encode(task, model.tokenizer)
    for metric in ("logit_difference", "mass_difference", "choice"):
        values = evaluate(model, task, gates, metric=metric, part="all", progress=False).values
        expected = [
            [slow.metrics(e, row, slow.nothing())[metric] for e in encoded] for row in gates
        ]
        np.testing.assert_allclose(values, expected, atol=1e-4)
    plain = replace(task, examples=tuple(replace(e, also=()) for e in task))
    keys = [(a.key, b.key) for a, b in zip(encoded, encode(plain, model.tokenizer), strict=True)]
    assert [a == b for a, b in keys] == [not example.also for example in task]


def test_a_right_answer_among_the_foils_is_refused(model: Model) -> None:
    task = toy_task(4, targets=[1])
    same = replace(task, examples=tuple(replace(e, also=(f"{e.foils[0]} ba",)) for e in task))
    with pytest.raises(HeadcountError, match="start with the same token"):
        evaluate(model, same, soft_gates(model), metric="mass_difference", part="all")
