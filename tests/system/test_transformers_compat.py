"""What is replaced in transformers: each name is there in this version, and is put back."""

from __future__ import annotations

import importlib
import os
from contextlib import suppress

import pytest
from tiny import tiny_model

from headcount.system.transformers_compat import (
    attention_configs,
    kernel_of,
    other_attention,
    quiet_transformers,
    replaced,
    set_kernel,
)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("transformers.masking_utils", "find_packed_sequence_indices"),
        ("transformers.modeling_gguf_pytorch_utils", "tqdm"),
        ("transformers.integrations.gguf.kernels", "kernelize_ggml_layers"),
        ("transformers.utils.logging", "EmptyTqdm"),
    ],
)
def test_names_that_are_replaced_exist_and_come_back(module: str, name: str) -> None:
    owner = importlib.import_module(module)
    before = getattr(owner, name)
    with replaced(module, name, 5):
        assert getattr(owner, name) == 5
    assert getattr(owner, name) is before


@pytest.mark.parametrize("module", ["transformers.utils.logging", "transformers.of_tomorrow"])
def test_names_that_a_version_lacks_are_left_alone(module: str) -> None:
    with replaced(module, "of_tomorrow", 5):
        pass
    with pytest.raises((ImportError, AttributeError)):
        _ = importlib.import_module(module).of_tomorrow


@pytest.mark.parametrize("before", [None, "0"])
def test_the_environment_is_put_back(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "DISABLE_SAFETENSORS_CONVERSION"
    monkeypatch.delenv(name, raising=False)
    if before is not None:
        monkeypatch.setenv(name, before)
    with quiet_transformers():
        assert os.environ[name] == "1"
    assert os.environ.get(name) == before


def test_the_kernel_is_the_one_that_transformers_reads() -> None:
    config = attention_configs(tiny_model("llama"))[0]
    set_kernel(config, "eager")
    assert (kernel_of(config), config._attn_implementation) == ("eager", "eager")


def test_each_part_gets_its_own_kernel_back() -> None:
    module = tiny_model("gemma3n")
    configs = attention_configs(module)
    assert len(configs) > 1
    set_kernel(configs[0], "flex_attention")
    before = [kernel_of(config) for config in configs]
    with suppress(RuntimeError), other_attention(module, lambda *_: "eager"):
        assert {kernel_of(config) for config in configs} == {"eager"}
        raise RuntimeError
    assert [kernel_of(config) for config in configs] == before
