"""Toggling: the arithmetic of Δ(k), on a model of which we know what every head does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import Plant, plant
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Lab, Store, Task, evaluate, wrap
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import FitSettings, GateFit
from headcount.rankings.causal_gates.result import CausalGates
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.gates import Cell
from headcount.studies.head_roles.toggling import (
    RANDOM,
    SERIES,
    Changes,
    ToggleRequest,
    random_order,
)

COUNTS = (0, 1, 2, 5)
BASES: tuple[Base, ...] = ("soft", "plain")


@cache
def planted() -> Plant:
    return plant(["0.1", "1.0"], ["1.2"], layers=2, heads=4, n=40)


def cell(model: Model, task: Task) -> Cell:
    return Cell(model, model.name, task, task.name, task.name)


def made_gates() -> CausalGates:
    """Soft gates of two seeds that know the roles and order heads differently."""
    its = planted()
    rng = np.random.default_rng(0)
    plus, minus = [], []
    for _ in range(2):
        noise = rng.uniform(0, 0.1, its.model.layout.total)
        interfering = np.array([its.roles[head] == "interfering" for head in its.model.layout])
        needed = np.array([its.roles[head] == "needed" for head in its.model.layout])
        plus.append(np.where(interfering, 0.1, 0.9) + noise * np.where(interfering, 1, 0.9))
        minus.append(np.where(needed, 0.9, 0.05) + noise)
    return CausalGates(its.model.layout, np.array(plus), np.array(minus))


def toggle(base: Base = "soft", store: Store | None = None) -> Changes:
    its = planted()
    return ToggleRequest(cell(its.model, its.task), made_gates(), COUNTS, base).result(Lab(store))


@pytest.mark.parametrize("base", BASES)
def test_a_change_is_ablated_minus_retained_one_by_one(base: Base) -> None:
    """Against a plain loop over roles, counts and seeds."""
    its, gates, toggled = planted(), made_gates(), toggle(base)
    scores = {
        "facilitation": gates.minus,
        "interference": 1 - gates.plus,
        "irrelevance": gates.plus * (1 - gates.minus),
    }
    for role in SERIES:
        for count in COUNTS:
            for seed in range(2):
                if role == RANDOM:
                    first = list(random_order(seed, 8)[:count])
                else:
                    first = sorted(range(8), key=lambda head: -scores[role][seed][head])[:count]
                whole = gates.plus[seed] if base == "soft" else np.ones(8)
                ablated, retained = whole.copy(), whole.copy()
                ablated[first], retained[first] = 0, 1
                values = evaluate(its.model, its.task, [ablated, retained], metric="logprob").values
                np.testing.assert_allclose(
                    toggled[role, count][seed], values[0] - values[1], atol=2e-5
                )
    assert toggled["facilitation", 0].shape == (2, len(its.task.split("test")))


def test_needed_heads_fall_interfering_ones_rise_and_others_do_nothing() -> None:
    toggled = toggle()
    assert toggled["facilitation", 2].mean() < -1
    assert toggled["interference", 1].mean() > 0.1
    assert np.abs(toggled["irrelevance", 5]).max() < 1e-4
    assert all(not toggled[series, 0].any() for series in SERIES)


def test_random_orders_know_nothing_of_roles() -> None:
    """Each seed has its own order of all heads; on average they lose less than facilitation."""
    orders = [random_order(seed, 8).tolist() for seed in range(20)]
    assert all(sorted(order) == list(range(8)) for order in orders)
    assert len({tuple(order) for order in orders}) == 20
    places = np.array([order.index(1) for order in orders])
    assert 2 < places.mean() < 5  # no head has a place of its own
    toggled = toggle()
    assert toggled[RANDOM, 2].shape == toggled["facilitation", 2].shape
    assert toggled[RANDOM, 2].mean() > toggled["facilitation", 2].mean()


def test_targets_of_several_tokens_are_summed() -> None:
    model, task = wrap(tiny_model("llama"), toy_tokenizer()), toy_task(24, targets=(3,))
    rng = np.random.default_rng(1)
    shape = (1, model.layout.total)
    gates = CausalGates(model.layout, rng.uniform(size=shape), rng.uniform(size=shape))
    toggled = ToggleRequest(cell(model, task), gates, (2,)).result(Lab())
    first = np.argsort(-gates.minus[0])[:2]
    pair = np.repeat(gates.plus, 2, axis=0)
    pair[0, first], pair[1, first] = 0, 1
    means = evaluate(model, task, pair, metric="logprob_per_token").values
    expected = 3 * (means[0] - means[1])
    np.testing.assert_allclose(toggled["facilitation", 2][0], expected, atol=1e-5)


# What is counted


def wide() -> GateFit:
    """A fit on a model of many heads, of which no two seeds and roles choose the same."""
    sizes: dict[str, Any] = {"num_hidden_layers": 4, "num_attention_heads": 8}
    model = wrap(tiny_model("llama", num_key_value_heads=8, **sizes), toy_tokenizer())
    return GateFit(model, toy_task(40), FitSettings(updates=3, batch=8, seeds=3))


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("base", BASES)
def test_what_is_counted_is_what_is_measured(base: Base, fitted: bool, tmp_path: Path) -> None:
    fit = wide()
    gates = fit.result(Lab()) if fitted else fit
    request = ToggleRequest(cell(fit.model, fit.task), gates, (0, 5, 9, 32), base)
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store)
        ahead = lab.cost([request, request])
        assert store.summary() == []
        request.result(lab)
        measured = lab.measured["value"]
        assert measured <= ahead.count("value") <= (1 if fitted else 1.05) * measured
        sets = 4 * 3 * 2 * (2 if base == "soft" else 1) + (3 + 2 if base == "soft" else 2)
        assert ahead.count("value") == sets * len(fit.task.split("test"))
        again = lab.cost([request])
        assert (again.tokens, again.known) == (0, measured)
        request.result(lab)
        assert lab.measured["value"] == measured


def test_both_curves_share_the_fit_and_little_else(tmp_path: Path) -> None:
    fit = wide()
    both = [ToggleRequest(cell(fit.model, fit.task), fit, (0, 5, 9), base) for base in BASES]
    apart = [Lab().cost([request]) for request in both]
    together = Lab().cost(both)
    assert together.count("value") == sum(cost.count("value") for cost in apart)
    assert together.tokens == sum(cost.tokens for cost in apart) - Lab().cost([fit]).tokens


def test_the_same_head_set_is_measured_once(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite") as store:
        first = toggle(store=store)
        lab, its = Lab(store), planted()
        again = ToggleRequest(cell(its.model, its.task), made_gates(), COUNTS).result(lab)
    assert lab.measured["value"] == 0
    for key, values in first.items():
        np.testing.assert_array_equal(again[key], values)
