"""Three of the six small skills in one planted model: some heads serve each of their two forms.

    model = plant_skills(told=["0.1", "1.3"], shown=["0.2", "1.0"])

    The capital of Kenya is                            → Nairobi    heads of `told` look at Kenya
    Input: Peru Output: Lima  Input: Kenya Output:     → Nairobi    heads of `shown` look at Kenya

A head of a form looks at the word that is asked and writes toward its answer by STRENGTH, unless it
sees a sign of the other form, to which it turns instead and which says nothing. The words of an
instruction are the sign of that form; the solved examples are that of the other. All other heads
write where nothing reads. "nobody" is the answer as soon as one of the heads of a form is gone, so
both are needed. The planted skills share no word that is asked or shown. One of these, "city", is
also in an instruction, so the model cannot say more than one city.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from planted import EPSILON, ONE, SHARPNESS, THETA
from toy import word_tokenizer
from transformers import LlamaConfig, LlamaForCausalLM

from headcount import Head, HeadLayout, wrap
from headcount.models.model import Model
from headcount.system.files import digest
from headcount.tasks.items import tables
from headcount.tasks.skills import ASIDE

SKILLS = ("country-capital", "present-past", "singular-plural")
UNABLE = "antonym"  # a skill of which the model knows the words, and no answer
MARKS = ("", "?", ":", ",", ".")  # which may follow a word in a wording
STRENGTH = 6.0
N = 64  # numbers of an answer's code
# The residual stream: what heads read, then what they write.
ASKED, OF_TOLD, OF_SHOWN = 1, 2, 3  # the word that is asked; a sign of either form
WORD, ANSWER = slice(4, 4 + N), slice(4 + N, 4 + 2 * N)
NOBODY, NOWHERE = 4 + 2 * N, slice(5 + 2 * N, 5 + 3 * N)
WIDTH = 5 + 3 * N
# The two dimensions of the pair that no position turns: one for the heads of each form.
UNLESS = {OF_SHOWN: N // 2 - 1, OF_TOLD: N - 1}


@dataclass(frozen=True)
class Words:
    """The words of the planted skills, by what they are."""

    answers: Mapping[str, str]  # of each word that is asked
    shown: frozenset[str]  # words that only solved examples have
    told: frozenset[str]  # words that only instructions have
    others: frozenset[str]

    @classmethod
    def of_skills(cls) -> Words:
        data, answers, shown, told = tables("skills"), dict[str, str](), set[str](), set[str]()
        others = _split(f"{word} {text}" for word, text in data.pairs(UNABLE).items())
        others |= _split(data.lines(f"{UNABLE}, told"))
        for key in SKILLS:
            pairs = data.pairs(key)
            ordered = sorted(pairs, key=lambda word: digest(f"{key} {word}"))
            answers |= {word: pairs[word] for word in ordered[ASIDE:]}
            shown |= {text for word in ordered[:ASIDE] for text in (word, pairs[word])}
            told |= _split(data.lines(f"{key}, told"))
        frames = _split(data.lines("frames"))
        others |= (
            shown | frames | {f"{word}{mark}" for word in data.pairs(UNABLE) for mark in MARKS}
        )
        return cls(answers, *map(frozenset, (shown - told, told - shown - frames, others)))

    @property
    def all(self) -> tuple[str, ...]:
        asked = [f"{word}{mark}" for word in self.answers for mark in MARKS]
        every = [*asked, *self.answers.values(), *self.shown, *self.told, *self.others]
        return ("nobody", *sorted(set(every)))


def _split(lines: Iterable[str]) -> set[str]:
    text = " ".join(lines).replace(r"\n", " ")
    return {word for word in text.split() if "{}" not in word}


def plant_skills(
    told: Collection[str], shown: Collection[str], *, layers: int = 2, heads: int = 8
) -> Model:
    """Plant two heads for each form, by name; a head that is named for both serves both."""
    layout = HeadLayout((heads,) * layers)
    unless = {OF_SHOWN: {layout.parse(name) for name in told}}
    unless |= {OF_TOLD: {layout.parse(name) for name in shown}}
    if any(len(some) != 2 for some in unless.values()):
        raise ValueError("either form needs two heads")
    words = Words.of_skills()
    tokenizer, generator = word_tokenizer(words.all), torch.Generator().manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=-(-WIDTH // heads) * heads,
        intermediate_size=8,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        head_dim=N,
        rms_norm_eps=EPSILON,
        rope_parameters={"rope_type": "default", "rope_theta": THETA},
        max_position_embeddings=128,
        tie_word_embeddings=False,
        bos_token_id=1,
        eos_token_id=2,
    )
    module = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.fill_(EPSILON**0.5 if "norm" in name else 0.0)
        _write_words(module, words, tokenizer, generator)
        for layer, block in enumerate(module.model.layers):
            for index in range(heads):
                signs = [sign for sign, some in unless.items() if Head(layer, index) in some]
                _write_head(block.self_attn, index, signs, generator)
    return wrap(module, tokenizer, name="planted-skills")


def _write_words(module: Any, words: Words, tokenizer: Any, generator: torch.Generator) -> None:
    """What each token says about itself, and what its logit reads."""
    embedding, logits = module.model.embed_tokens.weight, module.lm_head.weight  # (vocab, width)
    ids = tokenizer.convert_tokens_to_ids
    embedding[:, ONE] = 1
    embedding[:, NOBODY] = 1.5 * STRENGTH
    logits[ids("nobody"), NOBODY] = 1
    embedding[ids(sorted(words.told)), OF_TOLD] = 1
    embedding[ids(sorted(words.shown)), OF_SHOWN] = 1
    for word, answer in words.answers.items():
        if word in words.told:
            continue
        code = torch.nn.functional.normalize(torch.randn(N, generator=generator), dim=0)
        asked = ids([f"{word}{mark}" for mark in MARKS])
        embedding[asked, ASKED] = 1
        embedding[asked, WORD] = code
        logits[ids(answer), ANSWER] = code


def _write_head(
    attention: Any, index: int, signs: Collection[int], generator: torch.Generator
) -> None:
    """Let a head look at the word that is asked, unless it sees the sign; or be of no use."""
    own = slice(index * N, (index + 1) * N)
    query, key, value = (getattr(attention, f"{name}_proj").weight[own] for name in "qkv")
    output = attention.o_proj.weight[:, own]
    value[:, WORD] = torch.eye(N)
    if not signs:
        output[NOWHERE] = torch.randn(N, N, generator=generator) / 4
        return
    # A head of both forms turns away from neither.
    place = UNLESS[signs[0]]
    query[place, ONE] = 1
    key[place, ASKED] = SHARPNESS * N**0.5
    if len(signs) == 1:
        key[place, signs[0]] = 2 * SHARPNESS * N**0.5
    output[ANSWER] = STRENGTH * torch.eye(N)
