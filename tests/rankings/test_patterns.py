"""Attention weights against transformers' own, and rankings by pattern against weights by hand."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
from planted import plant
from tiny import tiny_config, tiny_model
from torch import Tensor
from toy import toy_task, toy_tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel

from headcount import Example, HeadcountError, Task, rank, wrap
from headcount.engine.read.attention import attend, reading_attention
from headcount.models.model import Model
from headcount.models.sites import HeadSite
from headcount.rankings.patterns import repeated_tokens

# Grouped keys, fused QKV in three layouts, sliding windows, latent attention, sinks, a layer
# without softmax, modules that return weights only where asked, and softmax in an inner module.
ARCHITECTURES = (
    "llama",
    "gpt2",
    "gpt_neox",
    "phi3",
    "bloom",
    "gemma2",
    "gemma3_text",
    "deepseek_v3",
    "gpt_oss",
    "qwen3_next",
    "falcon",
    "bert",
)
IDS = torch.tensor(
    [[5, 6, 7, 8, 9, 5, 6, 12, 13, 14, 15, 16], [9, 8, 7, 9, 8, 7, 20, 3, 4, 3, 4, 3]]
)


@cache
def built(model_type: str = "llama") -> Model:
    return wrap(tiny_model(model_type), toy_tokenizer())


def eager(model_type: str) -> PreTrainedModel:
    """The same tiny model, built with eager attention from the start."""
    config = tiny_config(model_type)
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    model.load_state_dict(built(model_type).module.state_dict())
    return model


@torch.no_grad()
def read(model: Model, ids: Tensor = IDS) -> list[Tensor]:
    found: dict[int, Tensor] = {}
    with reading_attention(model, lambda site, weights: found.update({site.index: weights})):
        model.module(input_ids=ids)
    return [found[site.index] for site in model.sites]


def kernels(module: torch.nn.Module) -> list[str | None]:
    found = (getattr(part, "config", None) for part in module.modules())
    return [getattr(config, "_attn_implementation", None) for config in found]


def hooks(module: torch.nn.Module) -> int:
    return sum(len(p._forward_hooks) + len(p._forward_pre_hooks) for p in module.modules())


# Reading attention


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_weights_are_those_that_transformers_returns(model_type: str) -> None:
    model = built(model_type)
    with torch.no_grad():
        expected = eager(model_type)(input_ids=IDS, output_attentions=True).attentions
    expected = [weights for weights in expected if weights is not None]
    found = read(model)
    assert len(found) == len(expected) == len(model.sites)
    for site, weights, other in zip(model.sites, found, expected, strict=True):
        assert weights.shape == (2, site.heads, 12, 12)
        torch.testing.assert_close(weights, other, atol=1e-6, rtol=0)
    assert max(float(weights.std(1).max()) for weights in found) > 0.1  # heads differ


@pytest.mark.parametrize("model_type", ["llama", "falcon", "gemma3_text"])
def test_the_logits_are_the_models_own(model_type: str) -> None:
    model = built(model_type)
    with torch.no_grad():
        own = model.module(input_ids=IDS).logits
        with reading_attention(model, lambda *_: None):
            read_with = model.module(input_ids=IDS).logits
    torch.testing.assert_close(read_with, own, atol=1e-4, rtol=1e-4)


def test_heads_are_in_the_order_of_the_sites() -> None:
    """In a plant the heads with a role look at the subject, all others at everything."""
    planted = plant(needed=["0.1", "1.3", "2.0"], interfering=["0.2"])
    example = planted.task.examples[0]
    words = example.prompt.split()
    subject = next(place for place, word in enumerate(words) if word.startswith("+"))
    ids = torch.tensor([planted.model.tokenizer.encode(example.prompt)])
    found = torch.cat([weights[0, :, -1, subject] for weights in read(planted.model, ids)])
    expected = [1 / len(words) if role == "irrelevant" else 1.0 for role in planted.roles.values()]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(fails: bool) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    before = kernels(model.module)
    assert "sdpa" in before

    def reduce(site: HeadSite, weights: Tensor, places: object) -> Tensor:
        assert set(kernels(model.module)) <= {"eager", None}
        if fails:
            raise KeyError("by hand")
        return weights[:, :, -1, 0]

    if fails:
        with pytest.raises(KeyError, match="by hand"):
            attend(model, IDS.tolist(), reduce, progress=False)
    else:
        attend(model, IDS.tolist(), reduce, progress=False)
    assert kernels(model.module) == before
    assert hooks(model.module) == 0


def test_sequences_of_all_lengths_keep_their_places() -> None:
    model = built()
    texts = [[5, 6, 7], [8, 9, 10, 11, 12], [6, 5, 7], [9], [12, 11, 10, 9, 8]]

    def first(site: HeadSite, weights: Tensor, places: object) -> Tensor:
        return weights[:, :, -1, 0]

    together = attend(model, texts, first, progress=False)
    alone = [attend(model, [text], first, progress=False)[0] for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(together[3], 1)


@pytest.mark.parametrize(
    ("model_type", "words"),
    [
        ("diffllama", r"model\.layers\.0\.self_attn has 2 attention patterns for each head"),
        ("deepseek_v4", r"model\.layers\.\d\.self_attn gives no softmax weights of its 4 heads"),
    ],
)
def test_sites_without_weights_are_refused_by_name(model_type: str, words: str) -> None:
    model = built(model_type)
    with pytest.raises(HeadcountError, match=words):
        rank(model, toy_task(), "attention-previous")
    assert hooks(model.module) == 0


@pytest.mark.parametrize("spoilt", ["none", "scores", "later tokens"])
def test_what_is_no_attention_is_refused(spoilt: str) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())

    def spoil(_: object, args: object, output: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
        z, weights = output
        if spoilt == "none":
            return (z,)
        return (z, weights - 0.5 if spoilt == "scores" else weights.flip(-1))

    attention = model.module.get_submodule(model.sites[1].attention)
    handle = attention.register_forward_hook(spoil)
    try:
        with pytest.raises(HeadcountError, match=r"model\.layers\.1\.self_attn gives no softmax"):
            read(model)
    finally:
        handle.remove()


def test_no_sequences_are_refused() -> None:
    for texts in ([], [[3], []]):
        with pytest.raises(HeadcountError, match="at least one sequence"):
            attend(built(), texts, lambda site, weights, places: weights[:, :, 0, 0])


# Rankings


def by_hand(model: Model, ids: list[int]) -> np.ndarray:
    """All heads' weights on one text: (heads, queries, keys)."""
    return torch.cat(read(model, torch.tensor([ids])), dim=1)[0].double().numpy()


@pytest.mark.parametrize("model_type", ["llama", "gemma2"])
def test_previous_is_the_mean_of_the_diagonal(model_type: str) -> None:
    model, task = built(model_type), toy_task(8)
    scores = rank(model, task, "attention-previous")
    assert scores.samples is not None
    for row, example in zip(scores.samples, task.split("ranking"), strict=True):
        ids = model.tokenizer.encode(example.prompt)
        weights = by_hand(model, ids)
        expected = np.mean([weights[:, at, at - 1] for at in range(1, len(ids))], axis=0)
        np.testing.assert_allclose(row, expected, atol=1e-6)
    np.testing.assert_allclose(scores.values, scores.samples.mean(0))


def test_prompts_of_one_token_have_none_before_it() -> None:
    examples = tuple(Example(f"{n}", w, " ba", content=w) for n, w in enumerate(("de", "fi", "go")))
    with pytest.raises(HeadcountError, match="have a single token"):
        rank(built(), Task("short", 1, examples), "attention-previous")


def test_induction_looks_behind_the_first_occurrence() -> None:
    model = built()
    scores = rank(model, toy_task(), "attention-induction", length=6, sequences=3, seed=5)
    assert scores.samples is not None
    texts = repeated_tokens(model, 6, 3, 5)
    for row, text in zip(scores.samples, texts, strict=True):
        weights = by_hand(model, list(text))
        expected = np.mean([weights[:, 6 + at, at + 1] for at in range(6)], axis=0)
        np.testing.assert_allclose(row, expected, atol=1e-6)
    other = rank(model, toy_task(), "attention-induction", length=6, sequences=3)
    assert not np.array_equal(other.values, scores.values)


def test_induction_keeps_the_token_in_front() -> None:
    model, task = built(), replace(toy_task(), bos="always")
    scores = rank(model, task, "attention-induction", length=6, sequences=1)
    (text,) = repeated_tokens(model, 6, 1, 0)
    weights = by_hand(model, [model.tokenizer.bos_token_id, *text])
    expected = np.mean([weights[:, 7 + at, at + 2] for at in range(6)], axis=0)
    np.testing.assert_allclose(scores.values, expected, atol=1e-6)


def test_random_tokens_are_ordinary_and_said_twice() -> None:
    model = built()
    texts = repeated_tokens(model, 20, 50, 0)
    assert len(set(texts)) == 50
    for text in texts:
        assert text[:20] == text[20:]
        assert len(set(text)) == 20
    used = set().union(*texts)
    assert not used & set(model.tokenizer.all_special_ids)
    assert used == set(range(3, len(model.tokenizer)))
    assert texts == repeated_tokens(model, 20, 50, 0) != repeated_tokens(model, 20, 50, 1)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"length": 1}, "at least 2 tokens"),
        ({"sequences": 0}, "at least 1 sequence"),
        ({"length": 1000}, r"has 72 ordinary tokens, too few for 1000"),
    ],
)
def test_induction_needs_something_to_repeat(settings: dict[str, int], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        rank(built(), toy_task(), "attention-induction", **settings)


def holding() -> Task:
    """Prompts that hold their answers: once, twice, or as two tokens."""
    prompts = {
        "ba de fi go ku": " fi",
        "ba fi de fi go": " fi",
        "de la mi no de": " la mi",
        "so tu ra pe ki": " so",
    }
    examples = (
        Example(f"{n}", prompt, target, content=prompt)
        for n, (prompt, target) in enumerate(prompts.items())
    )
    return Task("holding", 1, tuple(examples))


def test_retrieval_is_attention_to_the_answer() -> None:
    model, task = built(), holding()
    scores = rank(model, task, "attention-retrieval")
    assert scores.samples is not None
    for row, example in zip(scores.samples, task.split("ranking"), strict=True):
        words, answer = example.prompt.split(), example.target.split()
        ids = model.tokenizer.encode(example.prompt + example.target)
        weights = by_hand(model, ids[:-1])
        there = [place for place, word in enumerate(words) if word in answer]
        asking = range(len(words) - 1, len(ids) - 1)
        expected = np.mean([weights[:, at][:, there].sum(1) for at in asking], axis=0)
        np.testing.assert_allclose(row, expected, atol=1e-6)


def test_retrieval_finds_the_heads_that_look_at_the_answer() -> None:
    """The plant's prompts mark the subject; here the mark is dropped from the target's copy."""
    planted = plant(needed=["0.1", "2.0"], interfering=["1.3"])
    marked = tuple(
        replace(e, target=f" +{e.target.strip()}", foils=(), corrupted=None) for e in planted.task
    )
    task = replace(planted.task, examples=marked)
    scores = rank(planted.model, task, "attention-retrieval")
    looking = {*planted.heads("needed"), *planted.heads("interfering")}
    assert set(scores.top(3)) == looking
    np.testing.assert_allclose(np.sort(scores.values)[-3:], 1, atol=1e-4)


def test_retrieval_needs_the_answer_in_the_prompt() -> None:
    task = holding()
    test = {example.id for example in task.split("test")}
    chosen = next(e.id for e in task if e.id not in test)
    spoilt = tuple(replace(e, target=" ta") if e.id == chosen else e for e in task)
    words = r'Only 2 of 3 prompts of the task "holding" \(67%\) hold their answer'
    with pytest.raises(HeadcountError, match=words):
        rank(built(), replace(task, examples=spoilt), "attention-retrieval")


def test_retrieval_refuses_several_right_answers() -> None:
    task = toy_task(6)
    several = tuple(replace(example, also=(" ba",)) for example in task.examples)
    with pytest.raises(HeadcountError, match=r'"e\d" has several right answers, and retrieval'):
        rank(built(), replace(task, examples=several), "attention-retrieval")
