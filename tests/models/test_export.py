"""Folding and exporting: an ordinary checkpoint that gives the gated logits, or nothing at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from checkpoints import tiny_tokenizer
from custom import Attention, CustomLM
from fast_paths_of_model import left_behind
from tiny import VOCAB, tiny_config, tiny_model
from torch import Tensor, nn
from toy import toy_tokenizer
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlavaForConditionalGeneration,
    pipeline,
)

from headcount import Head, HeadcountError, export, gated, load_model, wrap
from headcount.models.export import fold
from headcount.models.gate import gating
from headcount.models.model import Model

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore:.*kernel", "ignore:.*fast path")

MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "gpt2": {},  # a transposed projection; tied embeddings
    "gpt_neox": {},
    "bloom": {},  # tied embeddings; the projection adds the residual
    "opt": {},
    "mixtral": {},  # experts
    "deepseek_v3": {},  # narrower heads, experts
    "phi3": {},  # queries, keys and values in one matrix
    "gemma2": {"tie_word_embeddings": True},
    "qwen3_next": {},  # linear attention in most layers
    "falcon": {},
    "diffllama": {},  # two query heads to a slice
}


def soft_gates(model: Model, seed: int = 0) -> np.ndarray:
    """Dampened, amplified and turned round, some off and some left alone."""
    gates = np.random.default_rng(seed).uniform(-1, 2, model.layout.total).astype(np.float32)
    gates[::3] = 0
    gates[1::3] = 1
    return gates


def texts() -> Tensor:
    return torch.randint(3, VOCAB, (2, 12), generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def gated_logits(model: Model, gates: np.ndarray) -> Tensor:
    with gating(model.module, model.sites, torch.from_numpy(gates)[None]):
        return model.module(input_ids=texts(), use_cache=False).logits


@torch.no_grad()
def written_logits(folder: Path) -> Tensor:
    """As anybody would load it, who has never heard of heads."""
    module = AutoModelForCausalLM.from_pretrained(folder).eval()
    return module(input_ids=texts(), use_cache=False).logits


# What is written


def test_a_model_of_images_and_text(tmp_path: Path) -> None:
    model = wrap(LlavaForConditionalGeneration(tiny_config("llava")).eval(), toy_tokenizer())
    gates = soft_gates(model)
    written = load_model(export(model, gates, tmp_path / "written"), device="cpu")
    plain = gated_logits(written, np.ones(model.layout.total))
    torch.testing.assert_close(plain, gated_logits(model, gates), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("model_type", MODELS)
def test_the_folder_gives_the_gated_logits(model_type: str, tmp_path: Path) -> None:
    model = wrap(tiny_model(model_type, **MODELS[model_type]), None)
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    config = model.module.config.to_dict()
    gates = soft_gates(model)
    folder = export(model, gates, tmp_path / "without")
    assert folder == tmp_path / "without"
    expected = gated_logits(model, gates)
    torch.testing.assert_close(written_logits(folder), expected, atol=1e-4, rtol=1e-4)
    whole = gated_logits(model, np.ones_like(gates))
    assert (whole - expected).abs().max() > 0.05
    # The model in memory is as it was.
    assert all(
        torch.equal(before[name], value) for name, value in model.module.state_dict().items()
    )
    assert model.module.config.to_dict() == config
    assert left_behind(model.module) == []
    assert [path.name for path in tmp_path.iterdir()] == ["without"]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    model = wrap(tiny_model("llama").to(dtype), None)
    gates = soft_gates(model)
    folder = export(model, gates, tmp_path / "half")
    written = AutoModelForCausalLM.from_pretrained(folder)
    assert {p.dtype for p in written.parameters()} == {dtype}
    torch.testing.assert_close(written_logits(folder), gated_logits(model, gates), atol=0.1, rtol=0)


def test_gates_of_0_and_1_are_folded_without_rounding(tmp_path: Path) -> None:
    """Zeroed columns and untouched ones: the same bits, in any precision."""
    model = wrap(tiny_model("llama").bfloat16(), None)
    folder = export(model, ["0.1"], tmp_path / "off")
    written = AutoModelForCausalLM.from_pretrained(folder).state_dict()
    name = "model.layers.0.self_attn.o_proj.weight"
    assert not written[name][:, 16:32].any()
    for key, value in model.module.state_dict().items():
        if key == name:
            written[key][:, 16:32] = value[:, 16:32]
        assert torch.equal(written[key], value)


def test_heads_by_name(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    folder = export(model, ["0.1", Head(1, 2)], tmp_path / "off")
    gates = model.layout.gates(off=[Head(0, 1), Head(1, 2)])
    torch.testing.assert_close(written_logits(folder), gated_logits(model, gates))
    whole = export(model, [], tmp_path / "whole")
    torch.testing.assert_close(written_logits(whole), gated_logits(model, np.ones_like(gates)))


def test_tied_embeddings_stay_tied(tmp_path: Path) -> None:
    model = wrap(tiny_model("gpt2"), None)
    written = AutoModelForCausalLM.from_pretrained(export(model, ["0.0"], tmp_path / "tied"))
    assert written.lm_head.weight is written.transformer.wte.weight


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    folder = export(model, ["0.0"], tmp_path / "with")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.encode("ba de") == toy_tokenizer().encode("ba de")
    assert (folder / "config.json").exists()
    assert (folder / "model.safetensors").exists()
    again = load_model(folder)
    assert again.layout == model.layout
    assert oct(folder.stat().st_mode)[-3:] == "755"


def test_an_empty_folder_may_be_there_already(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    (tmp_path / "a").mkdir()
    export(model, ["0.0"], tmp_path / "a")
    export(model, ["0.0"], str(tmp_path / "b" / "c" / "d"))
    assert (tmp_path / "b" / "c" / "d" / "config.json").exists()


def test_a_model_in_training_is_exported_as_it_is(tmp_path: Path) -> None:
    """Dropout would make the written model differ from the gated one."""
    module = tiny_model("llama", attention_dropout=0.5)
    model = wrap(module, None)
    module.train()
    export(model, ["0.0"], tmp_path / "trained")
    assert module.training


def test_a_compiled_model_is_exported_as_an_ordinary_one(tmp_path: Path) -> None:
    model = wrap(torch.compile(tiny_model("llama"), backend="eager"), None)
    gates = soft_gates(model)
    folder = export(model, gates, tmp_path / "plain")
    plain = wrap(tiny_model("llama"), None)
    torch.testing.assert_close(
        written_logits(folder), gated_logits(plain, gates), atol=1e-4, rtol=1e-4
    )


def test_only_gated_projections_are_touched() -> None:
    model = wrap(tiny_model("llama"), None)
    folded = fold(model, torch.from_numpy(model.layout.gates(off=[Head(1, 2)])))
    assert list(folded) == ["model.layers.1.self_attn.o_proj.weight"]
    (weight,) = folded.values()
    expected = model.module.model.layers[1].self_attn.o_proj.weight.detach().clone()
    expected[:, 32:48] = 0
    assert torch.equal(weight, expected)


# What is refused


def assert_refused(model: Model, heads: Any, folder: Path, sentence: str) -> None:
    """In one sentence; and nothing is left, neither on the disk nor on the model."""
    there = sorted(folder.parent.iterdir()) if folder.parent.exists() else None
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    with pytest.raises(HeadcountError, match=sentence):
        export(model, heads, folder)
    assert (sorted(folder.parent.iterdir()) if folder.parent.exists() else None) == there
    after = model.module.state_dict()
    assert all(torch.equal(before[name], value) for name, value in after.items())
    assert left_behind(model.module) == []


def test_weights_that_layers_share(tmp_path: Path) -> None:
    """What is folded for one layer would act in the other; not so where nothing is folded."""
    module = tiny_model("llama", num_hidden_layers=3)
    layers = module.model.layers
    layers[2].self_attn.o_proj.weight = layers[0].self_attn.o_proj.weight
    model = wrap(module, None)
    for heads in (["0.1"], ["2.1"], ["0.1", "2.1"]):
        assert_refused(model, heads, tmp_path / "a", "its weights are shared with model.layers")
    assert list(fold(model, torch.from_numpy(model.layout.gates(off=[Head(1, 0)])))) == [
        "model.layers.1.self_attn.o_proj.weight"
    ]


def test_one_block_for_several_layers(tmp_path: Path) -> None:
    model = wrap(tiny_model("zamba"), None)
    assert_refused(model, ["0.1"], tmp_path / "a", "its weights are shared with")


def test_blocks_that_run_several_times(tmp_path: Path) -> None:
    model = wrap(tiny_model("hrm_text"), None)
    assert_refused(model, ["0.1"], tmp_path / "a", r"runs \d times in a pass")


class Rounded(nn.Linear):
    """A projection whose weights are eight-bit numbers."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=False)
        del self.weight
        scale = linear.weight.abs().max() / 127
        self.register_buffer("weight", (linear.weight / scale).round().to(torch.int8))
        self.register_buffer("scale", scale.detach())

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight * self.scale)


def test_quantised_projections(tmp_path: Path) -> None:
    module = tiny_model("llama")
    for layer in module.model.layers:
        layer.self_attn.o_proj = Rounded(layer.self_attn.o_proj)
    model = wrap(module, None)
    assert_refused(
        model, ["0.1"], tmp_path / "a", "weights are not plain numbers .*without quantisation"
    )


@pytest.mark.parametrize("target", ["q_proj", "o_proj"])
def test_adapters_that_are_not_merged(target: str, tmp_path: Path) -> None:
    adapted = peft.get_peft_model(tiny_model("llama"), peft.LoraConfig(target_modules=[target]))
    assert_refused(wrap(adapted, None), ["0.1"], tmp_path / "a", "merge adapters first")
    merged = wrap(adapted.merge_and_unload(), None)
    export(merged, ["0.1"], tmp_path / "merged")


def test_adapters_inside_a_transformers_model(tmp_path: Path) -> None:
    module = tiny_model("llama")
    module.add_adapter(peft.LoraConfig(target_modules=["q_proj"]))
    assert_refused(wrap(module, None), ["0.1"], tmp_path / "a", "merge adapters first")


def test_models_that_are_not_of_hugging_face(tmp_path: Path) -> None:
    model = wrap(CustomLM(Attention, Attention), None)
    assert_refused(model, ["0.1"], tmp_path / "a", "not a plain Hugging Face model")


def test_folders_that_are_in_use(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("keep me")
    assert_refused(model, ["0.1"], tmp_path / "full", "exists and is not an empty folder")
    assert_refused(
        model, ["0.1"], tmp_path / "full" / "mine.txt", "exists and is not an empty folder"
    )
    assert (tmp_path / "full" / "mine.txt").read_text() == "keep me"


def test_several_head_sets_and_unknown_heads(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    assert_refused(model, np.ones((2, 8)), tmp_path / "a", "one head set here, not 2")
    assert_refused(model, ["7.1"], tmp_path / "a", "no head 7.1")
    assert_refused(model, np.full(8, np.nan), tmp_path / "a", "finite numbers")


def test_a_written_model_that_differs_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = wrap(tiny_model("llama"), None)
    monkeypatch.setattr("headcount.models.export.fold", lambda *_: {})
    assert_refused(model, ["0.1"], tmp_path / "new" / "a", "differs from the gated one")


def test_a_model_that_does_not_load_again_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = wrap(tiny_model("llama"), None)

    def unknown(*_: Any, **__: Any) -> None:
        raise ValueError("Unrecognized model")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", unknown)
    assert_refused(model, ["0.1"], tmp_path / "a" / "b", "cannot save it and load it.*Unrecognized")


@pytest.mark.parametrize("failure", [KeyboardInterrupt, OSError])
def test_failing_in_the_middle_leaves_nothing(
    failure: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())

    def fail(*_: Any) -> None:
        raise failure("disk full")

    monkeypatch.setattr(type(model.tokenizer), "save_pretrained", fail)
    with pytest.raises(failure):
        export(model, ["0.1"], tmp_path / "a" / "b")
    assert list(tmp_path.iterdir()) == []


# Gating whatever runs a model


def test_a_pipeline_runs_gated(tmp_path: Path) -> None:
    """As it would with the exported model; afterwards it writes what it wrote before."""
    tokenizer = tiny_tokenizer()
    module = tiny_model("llama", vocab_size=len(tokenizer))
    writer = pipeline("text-generation", model=module, tokenizer=tokenizer)
    options = {"max_new_tokens": 8, "do_sample": False, "return_full_text": False}
    prompts = ["hello you", "h"]

    def write(writer: Any) -> list[str]:
        return [writer(prompt, **options)[0]["generated_text"] for prompt in prompts]

    whole = write(writer)
    heads = ["0.1", "0.2", "1.0", "1.3"]
    with gated(writer, heads) as model:
        under = write(writer)
        assert model.layout.total == 8
    assert write(writer) == whole
    assert under != whole
    folder = export(wrap(module, tokenizer), heads, tmp_path / "off")
    assert under == write(pipeline("text-generation", model=str(folder)))
    assert left_behind(module) == []


def test_models_of_any_kind_are_gated() -> None:
    module = tiny_model("llama")
    model = wrap(module, None)
    gates = soft_gates(model)
    expected = gated_logits(model, gates)
    for given in (model, module):
        with gated(given, gates), torch.no_grad():
            assert torch.equal(module(input_ids=texts(), use_cache=False).logits, expected)
    with pytest.raises(ZeroDivisionError), gated(model, gates):
        raise ZeroDivisionError
    assert left_behind(module) == []


def test_what_cannot_be_gated_is_a_sentence() -> None:
    model = wrap(tiny_model("llama"), None)
    with pytest.raises(HeadcountError, match="Cannot gate a dict"), gated({}, ["0.1"]):
        pass
    with pytest.raises(HeadcountError, match="one head set here, not 2"):
        gated(model, np.ones((2, 8))).__enter__()
    with pytest.raises(HeadcountError, match=r"no head 5\.0"), gated(model, ["5.0"]):
        pass
    assert left_behind(model.module) == []
