"""Decoding: batched equals one by one, gates act where the scope says, draws are a row's own."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import peft
import pytest
import torch
from fast_paths_of_model import left_behind
from tiny import tiny_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import nn
from toy import WORDS, toy_tokenizer
from transformers import GenerationConfig, PreTrainedTokenizerFast

from headcount import Head, HeadcountError, generate, wrap
from headcount.engine.write import sampling
from headcount.engine.write.decode import Generation, ignores_padding
from headcount.engine.write.sampling import Sampling
from headcount.engine.write.settings import Sampled
from headcount.models.gate import gating
from headcount.models.model import Model

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore:.*kernel")

MODELS = {
    "llama": {},
    "gpt2": {},  # learned positions
    "bloom": {},  # positions from the mask
    "mistral": {},  # a window
    "qwen3_next": {},  # linear attention
    "bart": {},  # counts padding
    "git": {},  # counts padding only while decoding
    "openai-gpt": {},  # no cache
}
NEW = 7


@cache
def model_of(model_type: str) -> Model:
    return wrap(tiny_model(model_type), toy_tokenizer(), name=model_type)


@pytest.fixture
def llama() -> Model:
    return model_of("llama")


def prompts(lengths: tuple[int, ...] = (9, 4, 6, 1, 4), seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choice(WORDS) for _ in range(length)) for length in lengths]


def soft_gates(model: Model, rows: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1, 2, (rows, model.layout.total))


def ids_of(texts: list[Generation]) -> list[tuple[int, ...]]:
    return [text.ids for text in texts]


def go_on(model: Model, some: Any, heads: Any = None, **options: Any) -> list[Generation]:
    return generate(model, some, heads, **{"max_new_tokens": NEW, "progress": False, **options})


@torch.no_grad()
def by_whole_passes(model: Model, prompt: str, gates: Any, *, spared: int = 0) -> tuple[int, ...]:
    """The greedy continuation by one pass over all tokens for each; `spared` of them are not gated.

    Without cache, padding or `generate`: gates by token where the prompt is spared.
    """
    ids = model.tokenizer.encode(prompt)
    new: list[int] = []
    while len(new) < NEW:
        tokens = len(ids) + len(new)
        by_token = torch.ones(1, model.layout.total, tokens)
        by_token[0, :, spared:] = torch.as_tensor(gates, dtype=torch.float32)[:, None]
        with gating(model.module, model.sites, by_token):
            logits = model.module(input_ids=torch.tensor([[*ids, *new]]), use_cache=False).logits
        new.append(int(logits[0, -1].argmax()))
        if new[-1] == model.tokenizer.eos_token_id:
            return tuple(new[:-1])
    return tuple(new)


# Greedy


@pytest.mark.parametrize("model_type", MODELS)
def test_greedy_equals_plain_generate(model_type: str) -> None:
    model = model_of(model_type)
    texts = go_on(model, prompts())
    settings = GenerationConfig(max_new_tokens=NEW, eos_token_id=2, pad_token_id=2)
    module: Any = tiny_model(model_type)
    module.generation_config = settings  # BART's own would always end with an end
    for prompt, text in zip(prompts(), texts, strict=True):
        ids = model.tokenizer(prompt, return_tensors="pt").input_ids
        plain = module.generate(ids, attention_mask=torch.ones_like(ids))[0, ids.shape[1] :]
        ended = int(plain[-1]) == 2
        assert text.finished == ended
        assert text.ids == tuple(plain[:-1].tolist() if ended else plain.tolist())
        assert text.text == model.tokenizer.decode(text.ids, skip_special_tokens=True)
    assert left_behind(model.module) == []


@pytest.mark.parametrize("model_type", MODELS)
def test_gated_rows_equal_whole_passes(model_type: str) -> None:
    """Each row under gates of its own, whatever is beside it and however it is padded."""
    model = model_of(model_type)
    gates = soft_gates(model, 5)
    expected = [by_whole_passes(model, *both) for both in zip(prompts(), gates, strict=True)]
    assert ids_of(go_on(model, prompts(), gates)) == expected
    assert ids_of(go_on(model, prompts(), gates, rows=2)) == expected
    for prompt, row, ids in zip(prompts(), gates, expected, strict=True):
        assert ids_of(go_on(model, [prompt], row)) == [ids]
    assert expected != ids_of(go_on(model, prompts()))
    assert left_behind(model.module) == []


def test_the_order_of_prompts_is_kept(llama: Model) -> None:
    texts = go_on(llama, prompts())
    assert texts[::-1] == go_on(llama, prompts()[::-1])
    assert go_on(llama, []) == []


def test_heads_by_name_and_token_ids_as_prompts(llama: Model) -> None:
    gates = llama.layout.gates(off=[Head(0, 1), Head(1, 2)])
    expected = go_on(llama, prompts(), gates)
    assert go_on(llama, prompts(), ["0.1", Head(1, 2)]) == expected
    encoded = [llama.tokenizer.encode(prompt) for prompt in prompts()]
    assert go_on(llama, encoded, gates) == expected
    assert go_on(llama, [torch.tensor(ids) for ids in encoded], gates) == expected


def test_padding_is_used_only_where_it_is_borne() -> None:
    rows: list[int] = []
    for model_type, padded in (("llama", True), ("bart", False), ("git", False)):
        model = model_of(model_type)
        assert ignores_padding(model) == padded
        rows.clear()
        embeddings = model.module.get_input_embeddings()
        handle = embeddings.register_forward_pre_hook(lambda _, args: rows.append(len(args[0])))
        go_on(model, prompts((5, 4, 3)), max_new_tokens=1)
        handle.remove()
        assert rows == ([3] if padded else [1, 1, 1])


# Scope


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bloom", "mistral", "qwen3_next"])
def test_decode_gates_what_comes_after_the_prompt(model_type: str) -> None:
    """Also after a prompt of one token, which is a pass over a single token too."""
    model = model_of(model_type)
    gates = soft_gates(model, 5)
    texts = ids_of(go_on(model, prompts(), gates, scope="decode"))
    whole = ids_of(go_on(model, prompts()))
    assert [ids[:1] for ids in texts] == [ids[:1] for ids in whole]
    assert texts != whole
    assert texts != ids_of(go_on(model, prompts(), gates))
    if not model.proof.mixers:  # what a linear attention remembers, a pass by hand would gate
        expected = [
            by_whole_passes(model, prompt, row, spared=len(prompt.split()))
            for prompt, row in zip(prompts(), gates, strict=True)
        ]
        assert texts == expected
    assert left_behind(model.module) == []


def test_one_new_token_cannot_change_under_decode(llama: Model) -> None:
    options = {"scope": "decode", "max_new_tokens": 1}
    with pytest.warns(UserWarning, match="with one new token these heads change nothing"):
        texts = go_on(llama, prompts(), soft_gates(llama, 1), **options)
    assert texts == go_on(llama, prompts(), max_new_tokens=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go_on(llama, prompts(), **options)  # no heads, nothing to warn of
        go_on(llama, prompts(), soft_gates(llama, 1), scope="decode")
        go_on(llama, prompts(), soft_gates(llama, 1), max_new_tokens=1)


def test_without_a_cache_the_prompt_cannot_be_spared() -> None:
    model = model_of("openai-gpt")
    with pytest.raises(HeadcountError, match=r'openai-gpt keeps no keys.*use "all"'):
        go_on(model, prompts(), soft_gates(model, 1), scope="decode")
    assert left_behind(model.module) == []


# Sampling


def test_the_same_seed_draws_the_same(llama: Model) -> None:
    texts = go_on(llama, prompts(), temperature=1)
    assert go_on(llama, prompts(), temperature=1) == texts
    assert go_on(llama, prompts(), temperature=1, seed=1) != texts
    assert go_on(llama, prompts(), temperature=2) != texts
    assert texts != go_on(llama, prompts())


def test_draws_do_not_depend_on_the_batch(llama: Model) -> None:
    """Nor on the order, on the padding, or on how many tokens were asked for."""
    gates = soft_gates(llama, 5)
    expected = go_on(llama, prompts(), gates, temperature=1, max_new_tokens=20)
    backwards = go_on(llama, prompts()[::-1], gates[::-1], temperature=1, max_new_tokens=20)
    assert backwards[::-1] == expected
    alone = [
        go_on(llama, [prompt], row, temperature=1, max_new_tokens=20)[0]
        for prompt, row in zip(prompts(), gates, strict=True)
    ]
    assert alone == expected
    shorter = go_on(llama, prompts(), gates, temperature=1, max_new_tokens=3)
    assert ids_of(shorter) == [ids[:3] for ids in ids_of(expected)]


def test_randomness_elsewhere_is_not_disturbed(llama: Model) -> None:
    state = torch.get_rng_state()
    texts = go_on(llama, prompts(), temperature=1)
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(5)
    assert go_on(llama, prompts(), temperature=1) == texts


def frequencies(logits: torch.Tensor, draws: int, **options: Any) -> torch.Tensor:
    """How often each token is drawn, over many prompts."""
    some = [(number,) for number in range(draws)]
    settings = {"temperature": 1.0, "top_p": 1.0, "seed": 3, **options}
    sampling = Sampling(Sampled(**settings), some, 2)
    for _ in range(2):  # each step has numbers of its own
        drawn = sampling(torch.zeros(draws, 1).long(), logits.expand(draws, -1)).argmax(-1)
    return torch.bincount(drawn, minlength=len(logits)) / draws


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_likely(temperature: float) -> None:
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0, -torch.inf, 0.5])
    p = (logits / temperature).softmax(-1)
    n = 20_000
    found = frequencies(logits, n, temperature=temperature)
    assert found[4] == 0
    likely = p > 0
    chi_square = n * ((found - p)[likely] ** 2 / p[likely]).sum()
    assert chi_square < 20.5  # four degrees of freedom, one in 2500


def test_top_p_keeps_the_likeliest() -> None:
    p = torch.tensor([0.1, 0.5, 0.15, 0.25])
    for top_p, kept in (
        (0.4, [1]),
        (0.5, [1]),
        (0.51, [1, 3]),
        (0.8, [1, 2, 3]),
        (1.0, [0, 1, 2, 3]),
    ):
        found = frequencies(p.log(), 4000, top_p=top_p)
        assert found.nonzero().flatten().tolist() == kept
        expected = p[kept] / p[kept].sum()
        torch.testing.assert_close(found[kept], expected, atol=0.03, rtol=0)


@pytest.mark.parametrize("most", [2, 10, 1024])
def test_the_likeliest_tokens_are_those_of_a_stable_sort(
    monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(sampling, "LIKELY", most)
    rng = torch.Generator().manual_seed(0)
    cut = 0
    for mass in (0.05, 0.2, 0.3, 0.4, 0.5, 0.9, 0.999):
        for _ in range(20):
            p = torch.randint(0, 6, (4, 30), generator=rng).double() + 1e-3  # many are equal
            p = p / p.sum(-1, keepdim=True)
            ranked, order = p.sort(descending=True, dim=-1, stable=True)
            before = ranked.cumsum(-1) - ranked
            expected = (before < mass).gather(-1, order.argsort(-1))
            assert torch.equal(sampling.likeliest(p, mass), expected)
            enough = bool((ranked[:, :most].sum(-1) >= mass).all())
            cut += enough and most < 30 and int(expected.sum(-1).max()) > 1
    assert cut or most != 10  # the short way was taken, and more than one token kept


def test_a_model_draws_from_its_softmax(llama: Model) -> None:
    """The first new token of many seeds, against the logits of the prompt."""
    prompt = prompts()[0]
    ids = llama.tokenizer(prompt, return_tensors="pt").input_ids
    with torch.no_grad():
        p = (llama.module(ids).logits[0, -1] / 0.7).softmax(-1)
    drawn = [
        go_on(llama, [prompt], temperature=0.7, max_new_tokens=1, seed=seed)[0].ids
        for seed in range(150)
    ]
    likely = p > p.median()
    share = np.mean([bool(likely[ids[0]]) if ids else bool(likely[2]) for ids in drawn])
    expected = float(p[likely].sum())
    assert abs(share - expected) < 4 * (expected * (1 - expected) / 150) ** 0.5


# Where texts end


def test_an_end_of_the_models_own_ends_a_text(llama: Model) -> None:
    """Known to its generation settings alone, and reached by rows at different steps."""
    long = go_on(llama, prompts())
    module = tiny_model("llama")
    end = long[0].ids[2]
    module.generation_config = GenerationConfig(eos_token_id=[end, 100])
    for text, whole in zip(go_on(wrap(module, toy_tokenizer()), prompts()), long, strict=True):
        reached = end in whole.ids
        assert text.finished == (reached or whole.finished)
        assert text.ids == (whole.ids[: whole.ids.index(end)] if reached else whole.ids)
    assert not long[0].finished


def test_a_stop_string_ends_a_text(llama: Model) -> None:
    """Also one that is written by several tokens; other rows go on."""
    long = go_on(llama, prompts())
    words = long[0].text.split()
    stop = f"{words[1]} {words[2]}"
    lengths = range(len(long[0].ids))
    needed = next(n for n in lengths if stop in llama.tokenizer.decode(long[0].ids[:n]))
    for given in (stop, [stop], ["never", stop]):
        text, *others = go_on(llama, prompts(), stop=given)
        assert text == Generation(long[0].ids[:needed], f"{words[0]} ", True)
        for other, whole in zip(others, long[1:], strict=True):
            assert (other == whole) == (stop not in whole.text)
    assert not long[0].finished


def test_rows_that_stopped_early_are_not_filled_up() -> None:
    """Without any end token, `generate` fills them up with one that might be a word."""
    words = {word: number for number, word in enumerate(["<unk>", "x", "y", *WORDS])}
    inner = Tokenizer(WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = WhitespaceSplit()
    model = wrap(tiny_model("llama"), PreTrainedTokenizerFast(tokenizer_object=inner))
    model.module.generation_config = GenerationConfig()
    long = go_on(model, prompts())
    stop = long[0].text.split()[1]
    text, *_ = go_on(model, prompts(), stop=stop)
    assert text.ids == long[0].ids[:2]
    assert text.finished
    assert not long[0].finished


def test_nothing_but_the_end_is_read_from_the_models_settings(llama: Model) -> None:
    """Beams and penalties would not be greedy, and would not be drawn from the softmax."""
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer())
    own = GenerationConfig(
        num_beams=3,
        repetition_penalty=9.0,
        no_repeat_ngram_size=1,
        suppress_tokens=list(range(50)),
        max_length=3,
        top_k=1,
    )
    module.generation_config = own
    for options in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}):
        assert go_on(model, prompts(), **options) == go_on(llama, prompts(), **options)
        assert module.generation_config is own
    with pytest.raises(HeadcountError):
        go_on(model, prompts(), soft_gates(model, 1), stop=[""])
    assert module.generation_config is own


def test_an_adapted_model_decodes(llama: Model) -> None:
    adapted = peft.get_peft_model(
        tiny_model("llama"), peft.LoraConfig(target_modules=["q_proj"], init_lora_weights=True)
    )
    model = wrap(adapted, toy_tokenizer())
    gates = soft_gates(llama, 5)
    for scope in ("all", "decode"):
        expected = go_on(llama, prompts(), gates, scope=scope)
        assert go_on(model, prompts(), gates, scope=scope) == expected


# What goes wrong


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"scope": "decoding"}, r'no scope "decoding" .*Did you mean "decode"\?'),
        ({"max_new_tokens": 0}, "at least one new token, not 0"),
        ({"temperature": -1}, "temperature must be at least 0"),
        ({"temperature": float("nan")}, "temperature must be at least 0"),
        ({"top_p": 0}, "top_p above 0"),
        ({"top_p": 1.1}, "top_p above 0"),
        ({"stop": ["x", ""]}, "stop string is empty"),
        ({"max_new_tokens": 57}, r"prompt of 9 tokens and 57 new ones do not fit into the 64"),
        ({"heads": np.ones((2, 8))}, "one head set, or one for each of the 5 prompts, not 2"),
        ({"heads": np.ones((5, 7))}, r"shape \(head sets, 8\)"),
        ({"heads": ["3.1"]}, "no head 3.1"),
        ({"prompts": "one text"}, "list of prompts"),
        ({"prompts": ["ba", ""]}, "A prompt has no tokens"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(
    llama: Model, options: dict[str, Any], sentence: str
) -> None:
    some, heads = options.pop("prompts", prompts()), options.pop("heads", None)
    with pytest.raises(HeadcountError, match=sentence):
        go_on(llama, some, heads, **options)


def test_the_whole_context_can_be_used(llama: Model) -> None:
    """The last new token is written, not read."""
    (text,) = go_on(llama, prompts((60,)), max_new_tokens=5)
    assert text.finished or len(text.ids) == 5


def test_ablations_are_not_offered(llama: Model) -> None:
    """There is no corrupted prompt to decode along with, and no mean of what is not written yet."""
    with pytest.raises(HeadcountError, match='generate has no setting "ablation"'):
        go_on(llama, prompts(), ablation="mean")


def test_models_without_tokenizer_or_generate(llama: Model) -> None:
    ids = [llama.tokenizer.encode(prompt) for prompt in prompts()]
    bare = wrap(llama.module, None)
    texts = go_on(bare, ids)
    assert [text.ids for text in texts] == [text.ids for text in go_on(llama, ids)]
    assert {text.text for text in texts} == {""}
    with pytest.raises(HeadcountError, match="no tokenizer"):
        go_on(bare, prompts())
    with pytest.raises(HeadcountError, match="need a tokenizer"):
        go_on(bare, ids, stop="x")
    with pytest.raises(HeadcountError, match="has no `generate`"):
        go_on(replace(llama, module=nn.Module()), ids)


def test_logits_that_are_not_numbers_are_refused() -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer(), name="broken")
    with torch.no_grad():
        module.lm_head.weight[5] = torch.nan
    for options in ({}, {"temperature": 1.0}, {"temperature": 1.0, "top_p": 0.9}):
        with pytest.raises(HeadcountError, match="broken gave logits that are not finite"):
            go_on(model, prompts(), **options)


def test_out_of_memory_halves_the_batch() -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer())
    gates = soft_gates(model, 5)
    expected = {scope: go_on(model, prompts(), gates, scope=scope) for scope in ("all", "decode")}
    fits = [2]

    def allocate(_: Any, args: Any) -> None:
        if len(args[0]) > fits[0]:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    module.model.norm.register_forward_pre_hook(allocate)
    for scope in ("all", "decode"):
        assert go_on(model, prompts(), gates, scope=scope) == expected[scope]
    fits[0] = 0
    with pytest.raises(HeadcountError, match=r"not enough memory .* single example of 16 tokens"):
        go_on(model, prompts(), gates)


@pytest.mark.parametrize("scope", ["all", "decode"])
def test_nothing_is_left_behind_when_it_fails(scope: str) -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer())
    own = module.generation_config
    ignores_padding(model)
    passes = [0]

    def fail(*_: Any) -> None:
        passes[0] += 1
        if passes[0] == 3:
            raise KeyboardInterrupt

    handle = module.model.norm.register_forward_pre_hook(fail)
    module.train()
    with pytest.raises(KeyboardInterrupt):
        go_on(model, prompts(), soft_gates(model, 5), scope=scope)
    handle.remove()
    assert left_behind(module) == []
    assert module.generation_config is own
    assert module.training
