"""Work cut into units gives the values of one process, bit for bit, whoever does which unit."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_evaluate import counted, soft_gates
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, Store, Task, evaluate, wrap
from headcount.engine.measure import measuring
from headcount.engine.measure.ablations import make_ablation
from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.executor import Job, Unit
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.engine.measure.measuring import MeasuringJob, Passes, Share
from headcount.engine.measure.plan import PLAIN, Plan, best_plan
from headcount.engine.write.writing import Answers, Sampled, Writing, WritingJob
from headcount.metrics import METRICS, Metric, logit_metrics
from headcount.models.model import Model
from headcount.rankings import Ranking
from headcount.rankings.attribution import DerivativeJob
from headcount.rankings.causal_gates.fit import FitJob, fit_gates
from headcount.studies.token_insertion.activations import ActivationRedistribution
from headcount.tasks import encode


class Here:
    """Workers that are this process: units arrive as bytes and are done in any order."""

    def __init__(self, number: int = 3, seed: int = 0) -> None:
        self.number, self.order = number, random.Random(seed)
        self.jobs: list[Job] = []
        self.units: list[Unit] = []

    def workers(self, model: Model) -> int:
        return self.number

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        self.jobs.append(job)
        self.units += units
        sent = pickle.dumps(job)
        workers = [pickle.loads(sent).ready(model) for _ in range(self.number)]
        for unit in self.order.sample(units, len(units)):
            results: list[Any] = []
            work = pickle.loads(pickle.dumps(unit.work))
            self.order.choice(workers)(work, results.append)
            for result in pickle.loads(pickle.dumps(results)):
                keep(unit, result)

    def lab(self, **settings: Any) -> Lab:
        return Lab(executor=self, progress=False, **settings)


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama", num_hidden_layers=3), toy_tokenizer(), name="tiny")


@pytest.fixture(scope="module")
def task() -> Task:
    return toy_task(24)


def both(
    here: Here, *args: Any, plan: Plan | None = None, **kwargs: Any
) -> tuple[np.ndarray, np.ndarray]:
    alone = evaluate(*args, **kwargs, lab=Lab(plan=plan, progress=False))
    lab = here.lab(plan=plan)
    shared = evaluate(*args, **kwargs, lab=lab)
    assert shared.ablation == alone.ablation
    assert lab.measured["value"] == np.isfinite(alone.table).sum()  # each once
    return alone.values, shared.values


@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
@pytest.mark.parametrize("tokens", [20, 60, 400])
def test_values_are_equal_bit_for_bit(
    model: Model, task: Task, ablation: str, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "FEWEST", 1)
    gates = np.concatenate(
        [np.ones((1, model.layout.total)), 1 - np.eye(model.layout.total), soft_gates(model, 9)]
    )
    here = Here()
    plan = best_plan(model, tokens=tokens)
    alone, shared = both(here, model, task, gates, ablation=ablation, plan=plan)
    assert np.array_equal(alone, shared)
    assert len(here.units) > (3 if tokens < 400 else 0)
    assert len({unit.key for unit in here.units}) == len(here.units)


@pytest.mark.parametrize("model_type", ["gpt2", "bloom", "qwen3_5_text"])
@pytest.mark.parametrize("plain", [True, False])
def test_other_models_and_the_plain_plan(
    model_type: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measuring, "FEWEST", 1)
    model = wrap(tiny_model(model_type), toy_tokenizer(), name=model_type)
    plan = Plan(50, PLAIN) if plain else best_plan(model, tokens=50)
    here = Here()
    alone, shared = both(here, model, toy_task(12), soft_gates(model, 7), plan=plan)
    assert np.array_equal(alone, shared)
    assert len(here.units) > 1


def test_prompts_that_share_their_start(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FEWEST", 1)
    start = "ba da fa ga ka la ma na pa ra sa ta "
    some = toy_task(16, lengths=(4,)).examples
    task = Task("shared", 1, tuple(replace(e, prompt=start + e.prompt) for e in some))
    here = Here()
    alone, shared = both(here, model, task, soft_gates(model, 12), plan=best_plan(model, tokens=40))
    assert np.array_equal(alone, shared)
    assert any(share.of > 1 for unit in here.units for share in unit.work)


def test_head_sets_of_single_examples(model: Model, task: Task) -> None:
    places = range(len(task.split("test")))
    gates = soft_gates(model, len(places) + 1)
    entries = [HeadSetEntry("own", gates[place], place) for place in places]
    table = HeadSets.build(model.layout, [*entries, HeadSetEntry("all", gates[-1])], len(places))
    alone, here = Lab(progress=False), Here()
    one, other = (
        evaluate(model, task, table, lab=lab, metric="logprob") for lab in (alone, here.lab())
    )
    assert np.array_equal(one.table, other.table, equal_nan=True)
    assert (~np.isnan(other.table) == table.wanted).all()


def test_units_hold_every_head_set_of_a_batch_once_and_are_of_even_size(model: Model) -> None:
    here, task = Here(number=2), toy_task(40, lengths=(8,), targets=(1,))
    gates = 1 - np.eye(model.layout.total, dtype=np.float32)
    with counted(model) as tokens:
        evaluate(model, task, gates, lab=here.lab(plan=Plan(8, PLAIN)), metric="logprob")
    single = len(task.split("test")) * len(gates)
    assert len(tokens) == single  # every pass once: the plain loop records nothing
    sizes = [sum(len(share.rows) / share.of for share in unit.work) for unit in here.units]
    assert sum(sizes) == single
    assert len(sizes) >= 1.5 * measuring.UNITS_EACH
    assert max(sizes) <= 1.5 * single / len(sizes)


def test_a_share_is_never_smaller_than_it_is_worth(model: Model) -> None:
    here = Here(number=50)
    evaluate(
        model,
        toy_task(24),
        soft_gates(model, 8),
        lab=here.lab(plan=Plan(8, PLAIN)),
        metric="logprob",
    )
    sizes = [sum(len(share.rows) / share.of for share in unit.work) for unit in here.units]
    assert min(sizes[:-1]) >= measuring.FEWEST


def test_what_the_store_knows_is_not_handed_out(model: Model, task: Task, tmp_path: Path) -> None:
    gates = soft_gates(model, 6)
    with Store(tmp_path / "store.sqlite") as store:
        evaluate(model, task, gates[:4], lab=Lab(store, progress=False), metric="logprob")
        here = Here()
        values = evaluate(model, task, gates, lab=here.lab(store=store), metric="logprob")
        rows = {row for unit in here.units for share in unit.work for row in share.rows}
        assert len(rows) == 2
        (summary,) = store.summary()
        assert summary.values == values.values.size
        here.units.clear()
        evaluate(model, task, gates, lab=here.lab(store=store), metric="logprob")
    assert not here.units


def test_the_key_of_a_unit_is_its_content(model: Model, task: Task) -> None:
    def keys(**changes: Any) -> set[str]:
        here = Here()
        asked = {"heads": soft_gates(model, 3), "metric": "logprob", **changes}
        evaluate(model, task, **asked, lab=here.lab())
        return {unit.key for unit in here.units}

    assert keys() == keys()
    assert not keys() & keys(metric="accuracy")
    assert not keys() & keys(ablation="corrupted")
    assert not keys() & keys(heads=soft_gates(model, 3, seed=1))
    assert not keys() & keys(split="ranking")


def test_a_unit_says_what_it_is(model: Model, task: Task) -> None:
    here = Here()
    evaluate(model, task, soft_gates(model, 3), metric="accuracy", lab=here.lab())
    assert here.units[0].name.startswith("toy-0, accuracy: e")
    assert here.units[0].name.endswith("under 3 head sets")
    assert all(isinstance(share, Share) for share in here.units[0].work)


def write(model: Model, task: Task, gates: np.ndarray, lab: Lab, **settings: Any) -> Answers:
    return lab.write(Writing(model, task, HeadSets.of(gates, model.layout), **settings))


@pytest.mark.parametrize("scope", ["all", "decode"])
def test_texts_are_equal(model: Model, scope: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.engine.write.writing.BATCHES", 1)
    monkeypatch.setattr("headcount.engine.write.writing.rows_at_once", lambda *_: 6)
    task, gates, here = toy_task(16), soft_gates(model, 5), Here()
    alone = write(model, task, gates, Lab(progress=False), scope=scope)
    lab = here.lab()
    shared = write(model, task, gates, lab, scope=scope)
    assert shared.texts.tolist() == alone.texts.tolist()
    assert np.array_equal(shared.finished, alone.finished)
    assert lab.measured["text"] == shared.texts.size  # each once
    assert len(here.units) > 3
    assert here.units[0].name.startswith("toy-0, answers: e")


def test_drawn_and_redistributed_texts_are_equal(model: Model, tmp_path: Path) -> None:
    task, gates = toy_task(8), soft_gates(model, 2)
    settings: dict[str, Any] = {
        "sampled": Sampled(temperature=1.0, seed=3),
        "redistribution": ActivationRedistribution(),
    }
    alone = write(model, task, gates, Lab(progress=False), **settings)
    with Store(tmp_path / "store.sqlite") as store:
        shared = write(model, task, gates, Here().lab(store=store), **settings)
    assert shared.texts.tolist() == alone.texts.tolist()


def test_equal_examples_keep_their_own_texts(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headcount.engine.write.writing.BATCHES", 1)
    monkeypatch.setattr("headcount.engine.write.writing.rows_at_once", lambda *_: 1)
    some = toy_task(4).examples
    task = Task("twice", 1, (*some, *(replace(e, id=f"{e.id} again") for e in some)))
    answers = write(model, task, np.ones((1, model.layout.total)), Here().lab(), split="all")
    assert None not in answers.texts
    assert answers.texts[0, :4].tolist() == answers.texts[0, 4:].tolist()


@pytest.mark.parametrize("ranking", ["attribution", "integrated-gradients"])
@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_rankings_by_derivative_are_equal(
    model: Model, task: Task, ranking: str, ablation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("headcount.rankings.attribution")  # a function goes by its name
    monkeypatch.setattr(module, "default_tokens", lambda model: 60)
    settings: dict[str, Any] = {"ablation": ablation, "metric": "logprob_difference"}
    asked, here = Ranking.of(model, task, ranking, **settings), Here()
    alone, shared = (asked.result(lab) for lab in (Lab(progress=False), here.lab()))
    assert np.array_equal(alone.samples, shared.samples)
    assert alone.parameters == shared.parameters
    assert len(here.units) > 2
    places = sorted(place for unit in here.units for place in unit.work)
    assert places == list(range(len(task.split("ranking"))))  # each once


def test_gates_of_seeds_that_are_fitted_apart(model: Model, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"updates": 3, "batch": 4, "seeds": 5, "tokens": 400}
    alone = fit_gates(model, toy_task(24), **settings, lab=Lab(progress=False))
    here = Here()
    with Store(tmp_path / "store.sqlite") as store:
        shared = fit_gates(model, toy_task(24), **settings, lab=here.lab(store=store))
        assert [unit.work for unit in here.units] == [[0, 3], [1, 4], [2]]
        again = fit_gates(model, toy_task(24), **settings, lab=here.lab(store=store))
    assert len(here.units) == 3  # nothing is fitted twice
    for fitted in (shared, again):
        np.testing.assert_allclose(fitted.plus, alone.plus, atol=1e-5)
        np.testing.assert_allclose(fitted.minus, alone.minus, atol=1e-5)


@pytest.mark.parametrize("metric", logit_metrics(), ids=lambda metric: metric.key)
def test_every_metric_travels(metric: Any) -> None:
    if isinstance(metric, Metric):  # texts are scored by the process that asks
        assert pickle.loads(pickle.dumps(metric)) == metric


def test_every_job_travels(model: Model, task: Task) -> None:
    here = Here()
    gates, lab = soft_gates(model, 2), here.lab()
    evaluate(model, task, gates, metric="accuracy", lab=lab)
    settings = {"sampled": Sampled(temperature=0.5), "redistribution": ActivationRedistribution()}
    write(model, task, gates, lab, **settings)
    Ranking.of(model, task, "attribution").result(lab)
    fit_gates(model, task, updates=1, batch=2, seeds=2, lab=lab)
    kinds = (MeasuringJob, WritingJob, DerivativeJob, FitJob)
    assert tuple(type(job) for job in here.jobs) == kinds
    for job in here.jobs:
        copy: Any = pickle.loads(pickle.dumps(job))
        for field in fields(copy):
            np.testing.assert_equal(getattr(copy, field.name), getattr(job, field.name))


def test_parts_are_cut_alike_by_a_worker_whose_memory_was_short(model: Model) -> None:
    examples = encode(toy_task(6, targets=[1]), model.tokenizer)
    (batch, *_) = make_batches(examples, tokens=1 << 60)
    gates, plan = soft_gates(model, sets=29), Plan(4 * batch.ids.numel(), fold=True)
    ablation = make_ablation("zero", model, examples, [], 100)
    passes = [
        Passes(model, gates, len(examples), METRICS["logprob"], ablation, plan) for _ in range(3)
    ]
    passes[0].plan = replace(plan, tokens=batch.ids.numel())  # as after running out of memory
    parts = [one._part(batch, range(29), part, 3) for part, one in enumerate(passes)]
    assert sorted(row for part in parts for row in part) == list(range(29))


def test_values_that_nobody_hands_back_are_refused(model: Model, task: Task) -> None:
    class Forgetful(Here):
        def run(self, model: Model, job: Job, units: Sequence[Unit], keep: Any) -> None:
            super().run(model, job, units[1:], keep)

    with pytest.raises(HeadcountError, match="did not return"):
        evaluate(model, task, soft_gates(model, sets=30), lab=Forgetful().lab(), metric="logprob")
