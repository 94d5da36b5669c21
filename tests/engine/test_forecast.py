"""Forecasts: the work ahead is counted without doing any, and equals what is then done."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from counting import counting
from engine.test_plans import made_task, model_of, some_gates

from headcount import Store, curve, evaluate, rank
from headcount.engine.measure import rates
from headcount.engine.measure.forecast import Forecast, forecast, foresee
from headcount.engine.write.answers import answers
from headcount.models.model import Model
from headcount.rankings import RANKINGS


@pytest.fixture
def llama() -> Model:
    return model_of("llama")


def foreseen(run: Callable[[Store | None], Any], store: Store | None = None) -> Forecast:
    """A forecast that came to its end."""
    found = foresee(run, store)
    assert found.stopped is None, found.stopped
    assert forecast() is None
    return found


@pytest.mark.parametrize("prefix", [0, 12])
@pytest.mark.parametrize("stand_in", ["zero", "mean", "corrupted"])
@pytest.mark.parametrize("kinds", [["soft", "late", "ones", "last"], ["hard", "hard", "late"]])
def test_tokens_equal_what_is_run(
    llama: Model, kinds: list[str], stand_in: str, prefix: int, tmp_path: Path
) -> None:
    task = made_task([4, 7, 9], [1, 2], prefix=prefix, n=12)
    gates = some_gates(llama, kinds, 0)

    def run(store: Store | None) -> Any:
        return evaluate(llama, task, gates, stand_in=stand_in, store=store, progress=False)

    with Store(tmp_path / "store.sqlite") as store:
        ahead = foreseen(run, store)
        with counting() as ran:
            values = run(store).values
        assert ahead.tokens == sum(ran.values()) > 0
        assert ahead.count("value") == len(np.unique(gates, axis=0)) * values.shape[1]
        again = foreseen(run, store)
    assert (again.tokens, again.known) == (0, ahead.count("value"))
    assert str(again) == f"Nothing is left to measure: {again.known:,} are known already."


def test_nothing_is_measured_or_kept(llama: Model, tmp_path: Path) -> None:
    task, gates = made_task([5], n=8), some_gates(llama, ["hard"], 0)
    with Store(tmp_path / "store.sqlite") as store, counting() as ran:
        foreseen(lambda seen: evaluate(llama, task, gates, store=seen, progress=False), store)
        foreseen(lambda seen: answers(llama, task, gates, store=seen, progress=False), store)
        foreseen(lambda seen: rank(llama, task, "attribution", store=seen, progress=False), store)
        assert store.summary() == []
    assert not ran


def test_what_is_needed_twice_counts_once(llama: Model, tmp_path: Path) -> None:
    task, gates = made_task([5], n=8), some_gates(llama, ["hard", "soft"], 0)

    def twice(store: Store | None) -> None:
        for _ in range(2):
            answers(llama, task, gates, store=store, progress=False)

    with Store(tmp_path / "store.sqlite") as store:
        ahead = foreseen(twice, store)
    tested = len(task.part("test"))
    assert (ahead.count("text"), ahead.known) == (2 * tested, 0)
    assert foreseen(twice).count("text") == 4 * tested  # without a store it is done twice


def test_only_what_the_store_lacks_is_ahead(llama: Model, tmp_path: Path) -> None:
    task, gates = made_task([5], n=8), some_gates(llama, ["hard", "soft", "ones"], 0)
    with Store(tmp_path / "store.sqlite") as store:
        evaluate(llama, task, gates[:2], store=store, progress=False)
        ahead = foreseen(
            lambda seen: evaluate(llama, task, gates, store=seen, progress=False), store
        )
    tested = len(task.part("test"))
    assert (ahead.count("value"), ahead.known) == (tested, 2 * tested)


@pytest.mark.parametrize("method", ["attribution", "integrated-gradients", "patching", "ablation"])
def test_a_curve_is_foreseen_with_its_ranking(llama: Model, method: str, tmp_path: Path) -> None:
    task = made_task([6], n=12)

    def run(store: Store | None) -> Any:
        return curve(
            llama, task, method, counts=[0, 1, 2], seeds=2, store=store, metric="logprob",
            progress=False,
        )  # fmt: skip

    with Store(tmp_path / "store.sqlite") as store:
        ahead = foreseen(run, store)
        with counting() as ran:
            run(store)
        measured = sum(work.tokens for work in ahead.works if work.kind == "passes")
        # Which sets coincide depends on the ranking, which is not known before.
        assert measured == pytest.approx(ran["passes"], rel=0.15)
        assert sum(w.tokens for w in ahead.works if w.kind == "gradients") == ran["gradients"]
        assert foreseen(run, store).tokens == 0


@pytest.mark.parametrize("method", [entry.key for entry in RANKINGS if "probe" not in entry.key])
def test_every_ranking_is_foreseen(llama: Model, method: str) -> None:
    task = made_task([6], n=80)
    few = {"updates": 2, "batch": 4, "seeds": 2} if method in ROLES else {}
    run = lambda seen: rank(llama, task, method, store=seen, progress=False, **few)  # noqa: E731
    assert (foreseen(run).tokens == 0) == (method == "random")


ROLES = ("facilitation", "irrelevance", "interference")


def test_a_model_that_would_run_all_the_same_ends_the_forecast(llama: Model) -> None:
    ids = torch.tensor([[5, 6]])
    found = foresee(lambda _: llama.module(input_ids=ids), None)
    assert found.stopped is not None
    llama.module(input_ids=ids)  # nothing is left behind


def test_an_unfinished_forecast_says_so(llama: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "timed_pass", lambda *_: 0.5)
    task, gates = made_task([5], n=8), some_gates(llama, ["hard"], 0)

    def run(store: Store | None) -> None:
        evaluate(llama, task, gates, store=store, progress=False)
        raise ValueError

    assert str(foresee(run, None)).startswith("At least 4 values, about 40 tokens: about")


def test_rates_of_long_runs_are_remembered(
    llama: Model, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    clock = iter([0.0, 10.0, 0.0, 30.0, 0.0, 1.0])
    monkeypatch.setattr(rates, "timed_pass", lambda *_: 0.5)
    assert rates.seconds_per_token(llama) == 0.5
    assert rates.seconds_per_token(llama, "gradients") == 1.5
    monkeypatch.setattr(rates.time, "perf_counter", lambda: next(clock))
    for expected in (0.1, 0.2, 0.2):  # the last is too short to tell
        with rates.timing(llama, 100):
            pass
        assert rates.seconds_per_token(llama) == pytest.approx(expected)
    (tmp_path / "rates.json").write_text("{broken")
    assert rates.seconds_per_token(llama) == 0.5
