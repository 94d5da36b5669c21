"""Planted copy heads: a tiny Llama, set by hand, that finds a needle in a haystack.

    planted = plant_needle(copiers=["1.2", "2.0"])
    planted.model, planted.heads

A value has two words. A *copier* looks at the first word of any value, or, right after one, at the
second word, and writes the word that it looks at. As the text holds one value, that is the answer.
All other heads look at all tokens and write where nothing reads. Nothing composes, and positions
play no part (see `planted`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice

import torch
from planted import EPSILON, SHARPNESS, THETA
from tasks.tiny_tokenizers import SPECIAL, wrap
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from headcount import Head, HeadLayout
from headcount import wrap as wrap_model
from headcount.models.model import Model
from headcount.tasks.items import tables
from headcount.tasks.needle import INTRODUCTION, sentences

FIRST, SECOND = tables("needle").words("first"), tables("needle").words("second")
N = len(FIRST) + len(SECOND)
ONE, IS_FIRST, IS_SECOND = 0, 1, 2
WORD, ANSWER, NOWHERE = (slice(3 + place * N, 3 + (place + 1) * N) for place in range(3))
SIZE, WIDTH = N, 3 + 3 * N + 1  # a multiple of 4 heads
UNTURNED = (SIZE // 2 - 1, SIZE - 1)  # one rotary pair, which does not turn
STRENGTH = 12.0


@dataclass(frozen=True)
class PlantedNeedle:
    """A model, and the heads that copy."""

    model: Model
    heads: set[Head]


@cache
def needle_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that has a token for each word of a value."""
    data = tables("needle")
    texts = [INTRODUCTION, *islice(sentences(), 400)]
    texts += [*data.pairs("needles").values(), *data.pairs("questions").values()]
    texts += [f" {word}" for word in (*FIRST, *SECOND) for _ in range(50)]
    texts += [f" the {key}" for key in data.phrases("keys") for _ in range(9)]
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1500,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    inner.train_from_iterator(texts, trainer)
    return wrap(inner)


@torch.no_grad()
def plant_needle(
    copiers: Sequence[str] = ("1.2", "2.0"), *, layers: int = 3, heads: int = 4, reads: int = 512
) -> PlantedNeedle:
    """Plant copiers by name in a model that reads this many tokens."""
    layout, tokenizer = HeadLayout((heads,) * layers), needle_tokenizer()
    chosen = {layout.parse(name) for name in copiers}
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=WIDTH,
        intermediate_size=8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=SIZE,
        rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        max_position_embeddings=reads,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    module = LlamaForCausalLM(config).eval()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in module.named_parameters():
        parameter.fill_(EPSILON**0.5 if "norm" in name else 0.0)
    embedding, logits = module.model.embed_tokens.weight, module.lm_head.weight  # (vocab, width)
    embedding[:, ONE] = 1
    for number, word in enumerate((*FIRST, *SECOND)):
        (token,) = tokenizer.encode(f" {word}")
        embedding[token, IS_FIRST if number < len(FIRST) else IS_SECOND] = 1
        embedding[token, WORD.start + number] = 1
        logits[token, ANSWER.start + number] = 1
    for layer, block in enumerate(module.model.layers):
        attention = block.self_attn
        query, key, value = (
            getattr(attention, f"{name}_proj").weight.view(heads, SIZE, WIDTH) for name in "qkv"
        )
        output = attention.o_proj.weight.view(WIDTH, heads, SIZE)
        for pair, kind in zip(UNTURNED, (IS_FIRST, IS_SECOND), strict=True):
            key[:, pair, kind] = SHARPNESS * SIZE**0.5
        value[:, :, WORD] = torch.eye(N)
        for index in range(heads):
            if Head(layer, index) in chosen:
                query[index, UNTURNED[0], [ONE, IS_FIRST]] = torch.tensor([1.0, -1.0])
                query[index, UNTURNED[1], IS_FIRST] = 1
                output[ANSWER, index] = STRENGTH * torch.eye(N)
            else:
                output[NOWHERE, index] = torch.randn(N, SIZE, generator=generator) / 4
    return PlantedNeedle(wrap_model(module, tokenizer, name="needle-plant"), chosen)
