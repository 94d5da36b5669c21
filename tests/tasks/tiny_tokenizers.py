"""Small real tokenizers of every kind that causal language models use, trained in a moment.

    byte_level()              GPT-2, Llama 3, SmolLM2, Qwen
    metaspace("always")       SentencePiece as the tokenizers library writes it, dummy prefix "▁"
    metaspace("first")        the same, prefix only at the start of a text (T5, newer Llama 2)
    metaspace("never")        no prefix (Gemma)
    llama2()                  the prefix from a normaliser, which doubles a leading space
    unigram()                 SentencePiece's other model
    word_level()              one token per word, unknown words become <unk>

Each takes `bos`, `eos` (what the tokenizer itself puts around a text) and `chat`.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast

from headcount.tasks.items import tables

IOI = tables("ioi")
NAMES, OBJECTS, PLACES = IOI.words("names"), IOI.words("objects"), IOI.words("places")
TEMPLATES = IOI.lines("templates")

SPECIAL = ["<unk>", "<s>", "</s>", "<|user|>", "<|reply|>"]
CHAT = "{{ bos_token }}{% for m in messages %}<|user|>{{ m['content'] }}\n{% endfor %}<|reply|>"
SENTENCES = [
    template.format(first=name, second=name, giver=name, place=place, object=thing)
    for template in TEMPLATES
    for place, thing in zip(PLACES, OBJECTS, strict=True)
    for name in ("Mary", "John")
] + [f"Then, {name} and {name}. {name}" for name in NAMES for _ in range(9)]


def wrap(
    tokenizer: Tokenizer, *, bos: bool = False, eos: bool = False, chat: str | None = None
) -> PreTrainedTokenizerFast:
    if bos or eos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<s> " * bos + "$A" + " </s>" * eos,
            special_tokens=[(t, tokenizer.token_to_id(t)) for t in ("<s>", "</s>")],
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        additional_special_tokens=["<|user|>", "<|reply|>"],
        chat_template=chat,
    )


@cache
def byte_level(**around: Any) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=2000,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return wrap(tokenizer, **around)


@cache
def _sentencepiece_model(commas: bool) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """Vocabulary and merges of a BPE over words that start with "▁", with one token per byte."""
    tokenizer = Tokenizer(models.BPE())
    words = pre_tokenizers.Metaspace(prepend_scheme="always")
    marks = pre_tokenizers.Split(Regex("[.,]"), "isolated")
    tokenizer.pre_tokenizer = words if commas else pre_tokenizers.Sequence([words, marks])
    trainer = trainers.BpeTrainer(vocab_size=2000, show_progress=False)
    tokenizer.train_from_iterator(SENTENCES, trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    tokens = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *trained["vocab"]]
    merges = [tuple(merge) for merge in trained["merges"]]
    return {token: i for i, token in enumerate(dict.fromkeys(tokens))}, merges


def _sentencepiece(commas: bool = False) -> Tokenizer:
    vocabulary, merges = _sentencepiece_model(commas)
    model = models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True)
    tokenizer = Tokenizer(model)
    tokenizer.add_special_tokens(SPECIAL)
    return tokenizer


@cache
def metaspace(scheme: str, *, commas: bool = False, **around: Any) -> PreTrainedTokenizerFast:
    """With `commas`, words and the marks behind them may be one token."""
    tokenizer = _sentencepiece(commas)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    tokenizer.decoder = decoders.Sequence(
        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]
    )
    return wrap(tokenizer, **around)


@cache
def llama2(**around: Any) -> PreTrainedTokenizerFast:
    tokenizer = _sentencepiece()
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    return wrap(tokenizer, **around)


@cache
def unigram(**around: Any) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    trainer = trainers.UnigramTrainer(
        vocab_size=600, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    return wrap(tokenizer, **around)


@cache
def word_level(names: int = len(NAMES), **around: Any) -> PreTrainedTokenizerFast:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    unknown = {*NAMES[names:]}
    known = [s for s in SENTENCES if unknown.isdisjoint(re.findall(r"\w+", s))]
    trainer = trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(known, trainer)
    return wrap(tokenizer, **around)


def every_kind() -> dict[str, PreTrainedTokenizerFast]:
    """One tokenizer of each kind that writes any text."""
    return {
        "byte-level": byte_level(),
        "byte-level, BOS": byte_level(bos=True, eos=True),
        "metaspace always": metaspace("always", bos=True),
        "metaspace first": metaspace("first"),
        "metaspace never": metaspace("never", bos=True),
        "llama 2": llama2(bos=True),
    }
