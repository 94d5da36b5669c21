"""What a fit of causal gates keeps: it goes on where it was, here and in pieces for workers."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rankings.causal_gates.gate_cases import built, interrupted
from toy import toy_task

from headcount import Lab, rank
from headcount.engine.measure.executor import Job, Unit
from headcount.models.model import Model
from headcount.rankings.causal_gates import training as gating_train
from headcount.rankings.causal_gates.fit import FitSettings, GateFit, fit_gates
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.result import ROLES
from headcount.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


class Stop(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("after", [4, 7, 11, 17])
@pytest.mark.parametrize("error", [Stop, MemoryError])
def test_an_interrupted_fit_goes_on_where_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch, after: int, error: type[BaseException]
) -> None:
    """Whether it is asked to stop or dies: then what is lost is less than a checkpoint."""
    monkeypatch.setattr(gating_train, "KEEP", 3)
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 10, "batch": 8, "seeds": 2}
    whole = fit_gates(model, task, **settings)
    with monkeypatch.context() as patch:
        interrupted(patch, after, error)
        with pytest.raises(error):
            fit_gates(model, task, lab=Lab(store), **settings)
    left = 20 - after if error is Stop else 20 - (after - after % 10 % 3)
    with monkeypatch.context() as patch:
        interrupted(patch, left, AssertionError)  # no update more than that
        again = fit_gates(model, task, lab=Lab(store), **settings)
    np.testing.assert_array_equal(again.plus, whole.plus)
    np.testing.assert_array_equal(again.minus, whole.minus)
    with monkeypatch.context() as patch:
        interrupted(patch, 0, AssertionError)  # all is known
        known = fit_gates(model, task, lab=Lab(store), **settings)
    np.testing.assert_array_equal(known.plus, whole.plus)
    assert GateFit(model, task, FitSettings(**settings)).seconds(store) == 0


def test_more_seeds_later_cost_only_themselves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 4, "batch": 8, "lab": Lab(store)}
    few = fit_gates(model, task, seeds=2, **settings)
    rows: list[int] = []
    usual = GatedPasses.gradient

    def counting(self: GatedPasses, logits: torch.Tensor, *args: Any) -> torch.Tensor:
        rows.append(len(logits))
        return usual(self, logits, *args)

    monkeypatch.setattr(GatedPasses, "gradient", counting)
    many = fit_gates(model, task, seeds=3, **settings)
    assert rows == [1] * 4 + [2] * 4
    np.testing.assert_array_equal(many.plus[:2], few.plus)
    other = fit_gates(model, toy_task(40, seed=1), seeds=2, **settings)
    assert (other.plus != few.plus).any()  # of another task


def test_by_name_a_ranking_comes_from_the_store_the_second_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 2, "batch": 8, "seeds": 2}
    first = {role: rank(model, task, role, lab=Lab(store), **settings) for role in ROLES}
    interrupted(monkeypatch, 0, AssertionError)
    for role, scores in first.items():
        again = rank(model, task, role, lab=Lab(store), **settings)
        assert again.to_json() == scores.to_json()
        assert scores.ranking == role
        assert scores.parameters["updates"] == 2


def test_fit_time_is_a_number_of_seconds() -> None:
    model, task = built(), toy_task(40)
    little = GateFit(model, task, FitSettings(updates=10, batch=8, seeds=1)).seconds(None)
    much = GateFit(model, task, FitSettings(updates=1000, batch=8, seeds=10)).seconds(None)
    assert 0 < little < much


# In pieces, for workers


class DeathError(Exception):
    pass


class TwoWorkers:
    """An executor as a cluster's: jobs, units and answers travel as pickles.

    With `deaths`, the first worker at each unit dies after so many answers, and another does it.
    """

    def __init__(self, deaths: int = 0) -> None:
        self.deaths, self.units = deaths, list[Unit]()

    def workers(self, model: Model) -> int:
        return 2

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        self.units += units
        sent = pickle.dumps(job)  # once, before anything is fitted
        for unit in units:
            for last in (self.deaths, 0) if self.deaths else (0,):
                answers = 0

                def emit(answer: Any, unit: Unit = unit, last: int = last) -> None:
                    nonlocal answers
                    answers += 1
                    if answers == last:
                        raise DeathError
                    keep(unit, pickle.loads(pickle.dumps(answer)))

                with suppress(DeathError):
                    pickle.loads(sent).ready(model)(unit.work, emit)


@pytest.mark.parametrize("deaths", [0, 3, 15])
def test_workers_fit_some_seeds_each_and_find_the_same_gates(store: Store, deaths: int) -> None:
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 12, "batch": 8, "seeds": 3}
    whole, workers = fit_gates(model, task, **settings), TwoWorkers(deaths)
    pieces = fit_gates(model, task, lab=Lab(store, workers), **settings)
    assert [unit.work for unit in workers.units] == [[0, 2], [1]]
    assert len({unit.key for unit in workers.units}) == 2
    np.testing.assert_allclose(pieces.plus, whole.plus, atol=1e-4)
    np.testing.assert_allclose(pieces.minus, whole.minus, atol=1e-4)
    assert pieces.parameters == whole.parameters
    known = GateFit(model, task, FitSettings(**settings)).known(store)
    assert known is not None
    np.testing.assert_array_equal(known.plus, pieces.plus)
    # A seed that runs beside the same others is bit for bit the same fit.
    again = fit_gates(model, task, lab=Lab(executor=TwoWorkers()), **settings)
    np.testing.assert_array_equal(again.plus, pieces.plus)


def test_workers_go_on_from_what_is_kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gating_train, "KEEP", 3)
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 10, "batch": 8, "seeds": 2}
    whole = fit_gates(model, task, lab=Lab(executor=TwoWorkers()), **settings)
    with monkeypatch.context() as patch:
        interrupted(patch, 17, Stop)  # in the pushed stage of the first seed
        with pytest.raises(Stop):
            fit_gates(model, task, lab=Lab(store, TwoWorkers()), **settings)
    with monkeypatch.context() as patch:
        interrupted(patch, 3 + 20, AssertionError)  # no update more than that
        rest = fit_gates(model, task, lab=Lab(store, TwoWorkers()), **settings)
    np.testing.assert_array_equal(rest.plus, whole.plus)
    np.testing.assert_array_equal(rest.minus, whole.minus)


def test_what_is_counted_is_what_is_left(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = built(), toy_task(40)
    fit = GateFit(model, task, FitSettings(updates=10, batch=8, seeds=2))
    ahead = Lab(store).cost([fit, fit]).tokens  # the same fit twice counts once
    ran: list[int] = []
    usual = GatedPasses.one_pass

    def counting(self: GatedPasses, logits: Any, laid: Any, some: Any, objective: Any) -> Any:
        ran.append(int(laid.lengths[some.places].sum()))
        return usual(self, logits, laid, some, objective)

    monkeypatch.setattr(GatedPasses, "one_pass", counting)
    with monkeypatch.context() as patch:
        interrupted(patch, 13, Stop)
        with pytest.raises(Stop):
            fit.result(Lab(store))
    assert Lab(store).cost([fit]).tokens == ahead - sum(ran) > 0
    assert fit.known(store) is None
    fit.result(Lab(store))
    assert sum(ran) == ahead
    assert Lab(store).cost([fit]).tokens == 0
