"""Pruning: a smaller checkpoint of stock transformers, equal to the gated model, or a refusal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import peft
import pytest
import torch
from checkpoints import tiny_tokenizer
from fast_paths_of_model import left_behind
from tiny import VOCAB, tiny_config, tiny_model
from torch import Tensor
from toy import toy_tokenizer
from transformers import AutoModelForCausalLM, AutoTokenizer, LlavaForConditionalGeneration

from headcount import HeadcountError, HeadLayout, HeadScores, load_model, prune, wrap
from headcount.models.gate import gating
from headcount.models.groups import Geometry, best_kept, geometry_of, random_kept, size_of
from headcount.models.model import Model
from headcount.models.prune import footprint, stock_sizes
from headcount.sparse.make_sparse import make_sparse

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore:.*kernel", "ignore:.*fast path")

# Each has something of its own; the parts of the cache that keeping one group of two leaves.
MODELS: dict[str, float] = {
    "llama": 0.5,
    "qwen2": 0.5,  # biases; a size of heads that its config does not declare
    "qwen3": 0.5,  # norms of queries and keys, by head
    "phi3": 0.5,  # queries, keys and values in one matrix
    "gemma2": 0.5,  # sliding windows, tied embeddings
    "gpt_oss": 0.5,  # a sink for each head, experts
    "qwen3_next": 0.5,  # queries with gates; linear attention in most layers
    "deepseek_v3": 1.0,  # a latent cache, which has no heads
    "starcoder2": 0.5,
}
REFUSED = {
    "gpt2": "cannot have 3 heads of size 8",
    "gpt_neox": "it divides the hidden size by the number of heads",
    "opt": "cannot have 3 heads of size 8",
    "olmo2": "its logits differ from the gated model's",  # a norm over all query heads
    "diffllama": "several query heads make one head of it",
    "laguna": r"its layers have different heads \(4 × 16 and 6 × 16\)",
}


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


def soft(kept: np.ndarray) -> np.ndarray:
    """Gates for the heads that are kept: all different, some negative."""
    factors = np.random.default_rng(0).uniform(-1, 2, kept.shape)
    return np.where(kept, factors, 0).astype(np.float32)


# What is written


@pytest.mark.parametrize("model_type", MODELS)
def test_the_folder_gives_the_gated_logits(model_type: str, tmp_path: Path) -> None:
    model = wrap(tiny_model(model_type), None)
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    config, whole = model.module.config.to_dict(), geometry_of(model)
    for number, size in enumerate(stock_sizes(model)):
        gates = soft(random_kept(whole, size, seed=number))
        pruned = prune(model, gates, tmp_path / str(number))
        assert (pruned.whole, pruned.kept) == (whole, size)
        expected = gated_logits(model, gates)
        torch.testing.assert_close(
            written_logits(pruned.folder), expected, atol=1e-4, rtol=1e-4, check_stride=False
        )
        assert (gated_logits(model, np.ones_like(gates)) - expected).abs().max() > 0.05
        assert pruned.after.parameters < pruned.before.parameters
        share = pruned.after.cache_bytes / pruned.before.cache_bytes
        fewer = size.groups < whole.groups
        assert share == (size.groups / whole.groups if fewer and MODELS[model_type] < 1 else 1)
    # The model in memory is as it was.
    assert all(
        torch.equal(before[name], value) for name, value in model.module.state_dict().items()
    )
    assert model.module.config.to_dict() == config
    assert left_behind(model.module) == []


def test_whole_groups_are_removed_without_rounding(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama", num_hidden_layers=3), None)
    kept = random_kept(geometry_of(model), Geometry(3, 1, 2), seed=0)
    pruned = prune(model, kept.astype(np.float32), tmp_path / "smaller")
    assert pruned.difference < 1e-6
    old, new = model.module.state_dict(), AutoModelForCausalLM.from_pretrained(pruned.folder)
    for layer, group in enumerate(kept.reshape(3, 2, 2)[:, :, 0].argmax(1)):
        name = f"model.layers.{layer}.self_attn"
        heads, own = slice(32 * group, 32 * group + 32), slice(16 * group, 16 * group + 16)
        attention: Any = new.model.layers[layer].self_attn
        assert torch.equal(attention.q_proj.weight, old[f"{name}.q_proj.weight"][heads])
        assert torch.equal(attention.k_proj.weight, old[f"{name}.k_proj.weight"][own])
        assert torch.equal(attention.v_proj.weight, old[f"{name}.v_proj.weight"][own])
        assert torch.equal(attention.o_proj.weight, old[f"{name}.o_proj.weight"][:, heads])
    config = new.config
    numbers = config.num_attention_heads, config.num_key_value_heads, config.head_dim
    assert numbers == (2, 1, 16)


@torch.no_grad()
def test_it_writes_with_its_cache_what_the_gated_model_writes(tmp_path: Path) -> None:
    model = wrap(tiny_model("qwen3"), None)
    gates = soft(random_kept(geometry_of(model), Geometry(2, 1, 2), seed=1))
    folder = prune(model, gates, tmp_path / "smaller").folder
    written: Any = AutoModelForCausalLM.from_pretrained(folder).eval()
    how: dict[str, Any] = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    with gating(model.module, model.sites, torch.from_numpy(gates)[None]):
        expected = model.module.generate(texts(), use_cache=False, **how)
    assert torch.equal(written.generate(texts(), use_cache=True, **how), expected)


def test_half_precision(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama").bfloat16(), None)
    kept = random_kept(geometry_of(model), Geometry(2, 1, 2), seed=0)
    folder = prune(model, kept.astype(np.float32), tmp_path / "half").folder
    written = AutoModelForCausalLM.from_pretrained(folder)
    assert {p.dtype for p in written.parameters()} == {torch.bfloat16}
    expected = gated_logits(model, kept.astype(np.float32))
    torch.testing.assert_close(written_logits(folder), expected, atol=0.1, rtol=0)


def test_a_model_of_images_and_text(tmp_path: Path) -> None:
    """Its heads are in the config of its text part."""
    model = wrap(LlavaForConditionalGeneration(tiny_config("llava")).eval(), toy_tokenizer())
    size = stock_sizes(model)[0]
    gates = random_kept(geometry_of(model), size, seed=0).astype(np.float32)
    written = load_model(prune(model, gates, tmp_path / "smaller").folder, device="cpu")
    plain = gated_logits(written, np.ones(written.layout.total, np.float32))
    torch.testing.assert_close(plain, gated_logits(model, gates), atol=1e-4, rtol=1e-4)


def test_the_tokenizer_and_the_generation_config_come_along(tmp_path: Path) -> None:
    module = tiny_model("llama")
    module.generation_config.eos_token_id = [2, 5]
    model = wrap(module, tiny_tokenizer())
    folder = prune(model, ["0.0", "0.1", "1.2", "1.3"], tmp_path / "smaller").folder
    assert AutoTokenizer.from_pretrained(folder).get_vocab() == tiny_tokenizer().get_vocab()
    assert AutoModelForCausalLM.from_pretrained(folder).generation_config.eos_token_id == [2, 5]
    again = load_model(folder)
    assert again.layout == HeadLayout((2, 2))


def test_what_is_said(tmp_path: Path) -> None:
    pruned = prune(wrap(tiny_model("llama"), None), ["0.0", "0.1", "1.2", "1.3"], tmp_path / "s")
    assert str(pruned).splitlines()[:3] == [
        f"{tmp_path / 's'}: 1 of 2 groups in 2 layers",
        "parameters: 23,520 → 17,376 (26.1 % less)",
        "cache, bytes per token: 512 → 256 (50.0 % less)",
    ]


def test_a_cache_that_does_not_tell() -> None:
    assert footprint(tiny_model("jamba")).cache_bytes == 256
    assert footprint(tiny_model("openai-gpt")).cache_bytes is None


# Which heads are kept


def test_the_best_groups_are_kept_in_every_layer(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    values = np.array([1.0, 1.0, 0.0, 1.5, 0.0, 0.0, -1.0, 3.0])  # means 1, .75; 0, 1
    scores = HeadScores(model.layout, values, "by hand")
    pruned = prune(model, scores, tmp_path / "groups", cache=0.4)
    assert np.flatnonzero(pruned.gates).tolist() == [0, 1, 6, 7]
    pruned = prune(model, scores, tmp_path / "heads", keep_heads_per_group=1)
    assert np.flatnonzero(pruned.gates).tolist() == [0, 3, 4, 7]


def test_scores_of_groups() -> None:
    whole = Geometry(2, 2, 2)
    scores = HeadScores(HeadLayout((2, 2)), np.array([0.0, 1.0, 1.0, 0.0]), "by group")
    assert np.flatnonzero(best_kept(scores, whole, Geometry(2, 1, 2))).tolist() == [2, 3, 4, 5]
    with pytest.raises(HeadcountError, match="take one of single heads, such as attribution"):
        best_kept(scores, whole, Geometry(2, 2, 1))


def test_random_heads_differ_by_seed_and_size() -> None:
    whole = Geometry(6, 4, 3)
    for size in whole.sizes():
        drawn = [random_kept(whole, size, seed) for seed in range(3)]
        assert all(size_of(kept, whole, "m") == size for kept in drawn)
        assert len({kept.tobytes() for kept in drawn}) == 3


def test_sizes_that_the_config_refuses_are_not_offered(tmp_path: Path) -> None:
    """Llama's config wants the hidden size to be a multiple of the number of heads."""
    model = wrap(tiny_model("llama", num_attention_heads=8, num_key_value_heads=4), None)
    assert [(size.groups, size.per_group) for size in stock_sizes(model)] == [
        *((2, 2), (1, 2)),
        (4, 1),
    ]
    scores = HeadScores(model.layout, np.arange(16.0), "by hand")
    assert prune(model, scores, tmp_path / "a", cache=0.7).kept.groups == 2
    three = r"keeps 3: it can keep 1, 2\. The nearest is 2 of 4 groups\.$"
    with pytest.raises(HeadcountError, match=three):
        prune(model, scores, tmp_path / "b", keep_groups=3)
    gates = random_kept(geometry_of(model), Geometry(2, 3, 2), seed=0).astype(np.float32)
    words = r"holds 6 heads \(.*32.*\)\. It can keep: 2 of 4 groups; 1 of 4 groups; 1 of 2 query"
    with pytest.raises(HeadcountError, match=words):
        prune(model, gates, tmp_path / "b")
    assert not (tmp_path / "b").exists()


# What is refused


def refused(model: Model, heads: Any, folder: Path, sentence: str, **size: Any) -> None:
    """In one sentence, and nothing is left."""
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    with pytest.raises(HeadcountError, match=sentence):
        prune(model, heads, folder, **size)
    assert not folder.exists()
    assert list(folder.parent.iterdir()) == []
    assert all(torch.equal(before[n], value) for n, value in model.module.state_dict().items())


@pytest.mark.parametrize("model_type", REFUSED)
def test_models_without_a_smaller_stock_config(model_type: str, tmp_path: Path) -> None:
    model = wrap(tiny_model(model_type), None)
    off = [f"{layer}.{count - 1}" for layer, count in enumerate(model.layout.counts)]
    if model_type == "olmo2":
        off += [f"{layer}.{count - 2}" for layer, count in enumerate(model.layout.counts)]
    refused(model, off, tmp_path / "no", REFUSED[model_type])


@pytest.mark.parametrize(
    ("off", "words"),
    [
        ([], "All heads of LlamaForCausalLM are kept"),
        (["0.1"], r"\(3 to 4 of 4 heads in a layer\).* The nearest is to keep 1 of 2 groups,"),
        (["0.0", "0.1", "1.1", "1.2"], r"The nearest is to keep 1 of 2 groups, or write them at"),
        (["0.0", "1.0"], r"\(3 of 4 heads in a layer, in unequal groups\)"),
    ],
)
def test_head_sets_that_no_stock_config_holds(off: list[str], words: str, tmp_path: Path) -> None:
    refused(wrap(tiny_model("llama"), None), off, tmp_path / "no", words)


@pytest.mark.parametrize(
    ("size", "words"),
    [
        ({}, "Say how much to keep by one of keep-groups"),
        ({"keep_groups": 1, "cache": 0.5}, "and cache, not keep-groups and cache"),
        ({"keep_groups": 0}, "keep-groups must be a whole number from 1 on, not 0"),
        ({"keep_groups": 2}, r"keeps 2: it can keep 1\. The nearest is 1 of 2 groups"),
        ({"cache": 0.0}, "cache must be a share above 0 and up to 1, not 0"),
        ({"cache": 1.01}, "up to 1, not 1.01"),
        ({"cache": 0.8}, r"keeps 0\.8 of the cache: it can keep 1"),
        ({"keep_heads_per_group": 2}, "The nearest is 1 of 2 query heads in each group"),
    ],
)
def test_sizes_that_no_stock_config_holds(size: dict[str, Any], words: str, tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    scores = HeadScores(model.layout, np.arange(8.0), "by hand")
    refused(model, scores, tmp_path / "no", words, **size)


def test_one_group_or_one_head_in_each() -> None:
    alone = wrap(tiny_model("qwen2", num_key_value_heads=1), None)
    assert {size.groups for size in stock_sizes(alone)} == {1}
    many = wrap(tiny_model("llama", num_key_value_heads=4), None)
    scores = HeadScores(many.layout, np.arange(8.0), "by hand")
    with pytest.raises(HeadcountError, match="holds fewer query heads within groups"):
        prune(many, scores, "nowhere", keep_heads_per_group=1)
    with pytest.raises(HeadcountError, match=r"groups\. What can be kept: 3 of 4 query"):
        prune(alone, HeadScores(alone.layout, np.arange(8.0), "by hand"), "nowhere", cache=0.5)


def test_a_size_goes_with_scores_alone(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    refused(model, ["0.0"], tmp_path / "no", "keep_groups goes with scores", keep_groups=1)
    other = HeadScores(HeadLayout((3, 3)), np.arange(6.0), "by hand")
    refused(model, other, tmp_path / "no", "belong to another model", keep_groups=1)


def test_sparse_quantised_and_adapted_models(tmp_path: Path) -> None:
    model = wrap(tiny_model("llama"), None)
    off = ["0.0", "0.1", "1.0", "1.1"]
    model.module.is_quantized = True  # type: ignore[assignment]
    refused(model, off, tmp_path / "no", "it has quantised weights: load it without")
    del model.module.is_quantized
    make_sparse(model.module)
    refused(model, off, tmp_path / "no", "it is a sparse model, .*: prune its dense base model")
    how = peft.LoraConfig(target_modules=["q_proj"])
    adapted = wrap(peft.get_peft_model(tiny_model("llama"), how), None)
    refused(adapted, off, tmp_path / "no", "merge adapters first")


def test_a_folder_that_holds_something(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HeadcountError, match="exists and is not an empty folder"):
        prune(wrap(tiny_model("llama"), None), ["0.0"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
