"""Toggling: the arithmetic of Δ(k), on a model of which we know what every head does."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from planted import Plant, plant

from headcount import Store, evaluate
from headcount.engine.measure import evaluate as engine
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.studies.head_roles.toggling import toggle

COUNTS = (0, 1, 2, 5)


@cache
def planted() -> Plant:
    return plant(["0.1", "1.0"], ["1.2"], layers=2, heads=4, n=40)


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


@pytest.mark.parametrize("base", ["soft", "plain"])
def test_a_change_is_ablated_less_retained_one_by_one(base: str) -> None:
    """Against a plain loop over roles, counts and seeds."""
    its, gates = planted(), made_gates()
    found = toggle(its.model, its.task, gates, COUNTS, base=base, progress=False)  # type: ignore[arg-type]
    scores = {
        "facilitation": gates.minus,
        "interference": 1 - gates.plus,
        "irrelevance": gates.plus * (1 - gates.minus),
    }
    for role in ROLES:
        for count in COUNTS:
            for seed in range(2):
                first = sorted(range(8), key=lambda head: -scores[role][seed][head])[:count]
                whole = gates.plus[seed] if base == "soft" else np.ones(8)
                ablated, retained = whole.copy(), whole.copy()
                ablated[first], retained[first] = 0, 1
                values = evaluate(its.model, its.task, [ablated, retained], progress=False).values
                np.testing.assert_allclose(
                    found.changes[role, count][seed], values[0] - values[1], atol=2e-5
                )
    held = its.task.part("test")
    np.testing.assert_array_equal(found.clusters, held.clusters)
    assert found.changes["facilitation", 0].shape == (2, len(held))


def test_needed_heads_fall_interfering_ones_rise_and_others_do_nothing() -> None:
    its = planted()
    found = toggle(its.model, its.task, made_gates(), COUNTS, progress=False)
    assert found.changes["facilitation", 2].mean() < -1
    assert found.changes["interference", 1].mean() > 0.1
    assert np.abs(found.changes["irrelevance", 5]).max() < 1e-4
    assert all(not found.changes[role, 0].any() for role in ROLES)


def test_targets_of_several_tokens_are_summed() -> None:
    from tiny import tiny_model
    from toy import toy_task, toy_tokenizer

    from headcount import wrap

    model, task = wrap(tiny_model("llama"), toy_tokenizer()), toy_task(24, targets=(3,))
    rng = np.random.default_rng(1)
    shape = (1, model.layout.total)
    gates = CausalGates(model.layout, rng.uniform(size=shape), rng.uniform(size=shape))
    found = toggle(model, task, gates, (2,), progress=False)
    first = np.argsort(-gates.minus[0])[:2]
    pair = np.repeat(gates.plus, 2, axis=0)
    pair[0, first], pair[1, first] = 0, 1
    means = evaluate(model, task, pair, metric="logprob_mean", progress=False).values
    expected = 3 * (means[0] - means[1])
    np.testing.assert_allclose(found.changes["facilitation", 2][0], expected, atol=1e-5)


def test_the_same_head_set_is_measured_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    its = planted()
    with Store(tmp_path / "store.sqlite") as store:
        first = toggle(its.model, its.task, made_gates(), COUNTS, store=store, progress=False)
        monkeypatch.setattr(engine, "best_plan", lambda *_: pytest.fail("measured again"))
        again = toggle(its.model, its.task, made_gates(), COUNTS, store=store, progress=False)
    for key, values in first.changes.items():
        np.testing.assert_array_equal(again.changes[key], values)
