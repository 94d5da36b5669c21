"""Costs: what a description will measure is counted without measuring any of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from counting import counting
from engine.test_plans import made_task, model_of, some_gates

from headcount import Store
from headcount.curves import CurveRequest, CurveSettings
from headcount.engine.measure import rates
from headcount.engine.measure.cost import Cost, Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.sweep import Sweep
from headcount.engine.write.writing import Writing
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.tasks import Task

ROLES = ("facilitation", "irrelevance", "interference")


@pytest.fixture
def llama() -> Model:
    return model_of("llama")


def sweep_of(model: Model, task: Task, gates: np.ndarray, ablation: str = "zero") -> Sweep:
    table = HeadSets.of(gates, model.layout)
    return Sweep(model, task, get_metric("logprob"), table, ablation=ablation)


def cost_of(sweep: Sweep, store: Store | None = None) -> Cost:
    counter = Counter(store)
    counter.sweep(sweep)
    return counter.cost


@pytest.mark.parametrize("prefix", [0, 12])
@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
@pytest.mark.parametrize("kinds", [["soft", "late", "ones", "last"], ["hard", "hard", "late"]])
def test_tokens_are_those_that_run_and_at_most_a_pass_of_the_whole_model_more(
    llama: Model, kinds: list[str], ablation: str, prefix: int, tmp_path: Path
) -> None:
    task = made_task([4, 7, 9], [1, 2], prefix=prefix, n=12)
    sweep = sweep_of(llama, task, some_gates(llama, kinds, 0), ablation)
    with Store(tmp_path / "store.sqlite") as store:
        ahead, lab = cost_of(sweep, store), Lab(store)
        with counting() as ran:
            values = lab.measure(sweep)
        whole = sum(example.length for example in sweep.examples)  # left out where it saves nothing
        assert 0 < ahead.tokens - whole <= sum(ran.values()) <= ahead.tokens
        assert ahead.count("value") == values.table.size == lab.measured["value"]
        again = cost_of(sweep, store)
    assert (again.tokens, again.known) == (0, ahead.count("value"))
    assert str(again) == f"Nothing is left to measure: {again.known:,} are known already."


def test_nothing_is_measured_or_kept(llama: Model, tmp_path: Path) -> None:
    task, gates = made_task([5], n=8), some_gates(llama, ["hard"], 0)
    with Store(tmp_path / "store.sqlite") as store, counting() as ran:
        counter = Counter(store)
        counter.sweep(sweep_of(llama, task, gates))
        counter.writing(Writing(llama, task, HeadSets.of(gates, llama.layout)))
        Ranking.of(llama, task, "attribution").count(counter)
        assert counter.cost.tokens > 0
        assert store.summary() == []
    assert not ran


@pytest.mark.parametrize("stored", [False, True])
def test_what_is_needed_twice_counts_once(llama: Model, stored: bool, tmp_path: Path) -> None:
    task, gates = made_task([5], n=8), some_gates(llama, ["hard", "soft"], 0)
    writing = Writing(llama, task, HeadSets.of(gates, llama.layout))
    with Store(tmp_path / "store.sqlite") as store:
        counter = Counter(store if stored else None)
        counter.writing(writing)
        counter.writing(writing)
    assert (counter.cost.count("text"), counter.cost.known) == (2 * len(task.split("test")), 0)


def test_pending_head_sets_count_once_by_their_key(llama: Model) -> None:
    task, tested = made_task([5], n=8), len(made_task([5], n=8).split("test"))
    sweep = sweep_of(llama, task, np.ones((1, llama.layout.total)))
    counter = Counter()
    entries = [
        HeadSetEntry(0, Pending("a")),
        HeadSetEntry(1, Pending("a")),
        HeadSetEntry(2, Pending("b"), 0),
    ]
    counter.sweep(sweep, [*entries, HeadSetEntry(3, np.ones(llama.layout.total))])
    assert counter.cost.count("value") == 2 * tested + 1
    counter.sweep(sweep, [HeadSetEntry(0, Pending("b"))])
    assert counter.cost.count("value") == 3 * tested


def test_only_what_the_store_lacks_is_ahead(llama: Model, tmp_path: Path) -> None:
    task, gates = made_task([5], n=8), some_gates(llama, ["hard", "soft", "ones"], 0)
    with Store(tmp_path / "store.sqlite") as store:
        Lab(store).measure(sweep_of(llama, task, gates[:2]))
        ahead = cost_of(sweep_of(llama, task, gates), store)
    tested = len(task.split("test"))
    assert (ahead.count("value"), ahead.known) == (tested, 2 * tested)


@pytest.mark.parametrize("ranking", ["attribution", "integrated-gradients", "patching", "ablation"])
def test_a_curve_is_counted_with_its_ranking(llama: Model, ranking: str, tmp_path: Path) -> None:
    task, chosen = made_task([6], n=12), CurveSettings(counts=[0, 1, 2], seeds=2)
    ranking = Ranking.of(llama, task, ranking)
    request = CurveRequest(llama, task, ranking, get_metric("logprob"), chosen)
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store)
        ahead = lab.cost([request])
        with counting() as ran:
            request.result(lab)
        tokens = {
            kind: sum(item.tokens for item in ahead.items if item.kind == kind)
            for kind in ("passes", "gradients")
        }
        # Which sets coincide depends on the ranking, which is not known before.
        assert tokens["passes"] >= ran["passes"]
        assert tokens["passes"] == pytest.approx(ran["passes"], rel=0.15)
        assert tokens["gradients"] == ran["gradients"]
        assert ahead.count("value") >= lab.measured["value"]
        assert lab.cost([request]).tokens == 0


# The toy task is no cognitive function, its prompts do not hold their answers, and contrastive
# gates need a task to forget.
UNSUITED = ("probe", "attention-retrieval", "retrieval-score", "contrast")


@pytest.mark.parametrize("ranking", [name for name in RANKINGS if name not in UNSUITED])
def test_every_ranking_is_counted(llama: Model, ranking: str) -> None:
    task = made_task([6], n=80)
    few = {"updates": 2, "batch": 4, "seeds": 2} if ranking in ROLES else {}
    ahead = Lab().cost([Ranking.of(llama, task, ranking, **few)])
    assert (ahead.tokens == 0) == (ranking == "random")


def test_a_cost_in_words(llama: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    monkeypatch.setattr(rates, "timed_pass", lambda *_: 0.5)
    task, gates = made_task([5], n=8), some_gates(llama, ["hard"], 0)
    text = str(cost_of(sweep_of(llama, task, gates)))
    assert text.startswith("Ahead: 4 values, about 40 tokens: about 20 seconds")


def test_rates_of_long_runs_are_remembered(
    llama: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    clock = iter([0.0, 10.0, 0.0, 30.0, 0.0, 1.0, 0.0, 90.0])
    used = iter([0.0, 10.0, 0.0, 30.0, 0.0, 1.0, 0.0, 9.0])
    threads = torch.get_num_threads()
    monkeypatch.setattr(rates, "timed_pass", lambda *_: 0.5)
    assert rates.seconds_per_token(llama) == 0.5
    assert rates.seconds_per_token(llama, "gradients") == 1.5
    clocks = SimpleNamespace(
        perf_counter=lambda: next(clock), process_time=lambda: threads * next(used)
    )
    monkeypatch.setattr(rates, "time", clocks)
    # The third is too short to tell, and the fourth waited for other work most of the time.
    for expected in (0.1, 0.2, 0.2, 0.2):
        with rates.timing(llama, 100):
            pass
        assert rates.seconds_per_token(llama) == pytest.approx(expected)
    (tmp_path / "rates.json").write_text("{broken")
    assert rates.seconds_per_token(llama) == 0.5


def test_a_cache_folder_that_cannot_be_written_ends_no_run(
    llama: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(*_: object) -> None:
        raise OSError("No space left on device")

    (tmp_path / "file").touch()
    clock, used = iter([0.0, 10.0] * 2), iter([0.0, 10.0 * torch.get_num_threads()] * 2)
    monkeypatch.setattr(rates, "timed_pass", lambda *_: 0.5)
    clocks = SimpleNamespace(perf_counter=lambda: next(clock), process_time=lambda: next(used))
    monkeypatch.setattr(rates, "time", clocks)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "file" / "folder"))  # cannot be made
    with rates.timing(llama, 100):
        pass
    assert rates.fastest_tokens(llama) == 128
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    monkeypatch.setattr("headcount.system.remembered.write_json", full)
    with rates.timing(llama, 100):
        pass
    assert rates.fastest_tokens(llama) == 128
