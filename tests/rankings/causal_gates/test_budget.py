"""Gates with a budget: sums, gradients and sets."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from planted_circuit import plant_circuit
from rankings.causal_gates.gate_cases import built
from toy import WORDS, toy_task

from headcount import HeadcountError, HeadLayout, HeadScores, Lab, Task, rank
from headcount.engine.measure.forward import frozen, measuring
from headcount.rankings import Ranking
from headcount.rankings.attribution import slopes_at
from headcount.rankings.causal_gates.budget import (
    BudgetSchedule,
    opened,
    usual_budgets,
    within_budget,
)
from headcount.rankings.causal_gates.metric_passes import MetricPasses
from headcount.rankings.causal_gates.passes import GatedPasses, load_prompts
from headcount.rankings.causal_gates.schedule import Row, Stage
from headcount.rankings.causal_gates.training import Gradient, fidelity

QUIET = Lab(store=None, progress=False)


@given(st.integers(2, 40), st.integers(0, 99), st.floats(0.05, 1))
def test_gates_sum_to_their_budget_and_keep_their_order(heads: int, seed: int, hot: float) -> None:
    logits = 3 * torch.randn(3, heads, generator=torch.Generator().manual_seed(seed)).double()
    wanted = [1.0, heads / 2, heads - 1.0]
    x = within_budget(logits, wanted, hot)
    np.testing.assert_allclose(x.sigmoid().sum(1).numpy(), wanted, atol=1e-6)
    assert torch.equal(x.argsort(1), logits.argsort(1))


@pytest.mark.parametrize("goal", ["keep", "mask"])
def test_the_gradient_holds_the_sum_of_the_gates(goal: str) -> None:
    heads, rows = 7, [Row(0, f"{goal} 3"), Row(0, f"{goal} 5")]
    stage = Stage(10, 0.1, 0.01)
    schedule = BudgetSchedule(stage, stage, 4, 0.0, (0.0,) * heads)
    weights = torch.linspace(-1, 2, heads).double()
    logits = torch.randn(2, heads, generator=torch.Generator().manual_seed(1)).double()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (weights * x.sigmoid() ** 2).sum(1) * (1 if goal == "keep" else -1)

    def in_x(x: torch.Tensor, _: int) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        sign = 1 if goal == "keep" else -1
        return torch.autograd.grad((sign * loss(leaf)).sum(), leaf)[0]

    found = schedule.applied(rows, in_x)(logits, 9)  # when the sums are those of the budgets
    step, t = 1e-5, schedule.temperature(9)
    sums = [opened(row, heads) for row in rows]
    for head in range(heads):
        ahead, behind = logits.clone(), logits.clone()
        ahead[:, head] += step
        behind[:, head] -= step
        ends = [loss(within_budget(some, sums, t)) for some in (ahead, behind)]
        slope = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(found[:, head].numpy(), slope.numpy(), atol=1e-4)


def test_the_budget_falls_from_nearly_all_heads() -> None:
    for goal, ends in (("keep", (19.0, 4.0)), ("mask", (1.0, 16.0))):
        path = [opened(Row(0, f"{goal} 4"), 20, left) for left in (1.0, 0.5, 0.0)]
        assert (path[0], path[-1]) == pytest.approx(ends)
        assert path == sorted(path, reverse=goal == "keep")
    assert opened(Row(0, "keep 20"), 20, 1.0) == 20  # never more than the budget of a large one
    assert usual_budgets(2) == [1]


def gradient(run: GatedPasses, examples: Any, order: np.ndarray, logits: torch.Tensor) -> Any:
    with measuring(run.model), frozen(run.model):
        made: Gradient = fidelity(run, [load_prompts(run.model, examples)], [order])
        return made(logits, 0).numpy()


def test_passes_for_any_metric_agree_with_those_for_the_target_alone() -> None:
    model, task = built(), toy_task(24)
    examples = model.encode(task.split("ranking"))
    order = np.array([[[0, 3, 5, 1]], [[2, 2, 7, 4]]])  # (rows, updates, batch)
    logits = torch.randn(2, model.layout.total, generator=torch.Generator().manual_seed(0))
    plain = gradient(GatedPasses(model, tokens=64), examples, order, logits)
    general = MetricPasses(model, "logprob_per_token", "zero", examples, 64)
    np.testing.assert_allclose(
        gradient(general, examples, order, logits), plain, atol=1e-6, rtol=1e-4
    )


@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_passes_under_an_ablation_agree_with_attribution(ablation: str) -> None:
    model, task = built(), toy_task(24, targets=(1,))
    examples = model.encode(task.split("ranking"))
    logits = torch.randn(1, model.layout.total, generator=torch.Generator().manual_seed(0))
    gates = logits[0].double().sigmoid().numpy()
    slopes = slopes_at(model, task, "logit_difference", ablation, gates, QUIET)
    run = MetricPasses(model, "logit_difference", ablation, examples, 64)
    found = gradient(run, examples, np.arange(len(examples))[None, None], logits)[0]
    np.testing.assert_allclose(-found, slopes * gates * (1 - gates), atol=1e-6, rtol=1e-3)


@pytest.mark.parametrize("metric", ["logprob", "logprob_difference", "mass_difference"])
@pytest.mark.parametrize("ablation", ["zero", "corrupted"])
def test_all_right_answers_count_also_those_that_run_on_their_own(
    metric: str, ablation: str
) -> None:
    targets = (1,) if metric == "mass_difference" else (1, 2)
    model, task = built(), with_further_answers(toy_task(24, targets=targets), targets)
    examples = model.encode(task.split("ranking"))
    logits = torch.randn(1, model.layout.total, generator=torch.Generator().manual_seed(0))
    gates = logits[0].double().sigmoid().numpy()
    slopes = slopes_at(model, task, metric, ablation, gates, QUIET)
    run = MetricPasses(model, metric, ablation, examples, 64)
    assert (len(run.answers.rows) > len(examples)) == (metric != "mass_difference")
    found = gradient(run, examples, np.arange(len(examples))[None, None], logits)[0]
    np.testing.assert_allclose(-found, slopes * gates * (1 - gates), atol=1e-6, rtol=1e-3)
    alone = replace(task, examples=tuple(replace(e, also=()) for e in task.examples))
    other = slopes_at(model, alone, metric, ablation, gates, QUIET)
    assert np.abs(other - slopes).max() > 1e-3  # the further answers matter


def with_further_answers(task: Task, sizes: tuple[int, ...]) -> Task:
    """The task with two more right answers for each example, of these numbers of tokens."""
    rng, examples = random.Random(5), []
    for example in task.examples:
        taken = {*example.target.split(), *" ".join(example.foils).split()}
        words = rng.sample([word for word in WORDS if word not in taken], 2 * max(sizes))
        also = tuple("".join(f" {words.pop()}" for _ in range(size)) for size in (*sizes, 1)[:2])
        examples.append(replace(example, also=also))
    return replace(task, examples=tuple(examples))


def test_a_task_with_several_right_answers_is_ranked_as_forecast() -> None:
    model, task = built(), with_further_answers(toy_task(24), (1, 2))
    how: dict[str, Any] = {"metric": "logprob", "budgets": (2,), "updates": 3, "batch": 4}
    ahead = Lab(store=None).cost([Ranking.of(model, task, "budget-gates", **how)])
    lab = Lab(store=None, progress=False)
    scores = rank(model, task, "budget-gates", lab=lab, **how)
    assert scores.sets is not None
    assert scores.sets.sum(1).tolist() == [2]
    assert 0 < lab.measured["value"] <= ahead.count("value")
    with pytest.raises(HeadcountError, match="counts only the target"):
        rank(model, task, "budget-gates", metric="logprob_per_token", lab=lab)


def test_a_budget_of_all_heads_alone_is_refused() -> None:
    circuit = plant_circuit(n=24)
    with pytest.raises(HeadcountError, match="less than all 16 heads of circuit-0"):
        rank(circuit.model, circuit.task, "budget-gates", budgets=(16,), lab=QUIET)


def test_more_budgets_do_not_change_a_fit() -> None:
    circuit = plant_circuit(n=24)
    how: dict[str, Any] = {"updates": 4, "metric": "logit_difference", "lab": QUIET}
    few = rank(circuit.model, circuit.task, "budget-gates", budgets=(3,), **how)
    more = rank(circuit.model, circuit.task, "budget-gates", budgets=(2, 3, 9), **how)
    assert few.sets is not None
    assert more.sets is not None
    np.testing.assert_array_equal(few.sets[0], more.sets[1])


@given(st.integers(1, 12), st.integers(0, 99))
def test_the_best_heads_are_as_many_as_asked_for_and_hold_the_set(total: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    sets = rng.random((3, total)) < 0.4
    scores = HeadScores(HeadLayout((total,)), rng.random(total), "by hand", sets=sets)
    again = HeadScores.from_json(scores.to_json())
    for count in range(total + 1):
        best = again.best(count)
        assert len({*best.tolist()}) == len(best) == count
        inside = [one for one in sets if one.sum() == count]
        assert not inside or any({*best.tolist()} == {*np.flatnonzero(one)} for one in inside)


@pytest.mark.parametrize("sets", ["all", [["0"]], [[0, 0]], [[5]], [[-1]], [0]])
def test_sets_that_are_none_are_refused(sets: object) -> None:
    data = HeadScores(HeadLayout((3,)), np.ones(3), "by hand").to_json()
    with pytest.raises(HeadcountError, match="not a file of head scores"):
        HeadScores.from_json({**data, "sets": sets})
