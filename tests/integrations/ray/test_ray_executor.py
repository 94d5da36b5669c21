"""A real Ray cluster of two workers on this machine, one of which is killed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from integrations.ray.helpers import dies_at, metric_that, ray_processes, save_model, waits_once
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

import headcount
from headcount import HeadcountError, Lab, Store, curve, evaluate, load_model, rank, wrap
from headcount.cli import main
from headcount.engine.measure import measuring
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.measure.plan import best_plan
from headcount.engine.write.writing import Writing
from headcount.integrations.ray import ray_executor
from headcount.integrations.ray.connect import reachable
from headcount.integrations.ray.executor import RayExecutor, Size, check_workers
from headcount.metrics import Metric
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import fit_gates
from headcount.tasks import Task, encode

# Not importorskip: Ray reads what is to be printed when it is first imported.
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load_model(folder, device="cpu")


@pytest.fixture(scope="module")
def task() -> Task:
    return toy_task(40)


@pytest.fixture(scope="module")
def executor() -> Iterator[RayExecutor]:
    """Two workers that stay."""
    with ray_executor(workers=2, threads=1) as executor:
        yield executor
    assert not ray_processes()


@pytest.fixture
def lab(executor: RayExecutor) -> Lab:
    """A lab without a store, whose work the workers do."""
    return Lab(executor=executor, progress=False)


@pytest.fixture
def alone() -> Lab:
    """A lab whose work this process does."""
    return Lab(progress=False)


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "FEWEST", 1)


def single_heads(model: Model) -> np.ndarray:
    total = model.layout.total
    return np.concatenate([np.ones((1, total)), 1 - np.eye(total)])


def write(lab: Lab, model: Model, task: Task, gates: np.ndarray) -> list[list[str]]:
    texts = lab.write(Writing(model, task, HeadSets.of(gates, model.layout))).texts
    return texts.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_values_are_those_of_one_process_bit_for_bit(
    lab: Lab,
    alone: Lab,
    executor: RayExecutor,
    model: Model,
    task: Task,
    ablation: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted: list[int] = []

    class Bar:
        def update(self, n: int) -> None:
            counted.append(n)

    alone.plan = lab.plan = best_plan(model, tokens=60)
    values = evaluate(
        model, task, single_heads(model), ablation=ablation, lab=alone, metric="logprob"
    )
    monkeypatch.setattr("headcount.lab.progress_bar", lambda *_, **__: nullcontext(Bar()))
    shared = evaluate(
        model, task, single_heads(model), ablation=ablation, lab=lab, metric="logprob"
    )
    assert np.array_equal(values.values, shared.values)
    assert sum(counted) == shared.values.size == lab.measured["value"]
    assert len(counted) > 4
    assert len(executor.pool) == 2
    assert len({worker.process for worker in executor.pool} - {os.getpid(), 0}) == 2


def test_texts_rankings_and_curves(lab: Lab, alone: Lab, model: Model, task: Task) -> None:
    gates = single_heads(model)[:6]
    assert write(lab, model, task, gates) == write(alone, model, task, gates)
    assert lab.measured["text"] == gates.shape[0] * len(task.split("test"))
    ranking, shared = (rank(model, task, "ablation", lab=some) for some in (alone, lab))
    assert np.array_equal(shared.values, ranking.values)
    settings: dict[str, Any] = {"counts": [0, 2], "seeds": 2}
    points, others = (
        curve(model, task, ranking, **settings, lab=some).points for some in (alone, lab)
    )
    assert points == others


@pytest.mark.parametrize("ranking", ["attribution", "integrated-gradients"])
def test_rankings_by_derivative(
    lab: Lab, alone: Lab, model: Model, task: Task, ranking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = import_module("headcount.rankings.attribution")  # a function goes by its name
    monkeypatch.setattr(module, "default_tokens", lambda model: 60)
    ranking, shared = (rank(model, task, ranking, lab=some) for some in (alone, lab))
    assert np.array_equal(shared.samples, ranking.samples)


def test_gates_are_fitted_by_workers(
    lab: Lab, alone: Lab, model: Model, task: Task, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"updates": 3, "batch": 4, "seeds": 3, "tokens": 400}
    gates = fit_gates(model, task, **settings, lab=alone)
    with Store(tmp_path / "store.sqlite") as store:
        lab.store = store
        shared = fit_gates(model, task, **settings, lab=lab)
    # Seeds that are fitted side by side share their passes, which rounds differently.
    np.testing.assert_allclose(shared.plus, gates.plus, atol=1e-5)
    np.testing.assert_allclose(shared.minus, gates.minus, atol=1e-5)


def test_a_device_map_travels(lab: Lab, alone: Lab, folder: Path, task: Task, model: Model) -> None:
    places = {"model.layers.2": "disk", "lm_head": "disk"}
    rest = ("embed_tokens", "rotary_emb", "norm", "layers.0", "layers.1")
    places |= {f"model.{name}": "cpu" for name in rest}
    spread = load_model(folder, device_map=places)
    assert spread.spread
    values = evaluate(model, task, single_heads(model), lab=alone, metric="logprob")
    shared = evaluate(spread, task, single_heads(model), lab=lab, metric="logprob")
    # Weights that are read from the disk for each pass lie at other addresses in memory, and matrix
    # products may round by that.
    np.testing.assert_allclose(values.values, shared.values, atol=1e-5)


def test_what_a_worker_refuses_is_one_sentence(lab: Lab, model: Model, task: Task) -> None:
    nothing = Metric("nothing", "nothing", lambda scored: scored.logits[:, 0, 0] * float("nan"))
    with pytest.raises(HeadcountError, match=r"^tiny gave logits that are not finite"):
        evaluate(model, task, single_heads(model)[:2], metric=nothing, lab=lab)


def test_a_model_in_memory_is_refused(lab: Lab, task: Task) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    with pytest.raises(HeadcountError, match="exists only in memory"):
        evaluate(model, task, single_heads(model)[:1], lab=lab, metric="logprob")


def test_another_model_file_is_refused(lab: Lab, folder: Path, task: Task, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    model = load_model(tmp_path / "copy", device="cpu")
    gates = single_heads(model)[:2]
    model.identity  # as a run does that has looked into its store
    save_model(tmp_path / "copy", seed=1)
    with pytest.raises(HeadcountError, match=r"has model file \w+ \(here \w+\)") as caught:
        evaluate(model, task, gates, lab=lab, metric="logprob")
    assert str(caught.value).endswith("for copy: give every machine the same model.")
    shutil.rmtree(tmp_path / "copy")
    with pytest.raises(HeadcountError, match="cannot load copy"):
        evaluate(model, task, gates, lab=lab, metric="logprob")


def test_a_worker_that_is_killed_loses_only_its_unit(
    lab: Lab,
    alone: Lab,
    executor: RayExecutor,
    model: Model,
    task: Task,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    alone.plan = lab.plan = best_plan(model, tokens=60)
    values = evaluate(model, task, single_heads(model), lab=alone, metric="logprob")
    marker = tmp_path / "process"
    killed: list[int] = []

    def kill() -> None:
        while not (marker.exists() and marker.read_text().endswith("\n")):
            time.sleep(0.02)
        killed.append(int(marker.read_text()))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    metric = metric_that(waits_once(marker), "waiting")
    path = tmp_path / "store.sqlite"
    with Store(path) as store, caplog.at_level(logging.WARNING):
        lab.store = store
        shared = evaluate(model, task, single_heads(model), metric=metric, lab=lab)
        (summary,) = store.summary()
        exported = store.export(tmp_path / "values.csv")
    killer.join(10)
    assert np.array_equal(values.values, shared.values)
    assert summary.values == exported == shared.values.size  # every measurement once
    assert lab.measured["value"] == shared.values.size
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"(process {killed[0]}) died; its unit is done again: toy-0, waiting: e" in said
    assert len(executor.pool) == 2
    assert killed[0] not in {worker.process for worker in executor.pool}
    assert "raylet" not in capfd.readouterr().out


def test_a_unit_that_kills_every_worker_is_named(
    lab: Lab, model: Model, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = encode(task.split("test"), model.tokenizer)
    monkeypatch.setattr("headcount.integrations.ray.executor.DEATHS", 2)
    metric = metric_that(dies_at(test[3].target[0]), "deadly")
    gates = single_heads(model)[:3]
    lab.plan = best_plan(model, tokens=10)
    with Store(tmp_path / "store.sqlite") as store:
        lab.store = store
        with pytest.raises(HeadcountError, match=r"2 workers died at the same unit \(toy-0, dea"):
            evaluate(model, task, gates, metric=metric, lab=lab)
        kept = sum(summary.values for summary in store.summary())
    assert 0 < kept < gates.shape[0] * len(test)  # what was measured before is kept


def test_other_versions_are_refused(
    executor: RayExecutor, model: Model, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor.close()  # the cluster has room for two
    monkeypatch.setattr(headcount, "__version__", "9.9.9")
    monkeypatch.setattr("headcount.integrations.ray.worker.MEASUREMENT", 77)
    sentence = r"has headcount 0\.\S+ \(here 9\.9\.9\) and measurement version 1 \(here 77\)"
    with (
        ray_executor(workers=1, threads=1) as other,  # Ray is there already; these workers are new
        pytest.raises(HeadcountError, match=sentence),
    ):
        evaluate(
            model,
            task,
            single_heads(model)[:2],
            lab=Lab(executor=other, progress=False),
            metric="logprob",
        )


def test_a_full_cluster_is_not_waited_for_for_ever(
    executor: RayExecutor,
    model: Model,
    task: Task,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    much = Size(workers=1, threads=1, cpus=99, gpus=0)
    monkeypatch.setattr("headcount.integrations.ray.executor.size_for", lambda *_: much)
    monkeypatch.setattr("headcount.integrations.ray.executor.PATIENCE", 3.0)
    monkeypatch.setattr("headcount.integrations.ray.executor.SILENT", 1.0)
    with (
        ray_executor(workers=1, threads=1) as other,
        pytest.raises(HeadcountError, match="the cluster has no room for 99 CPUs"),
    ):
        evaluate(
            model,
            task,
            single_heads(model),
            lab=Lab(executor=other, progress=False),
            metric="logprob",
        )
    assert [record.getMessage() for record in caplog.records] == [
        "Waiting for the cluster to have room for 99 CPUs."
    ]


def test_a_head_that_is_lost_is_not_waited_for_for_ever(
    executor: RayExecutor, model: Model, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executor.close()  # the cluster has room for two
    at = "headcount.integrations.ray.executor."
    asked: list[str] = []
    monkeypatch.setattr(f"{at}reachable", lambda address: bool(asked.append(address)))
    monkeypatch.setattr(f"{at}SILENT", 0.5)
    monkeypatch.setattr(f"{at}LOST", 2.0)
    metric = metric_that(waits_once(tmp_path / "process"), "waiting")
    lab = Lab(executor=executor, progress=False)
    try:
        with pytest.raises(HeadcountError, match=r"^The head of the Ray .* has not answered for"):
            evaluate(model, task, single_heads(model)[:1], metric=metric, lab=lab)
        assert executor.lost
        assert set(asked) == {executor.head}
        assert reachable(executor.head)
        pool = list(executor.pool)
        executor.close()  # asks nothing of a head that is lost
        assert executor.pool == pool
    finally:
        executor.lost = False
        executor.close()


def test_far_more_workers_than_cores_are_refused() -> None:
    alive = [{"Alive": True, "Resources": {"CPU": 2.0}}, {"Alive": True, "Resources": {}}]
    dead = {"Alive": False, "Resources": {"CPU": 64.0}}
    ray = SimpleNamespace(nodes=lambda: [*alive, dead])
    check_workers(ray, 32)
    with pytest.raises(HeadcountError, match=r"^100,000 workers are too many .* has 2 CPUs: give"):
        check_workers(ray, 100_000)


def test_the_executor_refuses_workers_before_a_model_is_loaded() -> None:
    with pytest.raises(HeadcountError, match="too many"), ray_executor(workers=100_000):
        raise AssertionError("opened")


def test_the_command_joins_by_address(
    executor: RayExecutor, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    capsys.readouterr()
    task = tmp_path / "task.jsonl"
    lines = [
        {"id": e.id, "prompt": e.prompt, "target": e.target, "content": e.content}
        for e in toy_task(24).examples
    ]
    task.write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ["ablate", "--model", str(folder), "--task", str(task), "--heads", "0.1", "1.2"]
    words += ["--metric", "logprob", "--json", "--no-store", "--device", "cpu"]

    executor.close()  # the cluster has room for two
    address = ray.get_runtime_context().gcs_address
    done = subprocess.run(
        [sys.executable, "-m", "headcount.cli", *words, "--ray", address, "--workers", "1"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    # What the dismissed workers held may take a moment to be free again, and one is told so.
    said = [line for line in done.stderr.splitlines() if not line.startswith("Waiting for the")]
    assert (done.returncode, said) == (0, [])
    assert main(words) == 0
    assert done.stdout == capsys.readouterr().out
