"""Which rankings find the heads of planted circuits in which heads back each other up."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import plant
from planted_circuit import CHAIN, NEGATIVE, PAIR, Circuit, plant_circuit

from headcount import HeadcountError, HeadScores, Lab, curve, rank, ranking
from headcount.curves.keep import KeepRequest
from headcount.engine.measure.cost import Counter
from headcount.heads import Goal
from headcount.metrics import get_metric
from headcount.rankings import RANKINGS, Ranking
from headcount.rankings.causal_gates import budget
from headcount.rankings.causal_gates.fit import FitSettings
from headcount.store import Store

CIRCUITS: dict[str, dict[str, Any]] = {
    "usual": {},
    "pairs alone": {"chain": (), "negative": ("0.0", "3.1"), "seed": 1},
    "deep": {"chain": ("0.0", "1.1", "3.2", "4.0"), "pairs": (("0.1", "4.3"),), "layers": 5},
}
QUICK = {"budget-gates": {"updates": 150}, "shapley": {"pairs": 4}}
QUIET = Lab(store=None, progress=False)


@cache
def planted(name: str = "usual") -> Circuit:
    return plant_circuit(**CIRCUITS[name], n=32)


@cache
def ranked(name: str, goal: Goal, circuit: str = "usual") -> HeadScores:
    given = planted(circuit)
    known = RANKINGS[name].defaults()
    settings: dict[str, Any] = {"metric": "logit_difference", "goal": goal, **QUICK.get(name, {})}
    settings["budgets"] = (given.kept if goal == "keep" else given.masked,)
    settings = {key: value for key, value in settings.items() if key in known}
    return rank(given.model, given.task, name, lab=QUIET, **settings)


def finds(name: str, goal: Goal, circuit: str = "usual") -> bool:
    given, scores = planted(circuit), ranked(name, goal, circuit)
    if goal == "keep":
        return given.right_to_keep(scores.top(given.kept))
    return given.right_to_mask(scores.top(given.masked))


@pytest.mark.parametrize("circuit", CIRCUITS)
@pytest.mark.parametrize("name", ["greedy", "budget-gates"])
def test_joint_rankings_find_the_heads_to_keep_and_the_heads_to_mask(
    name: str, circuit: str
) -> None:
    assert finds(name, "keep", circuit)
    assert finds(name, "mask", circuit)


# The methods that do not, and how often a head that is right to mask comes before another one.
@pytest.mark.parametrize(
    ("name", "keeps", "masks", "least", "most"),
    [
        ("ablation", False, False, 0.5, 0.6),  # the chain alone: it cannot see a pair
        ("attribution", False, False, 0.5, 0.6),
        ("denoising", False, False, 0.85, 0.95),  # the pairs alone: it cannot see the chain
        ("integrated-gradients", False, True, 0.97, 1),  # all of them, both of each pair
        ("shapley", False, False, 0.93, 1),
        ("iterative", False, True, 0.99, 1),  # both of a pair leave in one block
        ("ensemble", False, False, 0.85, 0.99),
        ("random", False, False, 0, 0.9),
    ],
)
def test_rankings_of_single_heads_fail_where_heads_back_each_other_up(
    name: str, keeps: bool, masks: bool, least: float, most: float
) -> None:
    assert (finds(name, "keep"), finds(name, "mask")) == (keeps, masks)
    found = planted().truth.found_by(ranked(name, "mask"), "mask")
    assert found["exact"] == masks
    assert least <= found["AUROC"] <= most


def test_small_blocks_do_not_help_where_one_head_alone_writes_more_than_is_read() -> None:
    """Its derivative is zero even when its backup has left."""
    circuit = planted()
    how: dict[str, Any] = {"metric": "logit_difference", "share": 0.0, "lab": QUIET}
    scores = rank(circuit.model, circuit.task, "iterative", **how)
    assert not circuit.right_to_keep(scores.top(circuit.kept))
    assert {*scores.top(len(circuit.chain))} == {*circuit.chain}


def test_restoring_a_head_and_joining_in_random_orders_have_known_effects() -> None:
    circuit = planted()
    layout, alone = circuit.model.layout, ranked("denoising", "keep").values
    for head, effect in zip(layout, alone, strict=True):
        assert effect == pytest.approx(circuit.effect([head]), abs=2e-3)
    shares, ends = ranked("shapley", "keep"), ranked("shapley", "keep").intervals()
    assert shares.values.sum() == pytest.approx(circuit.effect(layout), abs=5e-3)
    expected = dict.fromkeys(layout, 0.0) | dict.fromkeys(circuit.chain, CHAIN / 3)
    expected |= {head: PAIR / 2 for pair in circuit.pairs for head in pair}
    expected |= dict.fromkeys(circuit.negative, -NEGATIVE)
    truth = np.array([expected[head] for head in layout])
    assert (np.abs(shares.values - truth) < 1.3).all()
    assert (ends[:, 0] - 1e-3 <= truth).mean() > 0.8
    # Pairs of reversed orders: one of two backups always comes first, so each has half of the rest.
    both = [sum(shares.values[layout.number(head)] for head in pair) for pair in circuit.pairs]
    assert both == pytest.approx([PAIR, PAIR], abs=5e-3)


def test_every_ranking_says_what_it_ranks_for() -> None:
    said = {entry.key: entry.goal or entry.defaults().get("goal") for entry in RANKINGS.values()}
    assert set(said.values()) == {"keep", "mask", "both", "neither"}
    for name, goal in [("ablation", "mask"), ("denoising", "keep"), ("shapley", "both")]:
        assert ranked(name, "keep").goal == goal == said[name]
    for name in ("greedy", "iterative", "ensemble", "budget-gates"):
        for goal in ("keep", "mask"):
            assert ranked(name, goal).goal == goal


def test_the_cost_that_is_stated_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    circuit = plant_circuit(n=20, seed=3)
    for name in ("denoising", "greedy", "shapley", "iterative", "ensemble", "budget-gates"):
        asked = Ranking.of(circuit.model, circuit.task, name, **QUICK.get(name, {}))
        cost = Lab(store=None).cost([asked])
        lab = Lab(store=None, progress=False)
        asked.result(lab)
        bound = cost.count("value")
        assert lab.measured["value"] <= bound
        assert bound <= 2.5 * lab.measured["value"] + 40
        assert cost.tokens > 0
        derived = {item.kind for item in cost.items}
        gradients = name in ("iterative", "ensemble", "budget-gates")
        assert ("gradients" in derived) == gradients


@pytest.mark.parametrize("name", ["greedy", "iterative", "shapley", "budget-gates"])
def test_an_interrupted_ranking_goes_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    circuit = plant_circuit(n=20, seed=4)
    settings: dict[str, Any] = {"budget-gates": {"updates": 20}, "shapley": {"pairs": 2}}
    request = Ranking.of(circuit.model, circuit.task, name, **settings.get(name, {}))
    whole = request.result(QUIET)
    with Store(tmp_path / "s.sqlite") as store:
        lab, calls = Lab(store, progress=False), 0
        usual = Lab.run

        def failing(self: Lab, *args: Any, **how: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == 2:
                raise KeyboardInterrupt
            usual(self, *args, **how)

        with monkeypatch.context() as patch:
            patch.setattr(Lab, "run", failing)
            with pytest.raises(KeyboardInterrupt):
                request.result(lab)
        before = Lab(store).cost([request])
        again = request.result(lab)
        np.testing.assert_array_equal(again.values, whole.values)
        assert before.tokens < Lab(store=None).cost([request]).tokens or name == "iterative"
        counter = Counter(store)
        request.count(counter)
        assert counter.cost.tokens == 0
        assert request.result(Lab(store)).to_json() == again.to_json()


def test_a_set_for_each_budget_is_kept_read_and_used(tmp_path: Path) -> None:
    circuit = planted()
    how: dict[str, Any] = {"metric": "logit_difference", "budgets": (1, 5, 16), "updates": 60}
    scores = rank(circuit.model, circuit.task, "budget-gates", lab=QUIET, **how)
    assert scores.sets is not None
    assert scores.sets.sum(1).tolist() == [1, 5]  # all 16 heads need no fit
    for count in range(17):
        assert len({*scores.top(count)}) == count
    assert {*scores.top(5)} < {*scores.top(7)}
    scores.save(tmp_path / "scores.json")
    again = HeadScores.load(tmp_path / "scores.json")
    np.testing.assert_array_equal(again.sets, scores.sets)
    assert again.goal == "keep"


def test_gates_that_do_not_converge_are_reported_and_the_best_set_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(budget, "COLD", 1.0)  # the gates stay half open
    circuit = planted()
    how: dict[str, Any] = {"metric": "logit_difference", "budgets": (7,), "updates": 5}
    scores = rank(circuit.model, circuit.task, "budget-gates", lab=QUIET, **how)
    assert scores.parameters["not_converged"] == [7]
    assert "did not converge at a budget of 7: the best head set" in scores.parameters["note"]
    start = rank(circuit.model, circuit.task, "attribution", metric="logit_difference", lab=QUIET)
    assert circuit.effect(scores.top(7)) >= circuit.effect(start.top(7))


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("budget-gates", {"budgets": (3, 17)}, "Cannot choose 17 heads: this model has 16"),
        ("budget-gates", {"budgets": (0, 3)}, "Budgets are numbers of heads from 1 on"),
        ("budget-gates", {"budgets": "many"}, "Counts are a list of numbers"),
        ("budget-gates", {"start": "budget-gates"}, "start from another ranking"),
        ("budget-gates", {"start": "atribution"}, 'Did you mean "attribution"'),
        ("budget-gates", {"updates": 0}, "takes updates from 1"),
        ("budget-gates", {"metric": "accuracy"}, "no derivative"),
        ("greedy", {"goal": "kept"}, 'the goal "keep" or "mask", not "kept"'),
        ("greedy", {"share": 1.0}, "from 0 .one head. to below 1, not 1"),
        ("greedy", {"ablation": "zeros"}, 'no ablation "zeros"'),
        ("iterative", {"metric": "accuracy"}, "no derivative"),
        ("shapley", {"pairs": 0}, "at least 1 pair"),
        ("ensemble", {"rankings": "ablation"}, "two or more other rankings"),
        ("ensemble", {"rankings": "ablation+ensemble"}, "two or more other rankings"),
        ("ensemble", {"rankings": "ablation+denoise"}, 'no ranking "denoise"'),
    ],
)
def test_settings_of_no_use_are_refused(name: str, settings: dict[str, Any], said: str) -> None:
    circuit = planted()
    with pytest.raises(HeadcountError, match=said):
        rank(circuit.model, circuit.task, name, lab=QUIET, **settings)


@pytest.mark.parametrize("name", ["denoising", "greedy", "iterative", "shapley", "budget-gates"])
def test_tasks_without_corrupted_prompts_are_refused_before_anything_runs(name: str) -> None:
    given = plant(needed=["0.1"], n=24)
    examples = [replace(example, corrupted=None) for example in given.task.examples]
    bare = replace(given.task, examples=tuple(examples))
    asked = Ranking.of(given.model, bare, name, ablation="corrupted")
    for carry_out in (lambda: Lab(store=None).cost([asked]), lambda: asked.result(QUIET)):
        with pytest.raises(HeadcountError, match="corrupted prompt"):
            carry_out()


def test_curves_and_heads_kept_use_the_set_that_was_made_for_each_count() -> None:
    circuit = planted()
    made = rank(circuit.model, circuit.task, "attribution", lab=QUIET)
    sets = np.zeros((2, 16), dtype=bool)
    sets[0, 3], sets[1, [7, 9]] = True, True
    scores = replace(made, sets=sets)
    drawn = curve(circuit.model, circuit.task, scores, counts=[1, 2], series=["top"], lab=QUIET)
    table = drawn.values.head_sets
    gates = {count: table.gates[table.rows["top", count][0]] for count in (1, 2)}
    assert [np.flatnonzero(g == 0).tolist() for g in gates.values()] == [[3], [7, 9]]
    asked = Ranking.of(circuit.model, circuit.task, "attribution")
    request = KeepRequest(
        circuit.model, circuit.task, {"own": asked}, get_metric("logprob"), [1, 2]
    )
    entries = {e.label: e.gates for e in request.entries("mean", {"own": scores})}
    assert [np.flatnonzero(entries["own", k]).tolist() for k in (1, 2)] == [[3], [7, 9]]


def test_a_ranking_of_ones_own_says_its_goal_or_is_refused() -> None:
    with pytest.raises(HeadcountError, match='no goal of a ranking "kept"'):
        ranking("own-one", "Own", goal="kept")


def test_a_fit_with_budgets_can_be_sent_to_workers() -> None:
    circuit = planted()
    start = rank(circuit.model, circuit.task, "attribution", lab=QUIET)
    how: dict[str, Any] = {"goal": "mask", "metric": "logprob", "ablation": "mean", "budgets": [2]}
    fit = budget.BudgetFit(
        circuit.model, circuit.task, FitSettings(updates=2, batch=8, seeds=1), start=start, **how
    )
    job = fit.job(fit.progress(None))
    told: list[Any] = []
    pickle.loads(pickle.dumps(job)).ready(circuit.model)([0], told.append)
    assert told[-1][0] == "gates-partial"
    assert {event[1][0].stage for event in told} == {"mask 2"}
