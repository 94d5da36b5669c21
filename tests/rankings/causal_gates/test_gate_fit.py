"""Fits of causal gates: planted roles, rows that do not know of each other, and bad input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import plant
from rankings.causal_gates.gate_cases import PLANTS, QUICK, ROLE, built, spread
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, wrap
from headcount.rankings.causal_gates.fit import (
    RoleSettings,
    facilitation,
    fit_gates,
    interference,
    irrelevance,
)
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.result import ROLES
from headcount.rankings.causal_gates.schedule import Stage, batch_order, first_logits, make_schedule
from headcount.rankings.causal_gates.training import State, train
from headcount.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("name", PLANTS)
def test_the_role_of_every_planted_head_is_found(name: str) -> None:
    planted = plant(**PLANTS[name], n=64, seed=len(name))
    gates = fit_gates(planted.model, planted.task, **QUICK)
    truth = [ROLE[planted.roles[head]] for head in planted.model.layout]
    for seed in (0, 1, None):
        assert gates.labels(seed).tolist() == truth
    for role in ROLES:
        has = np.array([its == role for its in truth])
        assert (gates.has_role(role) == has).all()
        assert (gates.has_role_on_average(role) == has).all()


def test_the_released_schedule_finds_them_too() -> None:
    planted = spread()
    gates = fit_gates(planted.model, planted.task, variant="released", **QUICK)
    truth = [ROLE[planted.roles[head]] for head in planted.model.layout]
    assert gates.labels().tolist() == truth
    assert gates.parameters["variant"] == "released"


def test_the_rankings_are_the_scores_of_one_fit(store: Store) -> None:
    planted = spread()
    settings = RoleSettings(QUICK["updates"], QUICK["batch"], QUICK["seeds"])
    found = {
        ranking.__name__: ranking(planted.model, planted.task, settings, lab=Lab(store))
        for ranking in (facilitation, irrelevance, interference)
    }
    assert set(found) == set(ROLES)
    best = {role: set(scores.top(2)) for role, scores in found.items()}
    assert best["facilitation"] <= set(planted.heads("needed"))
    assert best["interference"] == set(planted.heads("interfering"))
    assert best["irrelevance"] <= set(planted.heads("irrelevant"))
    for scores in found.values():
        assert scores.samples is not None
        assert scores.samples.shape == (2, planted.model.layout.total)
        np.testing.assert_allclose(scores.values, scores.samples.mean(0))


def test_a_seed_is_the_same_fit_alone_or_among_others() -> None:
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 12, "batch": 8, "tokens": 300}
    few = fit_gates(model, task, seeds=1, **settings)
    many = fit_gates(model, task, seeds=4, **settings)
    np.testing.assert_allclose(few.plus[0], many.plus[0], atol=1e-4)
    np.testing.assert_allclose(few.minus[0], many.minus[0], atol=1e-4)
    assert np.abs(many.plus[0] - many.plus[1]).max() > 0.1  # seeds differ


def test_both_signs_start_from_the_free_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[np.ndarray, np.ndarray]] = []
    ended: list[np.ndarray] = []

    def noting(state: State, stage: Stage, slope: Any, strength: np.ndarray, **rest: Any) -> None:
        begun.append((state.logits.numpy().copy(), strength))
        assert state.update == 0
        assert not state.mean.any()  # a fresh optimiser
        train(state, stage, slope, strength, **rest)
        ended.append(state.logits.numpy().copy())

    monkeypatch.setattr("headcount.rankings.causal_gates.training.train", noting)
    fit_gates(built(), toy_task(40), updates=3, batch=4, seeds=2)
    (first, free), (second, pushed) = begun
    np.testing.assert_array_equal(first, [first_logits(seed, first.shape[1]) for seed in (0, 1)])
    assert free.tolist() == [0, 0]
    np.testing.assert_array_equal(second, np.concatenate([ended[0], ended[0]]))
    assert pushed.tolist() == [0.1, 0.1, -0.1, -0.1]


def test_orders_show_every_example_before_any_comes_again() -> None:
    order = batch_order(3, 0, examples=10, batch=4, updates=5)
    assert sorted(order.ravel()[:10]) == list(range(10))
    assert sorted(order.ravel()[10:]) == list(range(10))
    np.testing.assert_array_equal(order, batch_order(3, 0, 10, 4, 9)[:5])
    assert (order != batch_order(4, 0, 10, 4, 5)).any()
    assert (order != batch_order(3, 1, 10, 4, 5)).any()
    assert np.abs(first_logits(0, 5000)).max() <= 4  # where the clamp would hold a head for good


def test_a_fit_leaves_the_model_and_the_worlds_dice_alone() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    before = torch.get_rng_state()
    fit_gates(model, toy_task(40), updates=2, batch=4, seeds=1)
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.requires_grad and p.grad is None for p in model.module.parameters())
    assert not any(m._forward_pre_hooks or "forward" in vars(m) for m in model.module.modules())


def test_the_published_schedule_is_the_default() -> None:
    schedule = make_schedule("published", 500, 64)
    assert (schedule.free.lr, schedule.free.lr_end) == (0.1, 0.01)
    assert (schedule.pushed.lr, schedule.pushed.lr_end) == (0.5, 0.1)
    assert (schedule.free.clip, schedule.push) == (None, 0.1)
    released = make_schedule("released", 500, 64)
    assert {released.free.lr, released.free.lr_end, released.pushed.lr} == {1.0}
    assert released.pushed.clip == 1.0


def test_gates_that_diverge_are_refused() -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer(), name="broken")
    with torch.no_grad():
        module.model.embed_tokens.weight[7] = torch.nan  # of a word that the task has
    with pytest.raises(HeadcountError, match=r"of broken on \"toy-0\" diverged.*NaN.*float32"):
        fit_gates(model, toy_task(40), updates=2, batch=4, seeds=1)


def test_too_few_examples_are_refused_and_few_are_noted() -> None:
    model = built()
    with pytest.raises(HeadcountError, match=r'"toy-0" has \d examples?, and .* at least 8'):
        fit_gates(model, toy_task(6), updates=1, seeds=1)
    gates = fit_gates(model, toy_task(40), updates=1, batch=64, seeds=1)
    examples = len(toy_task(40).split("ranking"))
    assert gates.parameters["batch"] == gates.parameters["examples"] == examples
    assert "every update saw all of them" in gates.parameters["note"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"variant": "publishd"}, 'Did you mean "published"'),
        ({"updates": 0}, "takes updates from 1"),
        ({"updates": 10**8}, "to 100,000, not 100,000,000"),
        ({"batch": 0}, "takes batch from 1"),
        ({"seeds": 0}, "takes seeds from 1"),
    ],
)
def test_settings_that_make_no_fit_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadcountError, match=said):
        fit_gates(built(), toy_task(40), **settings)


def test_half_precision_works_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wrap(tiny_model("llama").to(torch.bfloat16), toy_tokenizer(), name="half")
    settings: dict[str, Any] = {"updates": 2, "batch": 4, "seeds": 1}
    gates = fit_gates(model, toy_task(40), **settings)
    assert gates.plus.dtype == np.float64
    assert State.at([first_logits(0, 3)], model.device).logits.dtype == torch.float32

    def unable(*_: Any, **__: Any) -> None:
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'")

    monkeypatch.setattr(GatedPasses, "_logprobs", unable)
    with pytest.raises(
        HeadcountError, match=r"half cannot be fitted in bfloat16 on this cpu.*Half"
    ):
        fit_gates(model, toy_task(40), **settings)
