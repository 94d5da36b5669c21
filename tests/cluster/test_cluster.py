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
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster.helpers import dies_at, metric_that, ray_processes, save_model, waits_once
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

import headcount
from headcount import HeadcountError, Store, curve, evaluate, load_model, rank, wrap
from headcount.cli import main
from headcount.engine.measure import evaluate as evaluator
from headcount.engine.measure import shares
from headcount.engine.measure.plan import best_plan
from headcount.engine.measure.workers import workers, working
from headcount.engine.write.answers import answers
from headcount.integrations.ray import cluster
from headcount.integrations.ray.crew import Crew
from headcount.integrations.ray.size import Size
from headcount.metrics import Metric
from headcount.models.model import Model
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
def crew() -> Iterator[Crew]:
    """Two warm workers; a test says when they work."""
    with cluster(workers=2, threads=1):
        found = workers()
        assert isinstance(found, Crew)
        with working(None):
            yield found
    assert not ray_processes()


@pytest.fixture(autouse=True)
def _small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "FEWEST", 1)


def single_heads(model: Model) -> np.ndarray:
    total = model.layout.total
    return np.concatenate([np.ones((1, total)), 1 - np.eye(total)])


@pytest.mark.parametrize("stand_in", ["zero", "mean", "corrupted"])
def test_values_are_those_of_one_process_bit_for_bit(
    crew: Crew, model: Model, task: Task, stand_in: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    class Bar:
        def update(self, n: int) -> None:
            counted.append(n)

    settings: dict[str, Any] = {"stand_in": stand_in, "plan": best_plan(model, tokens=60)}
    alone = evaluate(model, task, single_heads(model), **settings, progress=False)
    monkeypatch.setattr(evaluator, "progress_bar", lambda *_, **__: nullcontext(Bar()))
    with working(crew):
        shared = evaluate(model, task, single_heads(model), **settings)
    assert np.array_equal(alone.values, shared.values)
    assert sum(counted) == shared.values.size
    assert len(counted) > 4
    assert len(crew.hands) == 2
    assert len({hand.process for hand in crew.hands} - {os.getpid(), 0}) == 2


def test_texts_rankings_and_curves(crew: Crew, model: Model, task: Task) -> None:
    gates = single_heads(model)[:6]
    texts = answers(model, task, gates, progress=False).texts.tolist()
    ranking = rank(model, task, "ablation", progress=False)
    points = curve(model, task, ranking, counts=[0, 2], seeds=2, progress=False).points
    with working(crew):
        assert answers(model, task, gates, progress=False).texts.tolist() == texts
        shared = rank(model, task, "ablation", progress=False)
        assert np.array_equal(shared.values, ranking.values)
        assert curve(model, task, shared, counts=[0, 2], seeds=2, progress=False).points == points


def test_a_device_map_travels(crew: Crew, folder: Path, task: Task, model: Model) -> None:
    places = {"model.layers.2": "disk", "lm_head": "disk"}
    rest = ("embed_tokens", "rotary_emb", "norm", "layers.0", "layers.1")
    places |= {f"model.{name}": "cpu" for name in rest}
    spread = load_model(folder, device_map=places)
    assert spread.spread
    alone = evaluate(model, task, single_heads(model), progress=False)
    with working(crew):
        shared = evaluate(spread, task, single_heads(model), progress=False)
    assert np.array_equal(alone.values, shared.values)


def test_what_a_worker_refuses_is_one_sentence(crew: Crew, model: Model, task: Task) -> None:
    nothing = Metric("nothing", "nothing", lambda scored: scored.logits[:, 0, 0] * float("nan"))
    with working(crew), pytest.raises(HeadcountError, match="tiny gave logits that are not finite"):
        evaluate(model, task, single_heads(model)[:2], metric=nothing, progress=False)


def test_a_model_in_memory_is_refused(crew: Crew, task: Task) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    with working(crew), pytest.raises(HeadcountError, match="wrapped in memory"):
        evaluate(model, task, single_heads(model)[:1], progress=False)


def test_another_model_file_is_refused(
    crew: Crew, folder: Path, task: Task, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "copy")
    model = load_model(tmp_path / "copy", device="cpu")
    gates = single_heads(model)[:2]
    model.identity  # as a run does that has looked into its store
    save_model(tmp_path / "copy", seed=1)
    with working(crew), pytest.raises(HeadcountError, match="has another model file") as caught:
        evaluate(model, task, gates, progress=False)
    assert str(caught.value).endswith("for copy: give every machine the same model.")
    shutil.rmtree(tmp_path / "copy")
    with working(crew), pytest.raises(HeadcountError, match="cannot load copy"):
        evaluate(model, task, gates, progress=False)


def test_a_worker_that_is_killed_loses_only_its_unit(
    crew: Crew,
    model: Model,
    task: Task,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    plan = best_plan(model, tokens=60)
    alone = evaluate(model, task, single_heads(model), plan=plan, progress=False)
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
    with Store(path) as store, working(crew), caplog.at_level(logging.WARNING):
        shared = evaluate(
            model, task, single_heads(model), metric=metric, plan=plan, store=store, progress=False
        )
        (summary,) = store.summary()
        exported = store.export(tmp_path / "values.csv")
    killer.join(10)
    assert np.array_equal(alone.values, shared.values)
    assert summary.values == exported == shared.values.size  # every measurement once
    (said,) = [record.getMessage() for record in caplog.records]
    assert f"(process {killed[0]}) died; its unit is done again: toy-0, waiting: e" in said
    assert len(crew.hands) == 2
    assert killed[0] not in {hand.process for hand in crew.hands}
    assert "raylet" not in capfd.readouterr().out


def test_a_unit_that_kills_every_worker_is_named(
    crew: Crew, model: Model, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    test = encode(task.part("test"), model.tokenizer)
    monkeypatch.setattr("headcount.integrations.ray.crew.DEATHS", 2)
    metric = metric_that(dies_at(test[3].target[0]), "deadly")
    gates = single_heads(model)[:3]
    plan = best_plan(model, tokens=10)
    with Store(tmp_path / "store.sqlite") as store, working(crew):
        with pytest.raises(HeadcountError, match=r"2 workers died at the same unit \(toy-0, dea"):
            evaluate(model, task, gates, metric=metric, plan=plan, store=store, progress=False)
        kept = sum(summary.values for summary in store.summary())
    assert 0 < kept < gates.shape[0] * len(test)  # what was measured before is kept


def test_other_versions_are_refused(
    crew: Crew, model: Model, task: Task, monkeypatch: pytest.MonkeyPatch
) -> None:
    crew.dismiss()  # the cluster has room for two
    monkeypatch.setattr(headcount, "__version__", "9.9.9")
    monkeypatch.setattr("headcount.integrations.ray.order.MEASUREMENT", 77)
    sentence = r"has headcount 0\.\S+ \(here 9\.9\.9\) and measurement version 1 \(here 77\)"
    with (
        cluster(workers=1, threads=1),  # Ray is there already; these workers are new
        pytest.raises(HeadcountError, match=sentence),
    ):
        evaluate(model, task, single_heads(model)[:2], progress=False)


def test_a_full_cluster_is_not_waited_for_for_ever(
    crew: Crew,
    model: Model,
    task: Task,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    much = Size(workers=1, threads=1, cpus=99, gpus=0)
    monkeypatch.setattr("headcount.integrations.ray.crew.size_for", lambda *_: much)
    monkeypatch.setattr("headcount.integrations.ray.crew.PATIENCE", 3.0)
    monkeypatch.setattr("headcount.integrations.ray.crew.SILENT", 1.0)
    with (
        cluster(workers=1, threads=1),
        pytest.raises(HeadcountError, match="the cluster has no room for 99 CPUs"),
    ):
        evaluate(model, task, single_heads(model), progress=False)
    assert [record.getMessage() for record in caplog.records] == [
        "Waiting for the cluster to have room for 99 CPUs."
    ]


def test_the_command_joins_by_address(
    crew: Crew, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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

    crew.dismiss()  # the cluster has room for two
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
