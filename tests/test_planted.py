"""The planted circuits do what they say, as seen by evaluate and without it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from planted import INTERFERENCE, STRENGTH, Plant, plant

from headcount import Head, HeadLayout, evaluate
from headcount.engine.measure.sweep import Values
from headcount.tasks import encode

PLANTS = {
    "one layer": {"needed": ["0.2"], "interfering": ["0.0"], "layers": 1},
    "spread": {"needed": ["0.1", "1.3", "2.0"], "interfering": ["0.2", "2.1"]},
    "no interference": {"needed": ["0.0", "1.1"], "layers": 2, "heads": 2},
    "odd number of heads": {
        "needed": ["0.0", "1.2"],
        "interfering": ["1.1"],
        "layers": 2,
        "heads": 3,
    },
    "many": {
        "needed": ["0.0", "1.1", "2.2", "3.3", "4.4"],
        "interfering": ["1.5", "4.0"],
        "layers": 5,
        "heads": 6,
    },
}


@pytest.fixture(scope="module", params=PLANTS)
def planted(request: pytest.FixtureRequest) -> Plant:
    return plant(**PLANTS[request.param], seed=len(request.param))


def measure(planted: Plant, gates: np.ndarray, metric: str, ablation: str = "zero") -> Values:
    return evaluate(
        planted.model, planted.task, gates, metric=metric, ablation=ablation, split="all"
    )


def one_off(layout: HeadLayout) -> np.ndarray:
    """The whole model, then each head missing in turn."""
    return np.concatenate([np.ones((1, layout.total)), 1 - np.eye(layout.total)])


def test_the_whole_model_solves_the_task_and_no_head_does_not(planted: Plant) -> None:
    layout = planted.model.layout
    gates = np.stack([np.ones(layout.total), np.zeros(layout.total)])
    right = measure(planted, gates, "accuracy").values
    assert right.tolist() == [[1.0] * 32, [0.0] * 32]
    margin = measure(planted, gates, "logit_difference").values
    np.testing.assert_allclose(margin[0], sum(planted.effects.values()), atol=1e-5)
    np.testing.assert_allclose(margin[1], 0, atol=1e-6)


@pytest.mark.parametrize("ablation", ["zero", "corrupted"])
def test_each_head_changes_the_logit_difference_as_planned(planted: Plant, ablation: str) -> None:
    layout = planted.model.layout
    whole, *without = measure(planted, one_off(layout), "logit_difference", ablation).values
    for head, values in zip(layout, without, strict=True):
        lost = whole - values
        np.testing.assert_allclose(lost, planted.effects[head], atol=1e-5)
        if planted.roles[head] == "needed":
            assert (lost > 0.85 * STRENGTH).all()
        elif planted.roles[head] == "interfering":
            assert (lost + 1e-5 >= -INTERFERENCE).all()
            assert (lost < -0.1).all()
        else:
            assert (np.abs(lost) < 1e-5).all()


def test_effects_add_up(planted: Plant) -> None:
    layout = planted.model.layout
    gates = np.random.default_rng(0).uniform(0, 1.5, (8, layout.total)).astype(np.float32)
    values = measure(planted, gates, "logit_difference").values
    expected = gates @ np.array([planted.effects[head] for head in layout])
    np.testing.assert_allclose(values, np.repeat(expected[:, None], 32, 1), atol=2e-5)


def test_accuracy_needs_every_needed_head_and_no_other(planted: Plant) -> None:
    layout = planted.model.layout
    needed = planted.heads("needed")
    _, *without = measure(planted, one_off(layout), "accuracy").mean()
    assert dict(zip(layout, without, strict=True)) == {
        head: 0.0 if head in needed else 1.0 for head in layout
    }
    assert measure(planted, layout.gates(keep=needed), "accuracy").mean().tolist() == [1.0]


def test_with_a_spare_head_either_suffices() -> None:
    planted = plant(needed=["0.1", "2.3"], interfering=["1.0"], spare=1)
    one, two = planted.heads("needed")
    sets: list[list[Head]] = [[], [one], [two], [one, two]]
    gates = np.stack([planted.model.layout.gates(off=heads) for heads in sets])
    assert measure(planted, gates, "accuracy").mean().tolist() == [1.0, 1.0, 1.0, 0.0]


def test_every_head_says_something(planted: Plant) -> None:
    """Otherwise the proof would not see the irrelevant ones."""
    module = planted.model.module
    seen: list[torch.Tensor] = []
    handles = [
        block.self_attn.o_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
        for block in module.model.layers
    ]
    one = encode(planted.task, planted.model.tokenizer)[0]
    module(input_ids=torch.tensor([one.prompt]))
    for handle in handles:
        handle.remove()
    z = torch.cat([s.unflatten(-1, (-1, 16))[0, -1] for s in seen])  # (heads, size) at the end
    assert (z.abs().amax(-1) > 0.05).all()


def test_heads_have_one_role_and_some_are_missed() -> None:
    with pytest.raises(ValueError, match="one role"):
        plant(needed=["0.1"], interfering=["0.1"])
    with pytest.raises(ValueError, match="missed"):
        plant(needed=["0.1"], spare=1)
