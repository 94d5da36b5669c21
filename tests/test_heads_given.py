"""Heads are given in one way everywhere: names, `Head`s, a `HeadSet`, or gates."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Head, HeadLayout, HeadScores, HeadSet, Lab, curve, evaluate, generate, wrap
from headcount.errors import HeadcountError
from headcount.heads import as_gates, check_gates, gates_by_label
from headcount.models.model import Model

LAYOUT = HeadLayout((2, 2))
MASKED = [1.0, 0.0, 0.0, 1.0]


@pytest.fixture(scope="module")
def llama() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer(), name="llama")


@pytest.mark.parametrize(
    "heads",
    [
        ["0.1", "1.0"],
        ("0.1", Head(1, 0)),
        [Head(0, 1), Head(1, 0)],
        "0.1 1.0",
        "0.1, 1.0",
        HeadSet("0.1 1.0"),
        HeadSet(["0.0", "1.1"], keep=True),
        MASKED,
        np.array(MASKED),
        np.array([MASKED]),
        torch.tensor(MASKED),
        np.array(["0.1", "1.0"]),
    ],
    ids=str,
)
def test_one_head_set(heads: Any) -> None:
    assert as_gates(heads, LAYOUT).tolist() == MASKED
    assert {label: gates.tolist() for label, gates in gates_by_label(heads, LAYOUT).items()} == {
        0: MASKED
    }


def test_as_many_names_as_heads_are_names_and_not_gates() -> None:
    names = ["0.1", "1.0", "0.0", "1.1"]
    assert as_gates(names, LAYOUT).tolist() == [0, 0, 0, 0]
    with pytest.raises(HeadcountError, match="Gates need shape"):
        check_gates(names, LAYOUT)


@pytest.mark.parametrize(
    ("heads", "labels"),
    [
        ({"whole": [], "best": ["0.1", "1.0"]}, ["whole", "best"]),
        ([[], ["0.1", "1.0"]], [0, 1]),
        ([HeadSet([]), HeadSet("0.1 1.0")], [0, 1]),
        ([[1, 1, 1, 1], MASKED], [0, 1]),
        (np.array([[1, 1, 1, 1], MASKED]), [0, 1]),
        (torch.tensor([[1, 1, 1, 1], MASKED]), [0, 1]),
        ([np.ones(4), ("0.1", Head(1, 0))], [0, 1]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_several_head_sets(heads: Any, labels: list[Any]) -> None:
    gates = gates_by_label(heads, LAYOUT)
    assert list(gates) == labels
    assert [row.tolist() for row in gates.values()] == [[1, 1, 1, 1], MASKED]


def test_no_heads_are_the_whole_model() -> None:
    for nothing in ([], (), "", HeadSet([])):
        assert as_gates(nothing, LAYOUT).tolist() == [1, 1, 1, 1]
    assert as_gates(HeadSet([], keep=True), LAYOUT).tolist() == [0, 0, 0, 0]


def test_a_damped_head_set() -> None:
    assert as_gates(HeadSet("1.1", gate=0.5), LAYOUT).tolist() == [1, 1, 1, 0.5]


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        (["3"], '"3" is not a head: write LAYER.HEAD'),
        (["9.0"], "There is no head 9.0: this model has attention layers 0 to 1"),
        ("0.7", "There is no head 0.7: layer 0 has heads 0 to 1"),
        (["0.1", 3], 'Heads are given as names such as "3.4"'),
        (["0.1", ["1.0"]], 'Heads are given as names such as "3.4"'),
        (3.4, 'Heads are given as names such as "3.4"'),
        ([1, 0], r"Gates need shape \(head sets, 4\)"),
        ([1, 0, 1, float("nan")], "finite numbers"),
        ([object()], "Gates need shape"),
        ({}, "at least one head set"),
        (np.ones((2, 2, 4)), "Gates need shape"),
    ],
)
def test_heads_in_a_wrong_form_are_one_sentence(heads: Any, words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        gates_by_label(heads, LAYOUT)


def test_a_head_set_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "set.json"
    for one in (HeadSet("0.1", keep=True, layout=LAYOUT), HeadSet([], gate=0.5), HeadSet("9.9")):
        one.save(path)
        assert HeadSet.load(path) == one
        assert HeadSet.load(path).layout == one.layout
    HeadSet("0.1", layout=LAYOUT).save(path)
    assert as_gates(HeadSet.load(path), LAYOUT).tolist() == [1, 0, 1, 1]
    with pytest.raises(HeadcountError, match="with 4 heads in 2 layers, and this model has 6"):
        as_gates(HeadSet.load(path), HeadLayout((3, 3)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "headcount scores 1"}, 'its format is not "headcount head set 1"'),
        ({"heads": "0.1"}, "list of names"),
        ({"heads": [0.1]}, "list of names"),
        ({"heads": ["x"]}, '"x" is not a head'),
        ({"keep": 1}, "keep must be true or false"),
        ({"gate": "0"}, "gate must be a number"),
        ({"gate": True}, "gate must be a number"),
        ({"gate": float("nan")}, "gate must be a number"),
        ({"gate": 10**400}, "gate must be a number"),
        ({"heads_per_layer": [0]}, "heads_per_layer"),
    ],
)
def test_a_file_that_is_no_head_set_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        HeadSet.from_json({**HeadSet("0.1").to_json(), **changes})


def test_a_head_set_refuses_what_it_would_ignore() -> None:
    with pytest.raises(HeadcountError, match="Heads are given as names"):
        as_gates({"0.1": 0.5}, LAYOUT)
    with pytest.raises(HeadcountError, match="is a number such as 0, not nan"):
        HeadSet("0.1", gate=float("nan"))


def test_gates_that_are_being_learned() -> None:
    assert as_gates(torch.ones(4, requires_grad=True), LAYOUT).tolist() == [1, 1, 1, 1]


def test_one_head_set_where_one_is_needed() -> None:
    with pytest.raises(HeadcountError, match="one head set here, not 2"):
        as_gates(np.ones((2, 4)), LAYOUT)


def test_a_head_set_names_heads_once() -> None:
    assert HeadSet(["0.1", Head(0, 1)]) == HeadSet("0.1")
    assert [str(HeadSet("0.1 1.0")), str(HeadSet([])), str(HeadSet("0.1", keep=True))] == [
        "without 0.1 1.0",
        "whole",
        "only 0.1",
    ]
    with pytest.raises(HeadcountError, match=r"0\.5 is not a head"):
        HeadSet([0.5])  # type: ignore[list-item]


@pytest.mark.parametrize("count", [-1, 5])
def test_the_top_of_a_ranking_has_as_many_heads_as_there_are(count: int) -> None:
    scores = HeadScores(LAYOUT, np.arange(4.0), ranking="by hand")
    assert len(scores.top(4)) == 4
    with pytest.raises(HeadcountError, match=f"Cannot take the top {count} of 4 heads"):
        scores.top(count)


def test_evaluate_takes_names_and_labels(llama: Model) -> None:
    task = toy_task(6, lengths=[6])
    named = evaluate(llama, task, ["0.1"], metric="logprob")
    gates = evaluate(llama, task, llama.layout.gates(off=["0.1"]), metric="logprob")
    np.testing.assert_array_equal(named.values, gates.values)
    labelled = evaluate(llama, task, {"whole": [], "masked": ["0.1"]}, metric="logprob")
    np.testing.assert_allclose(labelled.of("masked"), named.values, atol=1e-5)
    assert not np.allclose(labelled.of("whole"), labelled.of("masked"))


def test_generate_takes_a_head_set_for_each_prompt(llama: Model) -> None:
    prompts = ["ba be bi", "bo bu ba"]
    own = generate(llama, prompts, [["0.1"], []], max_new_tokens=3, progress=False)
    alone = [
        generate(llama, [prompt], heads, max_new_tokens=3, progress=False)[0].text
        for prompt, heads in zip(prompts, (["0.1"], []), strict=True)
    ]
    assert [text.text for text in own] == alone
    with pytest.raises(HeadcountError, match="one for each of the 2 prompts, not 3"):
        generate(llama, prompts, [[], [], []], max_new_tokens=3)


def test_gates_come_from_any_tensor() -> None:
    gates = torch.tensor(MASKED, dtype=torch.bfloat16, requires_grad=True)
    assert as_gates(gates, LAYOUT).tolist() == MASKED


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        ({"0.1": 0.5}, "Heads are given as"),
        ([HeadSet("0.1"), HeadSet("1.0")], "Give one head set here, not 2"),
        ([HeadSet("0.1"), ["1.0"]], "Give one head set here, not 2"),
    ],
)
def test_one_head_set_is_neither_a_dict_nor_several(heads: Any, words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        as_gates(heads, LAYOUT)


def test_a_model_and_a_task_are_asked_for_in_one_sentence(llama: Model) -> None:
    asked: Any = "ioi"
    with pytest.raises(HeadcountError, match="Give a task that make_task"):
        evaluate(llama, asked, [])
    module: Any = llama.module
    with pytest.raises(HeadcountError, match="Give a model from load_model or wrap"):
        generate(module, ["a"])


def test_two_threads_measure_one_model_one_after_the_other(llama: Model) -> None:
    lab = Lab(store=None, progress=False)
    names = [str(head) for head in llama.layout] * 2

    def measure(name: str) -> list[float]:
        values = evaluate(llama, toy_task(), [name], metric="logprob", lab=lab).values
        return [float(value) for value in values[0]]

    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(measure, names))
    assert np.allclose(together, list(map(measure, names)), atol=1e-5)


def test_a_head_set_can_be_gone_through() -> None:
    heads = HeadSet("1.0 0.1")
    assert list(heads) == [Head(0, 1), Head(1, 0)]
    assert HeadSet(heads) == heads == HeadSet("0.1, 1.0")
    assert str(HeadSet("0.1", gate=0.5)) == "without 0.1, masked heads times 0.5"
    with pytest.raises(HeadcountError, match="5 is not a head"):
        HeadSet(5)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": [1]}, 'A curve has no setting "count".*Did you mean "counts"'),
        ({"counts": 3}, "Counts are a list of numbers of heads"),
        ({"counts": "3"}, "Counts are a list of numbers of heads"),
        ({"counts": ["3"]}, "Cannot choose 3 heads"),
        ({"seeds": "many"}, '"seeds" of A curve is a whole number'),
        ({"metric": print}, "A metric is a name, such as accuracy, or a Metric"),
    ],
    ids=lambda value: "",
)
def test_settings_of_a_curve_in_a_wrong_form(
    llama: Model, settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(HeadcountError, match=words):
        curve(llama, toy_task(6), "random", **settings)


def test_an_unknown_setting_of_generate(llama: Model) -> None:
    with pytest.raises(HeadcountError, match='Did you mean "max_new_tokens"'):
        generate(llama, ["ba"], max_tokens=3)


def test_a_lab_takes_the_path_of_a_store(tmp_path: Path) -> None:
    store = Lab(store=tmp_path / "mine.sqlite").store  # type: ignore[arg-type]
    assert store is not None
    assert store.path == tmp_path / "mine.sqlite"
    store.close()
