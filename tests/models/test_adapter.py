"""Head sets as LoRA adapters: whoever loads a folder with PEFT gets the gated logits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from checkpoints import tiny_tokenizer
from fast_paths_of_model import left_behind
from safetensors.torch import load_file, save_file
from test_export import MODELS, Rounded, gated_logits, soft_gates, texts
from tiny import tiny_model
from torch import Tensor
from toy import toy_tokenizer

from headcount import HeadcountError, load_model, wrap
from headcount.models import adapter
from headcount.models.adapter_folder import AdapterFolder, export_adapters
from headcount.models.model import Model
from headcount.models.unloaded import unloaded_model

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore:.*kernel", "ignore:.*fast path")


@torch.no_grad()
def adapted_logits(module: Any, folder: Path) -> Tensor:
    """As anybody would apply it, who has never heard of heads."""
    loaded = peft.PeftModel.from_pretrained(module, str(folder)).eval()
    return loaded(input_ids=texts(), use_cache=False).logits


def state(module: Any) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in module.state_dict().items()}


@pytest.mark.parametrize("model_type", MODELS)
def test_the_adapter_gives_the_gated_logits(model_type: str, tmp_path: Path) -> None:
    model = wrap(tiny_model(model_type, **MODELS[model_type]), None)
    before, flags = state(model.module), [p.requires_grad for p in model.module.parameters()]
    gates = soft_gates(model)
    made = export_adapters(model, {"soft": gates}, tmp_path / "a")
    expected = gated_logits(model, gates)
    fresh = tiny_model(model_type, **MODELS[model_type])
    got = adapted_logits(fresh, tmp_path / "a" / "soft")
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)
    assert (gated_logits(model, np.ones_like(gates)) - expected).abs().max() > 0.05
    assert made.adapters["soft"].error < 1e-5
    # The model in memory is as it was.
    assert all(torch.equal(before[name], value) for name, value in state(model.module).items())
    assert [p.requires_grad for p in model.module.parameters()] == flags
    assert left_behind(model.module) == []
    assert not hasattr(model.module, "peft_config")


def test_without_peft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "find_spec", lambda name: None)
    for kind in ("llama", "gpt2"):
        model = wrap(tiny_model(kind), None)
        made = export_adapters(model, {"soft": soft_gates(model)}, tmp_path / kind)
        assert made.adapters["soft"].error < 1e-5
        assert left_behind(model.module) == []


def test_what_stands_in_the_folder(tmp_path: Path) -> None:
    """One rank for all layers, alpha as large, and only the layers that change."""
    model = wrap(tiny_model("llama", num_hidden_layers=3), None, name="org/tiny")
    made = export_adapters(model, ["0.1", "2.0", "2.3"], tmp_path / "a")
    (name,) = made.adapters
    assert name == "off-0_1-2_0-2_3"
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == ["head-sets.jsonl", name]
    config = json.loads((tmp_path / "a" / name / "adapter_config.json").read_text())
    layers = ["model.layers.0.self_attn.o_proj", "model.layers.2.self_attn.o_proj"]
    assert config["r"] == config["lora_alpha"] == made.rank == 32
    assert made.served_rank == 32
    assert (config["target_modules"], config["base_model_name_or_path"]) == (layers, "org/tiny")
    assert not config["fan_in_fan_out"]
    tensors = load_file(tmp_path / "a" / name / "adapter_model.safetensors")
    shapes = {key: tuple(value.shape) for key, value in tensors.items()}
    for layer in layers:
        assert shapes.pop(f"base_model.model.{layer}.lora_A.weight") == (32, 64)
        assert shapes.pop(f"base_model.model.{layer}.lora_B.weight") == (32, 32)
    assert shapes == {}
    weight = model.module.model.layers[0].self_attn.o_proj.weight
    up = tensors[f"base_model.model.{layers[0]}.lora_B.weight"]
    assert torch.equal(up[:, :16], -weight[:, 16:32])
    assert not up[:, 16:].any()


def test_numbers_are_written_in_half_precision_where_that_loses_nothing(tmp_path: Path) -> None:
    gates = {"off": ["0.1"], "damped": np.where(np.arange(8) == 2, 0.3, 1)}
    model = wrap(tiny_model("llama").bfloat16().float(), None)
    made = export_adapters(model, gates, tmp_path / "a")
    dtypes = {}
    for name in gates:
        tensors = load_file(made.path / name / "adapter_model.safetensors")
        (dtypes[name],) = {tensor.dtype for tensor in tensors.values()}
    assert dtypes == {"off": torch.bfloat16, "damped": torch.float32}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    model = wrap(tiny_model("llama").to(dtype), None)
    gates = soft_gates(model)
    made = export_adapters(model, {"soft": gates}, tmp_path / "a")
    assert 1e-5 < made.adapters["soft"].error < 0.05
    got = adapted_logits(tiny_model("llama").to(dtype), made.path / "soft")
    torch.testing.assert_close(got, gated_logits(model, gates), atol=0.1, rtol=0)


def test_quantised_projections_give_their_dequantised_columns(tmp_path: Path) -> None:
    module = tiny_model("llama")
    for layer in module.model.layers:
        layer.self_attn.o_proj = Rounded(layer.self_attn.o_proj)
    model = wrap(module, None)
    made = export_adapters(model, {"one": ["0.1"]}, tmp_path / "a")
    tensors = load_file(made.path / "one" / "adapter_model.safetensors")
    rounded = module.model.layers[0].self_attn.o_proj
    expected = -(rounded.weight * rounded.scale)[:, 16:32]
    up = tensors["base_model.model.model.layers.0.self_attn.o_proj.lora_B.weight"]
    torch.testing.assert_close(up, expected, atol=1e-6, rtol=1e-5)
    assert made.adapters["one"].error < 1e-5


def test_headcount_loads_the_folder(tmp_path: Path) -> None:
    base = tmp_path / "base"
    tiny_model("llama").save_pretrained(base)
    toy_tokenizer().save_pretrained(base)
    model = load_model(base, device="cpu")
    made = export_adapters(model, {"two": ["0.1", "1.2"]}, tmp_path / "a")
    assert made.base == str(base.resolve())
    again = load_model(made.path / "two", device="cpu")
    gates = model.layout.gates(off=["0.1", "1.2"])
    plain = gated_logits(again, np.ones_like(gates))
    torch.testing.assert_close(plain, gated_logits(model, gates), atol=1e-5, rtol=1e-5)


# Folders of many


def test_a_folder_grows_and_is_read_again(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None, name="org/tiny")
    one = {("random", 2, 0): ["0.1", "1.1"], "half": np.full(8, 0.5)}
    made = export_adapters(model, one, tmp_path / "a")
    files = [path for name in made.adapters for path in (made.path / name).iterdir()]
    times = [path.stat().st_mtime_ns for path in files]
    export_adapters(model, one | {0: ["0.3"]}, tmp_path / "a")
    assert [path.stat().st_mtime_ns for path in files] == times
    read = AdapterFolder.open(tmp_path / "a")
    assert list(read.adapters) == ["random-2-0", "half", "off-0_3"]
    assert (read.base, read.layout, read.rank) == ("org/tiny", model.layout, 64)
    known = read.named(model.layout.gates(off=["0.3"]))
    assert known is not None
    assert known.name == "off-0_3"
    assert read.named(np.full(8, 0.25)) is None
    # An adapter whose folder is gone does not count, and is written again.
    shutil.rmtree(made.path / "half")
    assert list(AdapterFolder.open(tmp_path / "a").adapters) == ["random-2-0", "off-0_3"]
    assert "half" in export_adapters(model, one, tmp_path / "a").adapters


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None, name="org/tiny")
    made = export_adapters(model, {"one": ["0.1"]}, tmp_path / "a")
    refused(model, {"one": ["0.2"]}, made.path, "holds another adapter: give the head set another")
    other = wrap(tiny_model("llama"), None, name="org/other")
    refused(other, {"two": ["0.2"]}, made.path, "holds adapters of org/tiny .8 heads")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep me")
    refused(model, {"one": ["0.1"]}, tmp_path / "full", "neither empty nor a folder of adapters")
    for text in ("", "{}", '{"format": "x"}', "[1]"):
        (made.path / "head-sets.jsonl").write_text(text)
        with pytest.raises(HeadcountError, match="not an index of adapters"):
            AdapterFolder.open(made.path)


# What is refused


def refused(model: Model, heads: Any, folder: Path, sentence: str, **how: Any) -> None:
    """In one sentence, and nothing is left."""
    there, hooks = sorted(folder.rglob("*")) if folder.exists() else None, left_behind(model.module)
    with pytest.raises(HeadcountError, match=sentence) as error:
        export_adapters(model, heads, folder, **how)
    assert "\n" not in str(error.value)
    assert (sorted(folder.rglob("*")) if folder.exists() else None) == there
    assert left_behind(model.module) == hooks


def test_ranks_that_are_too_large(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    only = np.isin(np.arange(8), [4, 5])
    sentence = r"only-two needs an adapter of rank 64 \(4 heads of 16 numbers change in layer 0\)"
    refused(model, {"one": ["0.1"], "only-two": only}, tmp_path / "a", sentence, max_rank=63)
    wide = wrap(tiny_model("llama", head_dim=160), None)
    sentence = "rank 640 .* limit is 512, the most that vLLM takes: export it as a checkpoint"
    refused(wide, {"x": ["0.1", "0.2", "0.3", "0.0"]}, tmp_path / "a", sentence)
    refused(model, {"x": ["0.1"]}, tmp_path / "a", "at least 1, not 0", max_rank=0)


def test_no_head(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    refused(model, {"whole": []}, tmp_path / "a", "changes no head, .* it is the base model")


def test_weights_that_layers_share_and_blocks_that_run_twice(tmp_path: Path) -> None:
    module = tiny_model("llama", num_hidden_layers=3)
    layers = module.model.layers
    layers[2].self_attn.o_proj.weight = layers[0].self_attn.o_proj.weight
    refused(wrap(module, None), ["0.1"], tmp_path / "a", "for model.layers.0.*: its weights are sh")
    twice = wrap(tiny_model("hrm_text"), None)
    refused(twice, ["0.1"], tmp_path / "a", r"runs \d times in a pass")


def test_adapters_that_are_not_merged(tmp_path: Path) -> None:
    adapted = peft.get_peft_model(tiny_model("llama"), peft.LoraConfig(target_modules=["q_proj"]))
    refused(wrap(adapted, None), ["0.1"], tmp_path / "a", "merge adapters first")


def test_an_adapter_that_differs_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = wrap(tiny_model("llama"), None)
    right = adapter.head_columns
    with monkeypatch.context() as patch:
        patch.setattr(adapter, "_column_error", lambda *_: 0.0)
        patch.setattr(adapter, "head_columns", lambda *given: 1.1 * right(*given))
        refused(model, ["0.1"], tmp_path / "a", "differs from the gated one by")
    calls: list[int] = []

    def wrong_once(*given: Any) -> Tensor:
        calls.append(0)
        return right(*given) * (1 + 1e-3 * (len(calls) == 1))

    monkeypatch.setattr(adapter, "head_columns", wrong_once)
    refused(model, ["0.1"], tmp_path / "a", "differs from the gates by")


# Models that are not loaded


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    folder = tmp_path / "sharded"
    module = tiny_model("llama", num_hidden_layers=4).bfloat16()
    module.save_pretrained(folder, max_shard_size="20KB")
    toy_tokenizer().save_pretrained(folder)
    assert len(list(folder.glob("*.safetensors"))) > 3
    return folder


def test_only_the_projections_are_read(
    sharded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sets = {"off": ["0.1", "3.2"], "damped": np.where(np.arange(16) == 6, 0.3, 1)}
    loaded = load_model(sharded, device="cpu")
    expected = export_adapters(loaded, sets, tmp_path / "loaded")
    read: list[str] = []
    opened = adapter.safe_open

    class Watching:
        def __init__(self, *given: Any, **how: Any) -> None:
            self.file = opened(*given, **how)

        def __enter__(self) -> Watching:
            self.inner = self.file.__enter__()
            return self

        def __exit__(self, *error: Any) -> None:
            self.file.__exit__(*error)

        def keys(self) -> list[str]:
            return list(self.inner.keys())

        def get_tensor(self, name: str) -> Tensor:
            read.append(name)
            return self.inner.get_tensor(name)

    monkeypatch.setattr(adapter, "safe_open", Watching)
    model = unloaded_model(sharded)
    assert model.sites == loaded.sites
    assert "not loaded" in repr(model)
    made = export_adapters(model, sets, tmp_path / "unloaded")
    assert set(read) == {f"model.layers.{n}.self_attn.o_proj.weight" for n in (0, 1, 3)}
    for name in sets:
        files = [one.path / name / "adapter_model.safetensors" for one in (made, expected)]
        assert files[0].read_bytes() == files[1].read_bytes()
        assert made.adapters[name].error < 1e-6
    gates = loaded.layout.gates(off=sets["off"])
    got = adapted_logits(load_model(sharded, device="cpu").module, made.path / "off")
    torch.testing.assert_close(got, gated_logits(loaded, gates), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["gpt2", "gemma3_text", "laguna", "mixtral", "lfm2"])
def test_heads_are_those_of_the_loaded_model(kind: str, tmp_path: Path) -> None:
    """Layers of several kinds, some without heads; names with and without the class's prefix."""
    module = tiny_model(kind)
    module.save_pretrained(tmp_path / "base")
    toy_tokenizer().save_pretrained(tmp_path / "base")
    if kind == "gpt2":
        file = tmp_path / "base" / "model.safetensors"
        short = {key.removeprefix("transformer."): value for key, value in load_file(file).items()}
        save_file(short, file, metadata={"format": "pt"})
    model, loaded = unloaded_model(tmp_path / "base"), wrap(module, None)
    assert model.sites == loaded.sites
    head = f"{len(model.sites) - 1}.1"
    made = export_adapters(model, {"one": [head]}, tmp_path / "a")
    expected = gated_logits(loaded, loaded.layout.gates(off=[head]))
    got = adapted_logits(module, made.path / "one")
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


def test_what_cannot_be_told_without_loading(sharded: Path, tmp_path: Path) -> None:
    def of(kind: str) -> Path:
        folder = tmp_path / kind
        tiny_model(kind).config.save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
        return folder

    (tmp_path / "file.gguf").write_bytes(b"")
    for where, text in (
        (of("jamba"), "does not tell which of its layers are alike"),
        (of("mamba"), "cannot be proven on a small model .*no heads"),
        (tmp_path / "file.gguf", "load the model instead"),
        (tmp_path / "nothing" / "here", "load the model instead"),
        (tmp_path, "not the folder of a plain checkpoint"),
    ):
        with pytest.raises(HeadcountError, match=text):
            unloaded_model(where)
    bare = unloaded_model(of("llama"))
    refused(bare, ["0.1"], tmp_path / "a", "No safetensors of llama hold model.layers.0")
    for file in sharded.glob("*.safetensors"):
        eight = {
            name: t.to(torch.float8_e4m3fn) if "o_proj" in name else t
            for name, t in load_file(file).items()
        }
        save_file(eight, file, metadata={"format": "pt"})
    packed = unloaded_model(sharded)
    refused(packed, ["0.1"], tmp_path / "a", "packed or quantised form: load the model")
