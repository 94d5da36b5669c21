"""Written answers: what exact match gives is what teacher forcing gives, and texts are kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import Plant, plant
from texts import answers

from headcount import HeadcountError, Store, curve, evaluate
from headcount.engine.write import writing as module
from headcount.lab import Lab
from headcount.metrics.text import TextMetric, Written


@pytest.fixture(scope="module")
def planted() -> Plant:
    found = plant(["0.1", "2.0"], ["1.3"])
    return replace(found, task=replace(found.task, max_new_tokens=1))


def some_gates(planted: Plant) -> np.ndarray:
    layout = planted.model.layout
    heads = [[], ["0.1"], ["1.3"], ["0.0", "2.0"]]
    return np.stack([layout.gates(off=map(layout.parse, names)) for names in heads])


def test_texts_are_what_the_circuit_says(planted: Plant) -> None:
    found = answers(planted.model, planted.task, some_gates(planted))
    test = planted.task.split("test")
    assert found.texts[0].tolist() == [example.target.strip() for example in test]
    assert set(found.texts[1]) == {"nobody"}
    assert found.examples == tuple(example.id for example in test)


def test_exact_match_equals_teacher_forcing(planted: Plant) -> None:
    gates = some_gates(planted)
    written = evaluate(planted.model, planted.task, gates, metric="exact_match")
    forced = evaluate(planted.model, planted.task, gates, metric="accuracy")
    assert np.array_equal(written.values, forced.values)
    assert written.values.mean(1).tolist() == [1, 0, 1, 0]


def test_curves_of_written_answers(planted: Plant) -> None:
    options: dict[str, Any] = {"counts": [0, 2], "series": ["top"]}
    result = curve(planted.model, planted.task, "ablation", metric="exact_match", **options)
    assert [point.value for point in result.points] == [1, 0]
    damped = curve(
        planted.model, planted.task, "ablation", metric="exact_match", epsilon=1.0, **options
    )
    assert [point.value for point in damped.points] == [1, 1]


def test_a_store_keeps_texts_for_every_metric(
    planted: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = some_gates(planted)
    length = TextMetric("length", "Length", lambda w: np.array([float(len(t)) for t in w.texts]))
    options: dict[str, Any] = {}
    with Store(tmp_path / "store.sqlite") as store:
        first = evaluate(
            planted.model, planted.task, gates[:2], metric="exact_match", **options, lab=Lab(store)
        )
        asked: list[int] = []
        decode = module.generate

        def counted(model: Any, prompts: Any, heads: Any, **more: Any) -> Any:
            asked.append(len(prompts))
            return decode(model, prompts, heads, **more)

        monkeypatch.setattr(module, "generate", counted)
        again = evaluate(
            planted.model, planted.task, gates[:2], metric="exact_match", **options, lab=Lab(store)
        )
        assert np.array_equal(first.values, again.values)
        evaluate(planted.model, planted.task, gates[:2], metric=length, **options, lab=Lab(store))
        assert asked == []
        evaluate(planted.model, planted.task, gates, metric=length, **options, lab=Lab(store))
        assert asked == [2 * len(planted.task.split("test"))]


def test_a_metric_sees_gold_and_whole_answers(planted: Plant) -> None:
    seen: list[Written] = []

    def look(written: Written) -> np.ndarray:
        seen.append(written)
        return np.zeros(len(written.texts))

    metric = TextMetric("look", "Look", look)
    evaluate(planted.model, planted.task, some_gates(planted)[1:2], metric=metric)
    (written,) = seen
    assert written.golds == written.whole  # the whole model is right
    assert set(written.texts) == {"nobody"}
    assert written.prompts == [example.prompt for example in planted.task.split("test")]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"metric": "exact_match", "ablation": "mean"}, "works only with zero ablation"),
        ({"metric": "accuracy", "scope": "decode"}, "choose a metric of texts"),
        ({"metric": "exact_match", "scope": "decoding"}, "Did you mean"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    planted: Plant, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(HeadcountError, match=words):
        evaluate(planted.model, planted.task, some_gates(planted), **options)


def test_answers_end_where_the_task_says() -> None:
    found = plant(["0.1"])
    with pytest.raises(HeadcountError, match="max_new_tokens of at least 1"):
        replace(found.task, max_new_tokens=0)
    with pytest.raises(HeadcountError, match="not empty"):
        replace(found.task, stop=("",))


def test_what_was_cut_is_known_and_kept(planted: Plant, tmp_path: Path) -> None:
    gates = some_gates(planted)[:1]
    with Store(tmp_path / "store.sqlite") as store:
        first = answers(planted.model, planted.task, gates, lab=Lab(store))
        assert set(first.finished.ravel()) <= {0.0, 1.0}
        again = answers(planted.model, planted.task, gates, lab=Lab(store))
    assert np.array_equal(first.finished, again.finished)
    assert np.array_equal(first.texts, again.texts)


def test_many_examples_are_written_in_pieces(
    planted: Plant, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gates = some_gates(planted)[1:2]
    whole = answers(planted.model, planted.task, gates)
    monkeypatch.setattr(module, "rows_at_once", lambda *_: 1)
    asked: list[int] = []
    decode = module.generate

    def cut(model: Any, prompts: Any, heads: Any, **more: Any) -> Any:
        asked.append(len(prompts))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return decode(model, prompts, heads, **more)

    monkeypatch.setattr(module, "generate", cut)
    total = len(planted.task.split("test"))
    with Store(tmp_path / "store.sqlite") as store:
        with pytest.raises(KeyboardInterrupt):
            answers(planted.model, planted.task, gates, lab=Lab(store))
        rest = answers(planted.model, planted.task, gates, lab=Lab(store))
    assert asked[0] == module.BATCHES
    assert sum(asked[2:]) == total - module.BATCHES  # the first piece was kept
    assert np.array_equal(rest.texts, whole.texts)


def test_drawn_texts_have_keys_of_their_own(planted: Plant, tmp_path: Path) -> None:
    gates = some_gates(planted)[:1]
    options: dict[str, Any] = {}
    task = replace(planted.task, max_new_tokens=3)
    with Store(tmp_path / "store.sqlite") as store:
        drawn = [
            answers(
                planted.model,
                task,
                gates,
                sampled=module.Sampled(temperature=50.0, seed=seed),
                lab=Lab(store),
                **options,
            ).texts
            for seed in (0, 1, 0)
        ]
    assert np.array_equal(drawn[0], drawn[2])
    assert not np.array_equal(drawn[0], drawn[1])
