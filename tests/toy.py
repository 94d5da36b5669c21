"""A tokenizer of whole words, and a task of random sentences for models with random weights.

    model = wrap(tiny_model("llama"), toy_tokenizer())
    task = toy_task(n=12)

What the sentences say means nothing to a random model; they differ in all that the engine must keep
apart: length, template, number of target tokens, foils and corrupted prompts.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from headcount.tasks import Example, Task

WORDS = tuple(f"{a}{b}" for a in "bdfgklmnprst" for b in ("a", "e", "i", "o", "u", "ai"))
LENGTHS = (5, 8, 11)  # words of each template's prompts; windows of tiny models hold 8


@cache
def word_tokenizer(words: Sequence[str]) -> PreTrainedTokenizerFast:
    """One token per word, in this order after <unk>, <s> and </s>; it adds nothing to a text."""
    vocabulary = {word: number for number, word in enumerate(("<unk>", "<s>", "</s>", *words))}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>"
    )


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer that fits the vocabulary of `tiny_model`."""
    return word_tokenizer(WORDS)


def toy_task(
    n: int = 12,
    *,
    seed: int = 0,
    targets: Sequence[int] = (1, 2),
    foils: int = 1,
    templates: bool = True,
    lengths: Sequence[int] = LENGTHS,
) -> Task:
    """Random sentences: lengths, target lengths and contents all come round."""
    rng = random.Random(seed)
    examples = []
    for number in range(n):
        length = lengths[number % len(lengths)]
        words = [rng.choice(WORDS) for _ in range(length)]
        corrupted = [*words[:1], *(rng.choice(WORDS) for _ in words[1:])]
        answers = rng.sample(WORDS, targets[number % len(targets)] + foils)
        wrong = answers[:foils]
        examples.append(
            Example(
                id=f"e{number}",
                prompt=" ".join(words),
                target="".join(f" {word}" for word in answers[foils:]),
                foils=tuple(f" {word}" for word in wrong),
                corrupted=" ".join(corrupted),
                template=f"t{length}" if templates else "",
                content=f"c{number // 2}",
            )
        )
    return Task(f"toy-{seed}", 1, tuple(examples))
