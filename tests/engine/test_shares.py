"""Work cut into units gives the values of one process, bit for bit, whoever does which unit."""

from __future__ import annotations

import pickle
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_evaluate import counted, soft_gates
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Store, evaluate, wrap
from headcount.engine.measure import shares
from headcount.engine.measure.plan import PLAIN, Plan, best_plan
from headcount.engine.measure.shares import Share
from headcount.engine.measure.workers import Job, Unit, workers, working
from headcount.engine.write.answers import Sampled, answers
from headcount.models.model import Model
from headcount.studies.token_insertion.redistribution import Redistribution
from headcount.tasks import Task


class Here:
    """Workers that are this process: units arrive as bytes and are done in any order."""

    def __init__(self, number: int = 3, seed: int = 0) -> None:
        self.number, self.order = number, random.Random(seed)
        self.units: list[Unit] = []

    def count(self, model: Model) -> int:
        return self.number

    def do(self, model: Model, job: Job, units: Sequence[Unit]) -> Iterator[tuple[Unit, Any]]:
        self.units += units
        sent = pickle.dumps(job)
        crew = [pickle.loads(sent).ready(model) for _ in range(self.number)]
        for unit in self.order.sample(units, len(units)):
            done = self.order.choice(crew)(pickle.loads(pickle.dumps(unit.work)))
            yield unit, pickle.loads(pickle.dumps(done))


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama", num_hidden_layers=3), toy_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def task() -> Task:
    return toy_task(24)


def both(crew: Here, *args: Any, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
    alone = evaluate(*args, **kwargs, progress=False)
    with working(crew):
        shared = evaluate(*args, **kwargs, progress=False)
    assert shared.stand_in == alone.stand_in
    return alone.values, shared.values


@pytest.mark.parametrize("stand_in", ["zero", "mean", "corrupted"])
@pytest.mark.parametrize("tokens", [20, 60, 400])
def test_values_are_equal_bit_for_bit(
    model: Model, task: Task, stand_in: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "FEWEST", 1)
    gates = np.concatenate(
        [np.ones((1, model.layout.total)), 1 - np.eye(model.layout.total), soft_gates(model, 9)]
    )
    crew = Here()
    plan = best_plan(model, tokens=tokens)
    alone, shared = both(crew, model, task, gates, stand_in=stand_in, plan=plan)
    assert np.array_equal(alone, shared)
    assert len(crew.units) > (3 if tokens < 400 else 0)
    assert len({unit.key for unit in crew.units}) == len(crew.units)


@pytest.mark.parametrize("model_type", ["gpt2", "bloom", "qwen3_5_text"])
@pytest.mark.parametrize("plain", [True, False])
def test_other_models_and_the_plain_plan(
    model_type: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shares, "FEWEST", 1)
    model = wrap(tiny_model(model_type), toy_tokenizer(), name=model_type)
    plan = Plan(50, PLAIN) if plain else best_plan(model, tokens=50)
    crew = Here()
    alone, shared = both(crew, model, toy_task(12), soft_gates(model, 7), plan=plan)
    assert np.array_equal(alone, shared)
    assert len(crew.units) > 1


def test_prompts_that_share_their_start(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "FEWEST", 1)
    start = "ba da fa ga ka la ma na pa ra sa ta "
    some = toy_task(16, lengths=(4,)).examples
    task = Task("shared", 1, tuple(replace(e, prompt=start + e.prompt) for e in some))
    crew = Here()
    alone, shared = both(crew, model, task, soft_gates(model, 12), plan=best_plan(model, tokens=40))
    assert np.array_equal(alone, shared)
    assert any(share.of > 1 for unit in crew.units for share in unit.work)


def test_padding_and_head_sets_of_single_examples(model: Model, task: Task) -> None:
    alone, shared = both(Here(), model, task, soft_gates(model, 3), padding="right")
    assert np.array_equal(alone, shared)
    examples = len(task.part("test"))
    only = np.eye(examples + 1, examples, dtype=bool)
    only[-1] = True
    alone, shared = both(Here(), model, task, soft_gates(model, examples + 1), only=only)
    assert np.array_equal(alone, shared, equal_nan=True)
    assert (~np.isnan(shared) == only).all()


def test_units_hold_every_head_set_of_a_batch_once_and_are_of_even_size(model: Model) -> None:
    crew, task = Here(number=2), toy_task(40, lengths=(8,), targets=(1,))
    gates = 1 - np.eye(model.layout.total, dtype=np.float32)
    with working(crew), counted(model) as tokens:
        evaluate(model, task, gates, plan=Plan(8, PLAIN), progress=False)
    single = len(task.part("test")) * len(gates)
    assert len(tokens) == single  # every pass once: the plain loop records nothing
    sizes = [sum(len(share.rows) / share.of for share in unit.work) for unit in crew.units]
    assert sum(sizes) == single
    assert len(sizes) >= 1.5 * shares.UNITS_EACH
    assert max(sizes) <= 1.5 * single / len(sizes)


def test_a_share_is_never_smaller_than_it_is_worth(model: Model) -> None:
    crew = Here(number=50)
    with working(crew):
        evaluate(model, toy_task(24), soft_gates(model, 8), plan=Plan(8, PLAIN), progress=False)
    sizes = [sum(len(share.rows) / share.of for share in unit.work) for unit in crew.units]
    assert min(sizes[:-1]) >= shares.FEWEST


def test_what_the_store_knows_is_not_handed_out(model: Model, task: Task, tmp_path: Path) -> None:
    gates = soft_gates(model, 6)
    with Store(tmp_path / "store.sqlite") as store:
        evaluate(model, task, gates[:4], store=store, progress=False)
        crew = Here()
        with working(crew):
            values = evaluate(model, task, gates, store=store, progress=False)
            rows = {row for unit in crew.units for share in unit.work for row in share.rows}
            assert len(rows) == 2
            (summary,) = store.summary()
            assert summary.values == values.values.size
            crew.units.clear()
            evaluate(model, task, gates, store=store, progress=False)
    assert not crew.units


def test_the_key_of_a_unit_is_its_content(model: Model, task: Task) -> None:
    def keys(**changes: Any) -> set[str]:
        crew = Here()
        asked = {"gates": soft_gates(model, 3), "metric": "logprob", **changes}
        with working(crew):
            evaluate(model, task, **asked, progress=False)
        return {unit.key for unit in crew.units}

    assert keys() == keys()
    assert not keys() & keys(metric="accuracy")
    assert not keys() & keys(stand_in="corrupted")
    assert not keys() & keys(gates=soft_gates(model, 3, seed=1))
    assert not keys() & keys(part="ranking")


def test_a_unit_says_what_it_is(model: Model, task: Task) -> None:
    crew = Here()
    with working(crew):
        evaluate(model, task, soft_gates(model, 3), metric="accuracy", progress=False)
    assert crew.units[0].name.startswith("toy-0, accuracy: e")
    assert crew.units[0].name.endswith("under 3 head sets")
    assert all(isinstance(share, Share) for share in crew.units[0].work)


@pytest.mark.parametrize("scope", ["all", "decode"])
def test_texts_are_equal(model: Model, scope: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.engine.write.answers.BATCHES", 1)
    monkeypatch.setattr("headcount.engine.write.answers.rows_at_once", lambda *_: 6)
    task, gates, crew = toy_task(16), soft_gates(model, 5), Here()
    alone = answers(model, task, gates, scope=scope, progress=False)
    with working(crew):
        shared = answers(model, task, gates, scope=scope, progress=False)
    assert shared.texts.tolist() == alone.texts.tolist()
    assert np.array_equal(shared.finished, alone.finished)
    assert len(crew.units) > 3
    assert crew.units[0].name.startswith("toy-0, answers: e")


def test_drawn_and_redistributed_texts_are_equal(model: Model, tmp_path: Path) -> None:
    task, gates = toy_task(8), soft_gates(model, 2)
    settings: dict[str, Any] = {
        "sampled": Sampled(temperature=1.0, seed=3),
        "redistribution": Redistribution(),
    }
    alone = answers(model, task, gates, **settings, progress=False)
    with Store(tmp_path / "store.sqlite") as store, working(Here()):
        shared = answers(model, task, gates, **settings, store=store, progress=False)
    assert shared.texts.tolist() == alone.texts.tolist()


def test_equal_examples_keep_their_own_texts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.engine.write.answers.BATCHES", 1)
    monkeypatch.setattr("headcount.engine.write.answers.rows_at_once", lambda *_: 1)
    some = toy_task(4).examples
    task = Task("twice", 1, (*some, *(replace(e, id=f"{e.id} again") for e in some)))
    with working(Here()):
        found = answers(model, task, np.ones(model.layout.total), part="all", progress=False)
    assert None not in found.texts
    assert found.texts[0, :4].tolist() == found.texts[0, 4:].tolist()


def test_nobody_works_unless_asked(model: Model) -> None:
    assert workers() is None
    with working(crew := Here()):
        assert workers() is crew
        with working(None):
            assert workers() is None
    assert workers() is None
