"""Head sets of single examples, and examples with several right answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from slow import SlowLoop, projections
from test_evaluate import counted, soft_gates
from tiny import tiny_model
from toy import WORDS, toy_task, toy_tokenizer

from headcount import HeadcountError, Store, evaluate, wrap
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.lab import Lab
from headcount.metrics import logit_metrics
from headcount.models.model import Model
from headcount.tasks import Task, encode


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer())


@pytest.fixture(scope="module")
def task() -> Task:
    return toy_task(24)


def head_sets(model: Model, gates: np.ndarray, only: np.ndarray) -> HeadSets:
    """Head sets that only some examples want."""
    entries = [
        HeadSetEntry(number, row, None if only[number].all() else int(example))
        for number, row in enumerate(gates)
        for example in ([0] if only[number].all() else np.flatnonzero(only[number]))
    ]
    return HeadSets.build(model.layout, entries, only.shape[1])


def measured(model: Model, task: Task, table: HeadSets, **options: Any) -> np.ndarray:
    """Values by label: (labels, examples), NaN where none was asked for."""
    found = evaluate(model, task, table, **{"metric": "logprob", **options})
    return np.stack([found.table[rows[0]] for rows in table.rows.values()])


@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_only_what_is_asked_for_is_measured(model: Model, task: Task, ablation: str) -> None:
    examples = len(task.split("test"))
    gates = soft_gates(model, sets=examples + 1)
    whole = evaluate(model, task, gates, ablation=ablation, metric="logprob").values
    only = np.eye(examples + 1, examples, dtype=bool)  # each its own
    only[-1] = True  # and one for all
    with counted(model) as tokens:
        some = measured(model, task, head_sets(model, gates, only), ablation=ablation)
        fewer = sum(tokens)
    assert (~np.isnan(some) == only).all()
    np.testing.assert_allclose(some[only], whole[only], atol=1e-4)
    with counted(model) as tokens:
        evaluate(model, task, gates, ablation=ablation, metric="logprob")
    assert fewer < 0.6 * sum(tokens)


def test_equal_head_sets_of_different_examples_are_one(model: Model, task: Task) -> None:
    examples = len(task.split("test"))
    gates = np.repeat(soft_gates(model, sets=1), 2, axis=0)
    only = np.zeros((2, examples), dtype=bool)
    only[0, 0] = only[1, 1:] = True
    table = head_sets(model, gates, only)
    assert len(table) == 1
    values = measured(model, task, table)
    whole = evaluate(model, task, gates[:1], metric="logprob").values[0]
    np.testing.assert_allclose(values[0], whole, atol=1e-4)
    np.testing.assert_allclose(values[1], whole, atol=1e-4)


def test_the_store_knows_them(model: Model, task: Task, tmp_path: Path) -> None:
    examples = len(task.split("test"))
    gates, only = soft_gates(model, sets=examples), np.eye(examples, dtype=bool)
    with Store(tmp_path / "store.sqlite") as store:
        table = head_sets(model, gates, only)
        first = measured(model, task, table, lab=Lab(store))
        with counted(model) as tokens:
            again = measured(model, task, table, lab=Lab(store))
            assert not tokens
    np.testing.assert_array_equal(first, again)


def test_values_of_a_label_are_those_of_each_example(model: Model, task: Task) -> None:
    examples = len(task.split("test"))
    gates = soft_gates(model, sets=examples)
    own = [HeadSetEntry("own", row, place) for place, row in enumerate(gates)]
    found = evaluate(model, task, HeadSets.build(model.layout, own, examples), metric="logprob")
    whole = evaluate(model, task, gates, metric="logprob").values
    assert found.of("own").shape == (1, examples)
    np.testing.assert_allclose(found.of("own")[0], whole.diagonal(), atol=1e-4)


def test_metrics_of_texts_want_the_same_head_sets_for_all(model: Model, task: Task) -> None:
    only = np.eye(2, len(task.split("test")), dtype=bool)
    table = head_sets(model, soft_gates(model, sets=2), only)
    with pytest.raises(HeadcountError, match="head sets that are the same for all examples"):
        evaluate(model, task, table, metric="exact_match")


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
    expected = [
        [
            slow.metrics(e, row, slow.nothing()) | slow.whole_answers(e, row, slow.nothing())
            for e in encoded
        ]
        for row in gates
    ]
    for metric in logit_metrics():
        if metric.key == "logprob_per_token":
            continue  # which refuses several right answers
        values = evaluate(model, task, gates, metric=metric, split="all").values
        cells = [[cell[metric.key] for cell in row] for row in expected]
        np.testing.assert_allclose(values, cells, atol=1e-4, err_msg=metric.key)
    # For answers of one token, whole answers and first tokens are the same.
    firsts = ("logit_difference", "first_token_choice")
    for first, whole in zip(firsts, ("logprob_difference", "choice"), strict=True):
        pair = [evaluate(model, task, gates, metric=name, split="all") for name in (first, whole)]
        np.testing.assert_allclose(pair[0].values, pair[1].values, atol=1e-4)
    plain = replace(task, examples=tuple(replace(e, also=()) for e in task))
    keys = [(a.key, b.key) for a, b in zip(encoded, encode(plain, model.tokenizer), strict=True)]
    assert [a == b for a, b in keys] == [not example.also for example in task]


def test_a_right_answer_among_the_foils_is_refused(model: Model) -> None:
    task = toy_task(4, targets=[1])
    same = replace(task, examples=tuple(replace(e, also=(f"{e.foils[0]} ba",)) for e in task))
    with pytest.raises(HeadcountError, match="start with the same token"):
        evaluate(model, same, soft_gates(model), metric="first_token_choice", split="all")
