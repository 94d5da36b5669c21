"""What pages and captions say of a model's weights, from the model's own facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import wrap
from headcount.models.gguf import read_header
from headcount.models.weights import by_size, display_names, quantised_as, weights_in_words

Q4 = {"stored": "Q4_K_M", "dtype": "bfloat16"}


def test_a_model_says_what_its_weights_are() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer(), name="folder/Model.Q4_1.gguf")
    assert model.precision == "float32 weights"  # whatever its name says
    assert model.facts["stored"] == ""
    assert model.facts["parameters"] == sum(p.numel() for p in model.module.parameters())
    few = replace(model, file_format="Q4_1")
    assert few.precision == "4-bit weights (Q4_1), dequantised to float32"
    assert few.facts["stored"] == "Q4_1"
    assert few.identity == model.identity  # stored values are the same as before
    assert "4-bit weights (Q4_1), dequantised to float32 on cpu" in repr(few)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"quant_method": "awq", "bits": 4}, "4-bit awq"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "8-bit bitsandbytes"),
        (SimpleNamespace(to_dict=lambda: {"quant_method": "fp8"}), "fp8"),
    ],
)
def test_quantised_models_say_so(settings: Any, said: str) -> None:
    assert quantised_as(settings) == said
    assert weights_in_words({"stored": said, "dtype": "float16"}).startswith(said)


@pytest.mark.parametrize(("kind", "said"), [(None, "F32"), (3, "Q4_1"), (15, "Q4_K_M")])
def test_a_gguf_file_says_what_it_holds(tmp_path: Path, kind: int | None, said: str) -> None:
    import gguf
    import numpy as np

    writer = gguf.GGUFWriter(tmp_path / "some.gguf", "llama")
    if kind is not None:
        writer.add_file_type(kind)
    writer.add_tensor("a", np.zeros((4, 32), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(tmp_path / "some.gguf")
    assert (header.stored, header.numbers) == (said, 128)


def test_names_in_figures_are_short_unless_two_become_one() -> None:
    twins = {"a/m-Instruct": {}, "b/m-Instruct": {}}
    assert display_names(twins) == {"a/m-Instruct": "a/m-Instruct", "b/m-Instruct": "b/m-Instruct"}
    assert display_names({"qwen-q4_k_m": Q4, "my-q8": Q4}) == {
        "qwen-q4_k_m": "qwen (Q4_K_M)",
        "my-q8": "my-q8 (Q4_K_M)",  # a name that says otherwise stays as it is
    }


def test_models_stand_in_order_of_size() -> None:
    models = {"large": {"parameters": 9}, "old": {}, "small": {"parameters": 3}}
    assert by_size(models) == ["old", "small", "large"]
