"""Rankings by derivative, against differences of evaluate and against planted circuits."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from planted import Plant, plant
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, evaluate, rank, wrap
from headcount.models.model import Model

ABLATIONS = ("zero", "mean", "corrupted")


@cache
def built(model_type: str) -> Model:
    return wrap(tiny_model(model_type), toy_tokenizer())


@cache
def spread() -> Plant:
    return plant(needed=["0.1", "1.3", "2.0"], interfering=["0.2", "2.1"], seed=3)


def ends(model: Model, task: Any, **options: Any) -> np.ndarray:
    """metric(all heads) − metric(no head), for each example of the ranking split."""
    gates = np.stack([np.ones(model.layout.total), np.zeros(model.layout.total)])
    values = evaluate(
        model, task, gates, split="ranking", **{"metric": "logprob", **options}
    ).values
    return values[0] - values[1]


# Attribution


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bloom", "qwen3_next"])
@pytest.mark.parametrize("ablation", ABLATIONS)
def test_attribution_is_the_slope_of_evaluate(model_type: str, ablation: str) -> None:
    model, task = built(model_type), toy_task(12)
    step = 2.0**-8
    eye = np.eye(model.layout.total)
    options: dict[str, Any] = {"ablation": ablation, "metric": "logprob"}
    above, below = (
        evaluate(model, task, 1 + sign * step * eye, split="ranking", **options) for sign in (1, -1)
    )
    slopes = (above.values - below.values).T / (2 * step)  # (examples, heads)
    scores = rank(model, task, "attribution", **options)
    assert scores.samples is not None
    np.testing.assert_allclose(scores.samples, slopes, atol=1e-3)
    np.testing.assert_allclose(scores.values, scores.samples.mean(0), atol=1e-12)
    assert np.abs(slopes).max() > 0.05  # there is something to be right about


@pytest.mark.parametrize("ablation", ["zero", "corrupted"])
def test_attribution_finds_what_was_planted(ablation: str) -> None:
    """Nothing is curved in a plant, so that the first order is exact."""
    planted = spread()
    scores = rank(
        planted.model,
        planted.task,
        "attribution",
        metric="logit_difference",
        ablation=ablation,
    )
    effects = [planted.effects[head] for head in planted.model.layout]
    np.testing.assert_allclose(scores.values, effects, atol=1e-4)


@pytest.mark.parametrize("ranking", ["attribution", "integrated-gradients"])
@pytest.mark.parametrize("metric", ["logprob", "logit_difference"])
def test_the_sign_tells_the_role(ranking: str, metric: str) -> None:
    planted = spread()
    scores = rank(planted.model, planted.task, ranking, metric=metric)
    by_head = dict(zip(planted.model.layout, scores.values, strict=True))
    needed = [by_head[head] for head in planted.heads("needed")]
    interfering = [by_head[head] for head in planted.heads("interfering")]
    irrelevant = [by_head[head] for head in planted.heads("irrelevant")]
    assert min(needed) > 0.1
    assert max(interfering) < -0.01
    assert np.abs(irrelevant).max() < 1e-5
    assert set(scores.top(3)) == set(planted.heads("needed"))


# Integrated gradients


@pytest.mark.parametrize("model_type", ["llama", "gpt_neox"])
@pytest.mark.parametrize("ablation", ABLATIONS)
def test_integrated_gradients_add_up_for_every_example(model_type: str, ablation: str) -> None:
    model, task = built(model_type), toy_task(8)
    scores = rank(model, task, "integrated-gradients", ablation=ablation, steps=32)
    expected = ends(model, task, ablation=ablation)
    assert scores.samples is not None
    np.testing.assert_allclose(scores.samples.sum(1), expected, atol=5e-3)
    assert scores.parameters["sum"] == pytest.approx(scores.values.sum())
    assert scores.parameters["difference"] == pytest.approx(expected.mean(), abs=1e-4)
    # Attribution does not: the sum is a property of the path, not of derivatives as such.
    straight = rank(model, task, "attribution", ablation=ablation)
    assert straight.samples is not None
    assert np.abs(straight.samples.sum(1) - expected).max() > 0.05


@pytest.mark.parametrize("steps", [1, 2, 8])
def test_on_a_straight_path_one_step_is_enough(steps: int) -> None:
    planted = spread()
    scores = rank(
        planted.model,
        planted.task,
        "integrated-gradients",
        metric="logit_difference",
        steps=steps,
    )
    effects = [planted.effects[head] for head in planted.model.layout]
    np.testing.assert_allclose(scores.values, effects, atol=1e-4)
    total = sum(planted.effects.values())
    assert scores.parameters["sum"] == pytest.approx(total, abs=1e-4)
    assert scores.parameters["difference"] == pytest.approx(total, abs=1e-4)


def test_more_steps_come_closer() -> None:
    """Also where the path has kinks, as with the ReLU of OPT."""
    model, task = built("opt"), toy_task(8)
    expected = ends(model, task)
    errors = []
    for steps in (1, 4, 32):
        scores = rank(model, task, "integrated-gradients", steps=steps)
        assert scores.samples is not None
        errors.append(np.abs(scores.samples.sum(1) - expected).mean())
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("steps", [0, -3])
def test_no_steps_are_no_path(steps: int) -> None:
    with pytest.raises(HeadcountError, match=f"at least 1 step, not {steps}"):
        rank(built("llama"), toy_task(), "integrated-gradients", steps=steps)


# What both have in common


@pytest.mark.parametrize("ranking", ["attribution", "integrated-gradients"])
def test_metrics_without_a_derivative_are_refused(ranking: str) -> None:
    for metric in ("accuracy", "choice"):
        with pytest.raises(HeadcountError, match=f'"{metric}" has no derivative .* logprob'):
            rank(built("llama"), toy_task(), ranking, metric=metric)


@pytest.mark.parametrize("ablation", ABLATIONS)
def test_a_model_may_be_ranked_before_anything_else(ablation: str) -> None:
    """What is proven about a model at its first use is not proven under gates."""
    task = toy_task(12)
    first, used = (wrap(tiny_model("llama"), toy_tokenizer()) for _ in range(2))
    evaluate(used, task, np.ones(8), metric="logprob")
    scores, expected = (rank(model, task, ablation=ablation).values for model in (first, used))
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert first.fast_paths == used.fast_paths


def test_the_same_bits_twice() -> None:
    model, task = built("llama"), toy_task()
    first, second = (rank(model, task, "attribution") for _ in range(2))
    assert first.values.tobytes() == second.values.tobytes()


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails: bool) -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer())
    frozen = module.model.embed_tokens.weight
    frozen.requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    module.train()
    if fails:
        with torch.no_grad():
            module.model.norm.weight[0] = torch.nan
        with pytest.raises(HeadcountError, match="not finite"):
            rank(model, toy_task(), "attribution")
        with torch.no_grad():
            module.model.norm.weight.copy_(before["model.norm.weight"])
    else:
        rank(model, toy_task(), "attribution")
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert all(p.requires_grad == (p is not frozen) for p in module.parameters())
    assert all(p.grad is None for p in module.parameters())
    assert all(part.training for part in module.modules())
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in module.modules())
