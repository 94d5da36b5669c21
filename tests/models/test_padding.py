"""Whether prompts may be padded is proven, because some models then give other values."""

from __future__ import annotations

import pytest
import torch
from tiny import tiny_model

from headcount.models.padding import prove_padding


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["llama", "gpt2", "bloom", "opt", "mixtral"])
def test_sound_models_bear_padding(kind: str, side: str) -> None:
    assert prove_padding(tiny_model(kind), side)


@pytest.mark.parametrize(
    ("kind", "side"), [("roberta", "left"), ("roberta", "right"), ("bart", "left")]
)
def test_models_that_count_padding_do_not(kind: str, side: str) -> None:
    assert not prove_padding(tiny_model(kind), side)


def test_a_causal_model_bears_padding_after_the_prompt() -> None:
    assert prove_padding(tiny_model("bart"), "right")


def test_nothing_is_left_behind() -> None:
    model = tiny_model("llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    prove_padding(model, "left")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_pre_hooks for module in model.modules())
