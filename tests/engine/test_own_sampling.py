"""How a model's own generation settings draw tokens."""

from __future__ import annotations

from typing import Any

import pytest
from tiny import tiny_model
from transformers import GenerationConfig

from headcount import wrap
from headcount.engine.write.settings import Sampled, own_sampling


@pytest.mark.parametrize(
    ("own", "drawn", "lacking"),
    [
        ({}, Sampled(), []),
        ({"temperature": 0.6, "top_p": 0.9}, Sampled(), []),  # without do_sample it is greedy
        ({"do_sample": True, "temperature": 0.6, "top_p": 0.9}, Sampled(0.6, 0.9), []),
        ({"do_sample": True}, Sampled(1.0, 1.0), []),
        ({"do_sample": True, "top_k": 20, "repetition_penalty": 1.05}, Sampled(1.0, 1.0), None),
    ],
)
def test_own_settings(own: dict[str, Any], drawn: Sampled, lacking: list[str] | None) -> None:
    module = tiny_model("llama")
    module.generation_config = GenerationConfig(**own)
    expected = ["top_k", "repetition_penalty"] if lacking is None else lacking
    assert own_sampling(wrap(module, None, name="tiny")) == (drawn, expected)
