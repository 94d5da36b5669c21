"""Tasks as token ids, for a given tokenizer.

Tokenisation is a contract. Prompt and target are encoded separately and joined as ids, so no token
spans the border between them, and a prompt has the same ids whatever follows it:

    ids     = [prefix] + [prompt] + [target]
    scored  = the positions that predict the target: len(prompt) - 1, ..., len(ids) - 2

The pieces of a prompt, where an example has them, are also encoded separately and joined as ids: a
text that is inserted between two pieces merges with neither and leaves their ids unchanged.

The task's BOS rule decides the prefix. With "auto" the tokenizer is asked to encode a text, because
its settings do not tell reliably. Nothing (EOS, SEP) is ever appended to a prompt.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import accumulate
from typing import Any

from headcount.errors import HeadcountError
from headcount.system.files import digest
from headcount.tasks.task import Example, Task, Tokenizer, quoted

# A continuation is encoded after each of these texts in turn, until one does not merge with it: a
# letter may merge with a text that starts with a letter, a line end with one that starts with it.
ANCHORS = ("a", "\n", ":", "(")
MARK = "\ue000"  # separates the pieces of a prompt while the chat template is applied
ADVICE = "choose a text that it can write, with a space in front of a word"


@dataclass(frozen=True)
class Encoded:
    """One example as token ids; `prompt` and `corrupted` include the prefix (BOS).

    `borders` are the indices in the prompt where its pieces start, and where the last piece ends.
    """

    example: Example
    prompt: tuple[int, ...]
    target: tuple[int, ...]
    foils: tuple[tuple[int, ...], ...]
    corrupted: tuple[int, ...] | None
    also: tuple[tuple[int, ...], ...] = ()
    borders: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens that are run: the target's last token is only predicted."""
        return len(self.prompt) + len(self.target) - 1

    @cached_property
    def key(self) -> str:
        """A fingerprint of all the ids: examples with equal keys have equal values."""
        ids: list[object] = [self.prompt, self.target, self.foils, self.corrupted]
        ids += [self.also] if self.also else []
        return digest(json.dumps(ids))


def encode(task: Task, tokenizer: Tokenizer) -> list[Encoded]:
    """Encode every example of `task`, and check that prompt and answer, joined, decode as written.

    Where a chat template ends in white space, the target loses its leading space: a reply on a new
    line starts with "Mary", not with " Mary".

    >>> from tokenizers import Tokenizer, models, pre_tokenizers
    >>> from transformers import PreTrainedTokenizerFast
    >>> words = Tokenizer(models.WordLevel({"?": 0, "up": 1, "and": 2, "down": 3}, unk_token="?"))
    >>> words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    >>> task = Task("pairs", 1, (Example("0", "up and", " down", (" up",)),))
    >>> (encoded,) = encode(task, PreTrainedTokenizerFast(tokenizer_object=words))
    >>> encoded.prompt, encoded.target, encoded.foils
    ((1, 2), (3,), ((1,),))
    """
    encoder = _Encoder(task, tokenizer)
    return [encoder.encode(example) for example in task]


def continuation_ids(tokenizer: Tokenizer, text: str, *, inner: bool = False) -> tuple[int, ...]:
    """The ids of `text` as it continues a prompt, the same after every prompt.

    Some tokenizers put a space before every text they encode ("▁" of SentencePiece). A continuation
    must not get that space. So the text is encoded after a short anchor text; the result counts if
    the anchor keeps its ids and the remaining ids decode to the text. Within a prompt (`inner`),
    the ids of the text alone are tried first.
    """
    ids = _continuation(tokenizer, text, inner)
    if ids is None:
        raise HeadcountError(
            f"The tokenizer cannot continue a prompt with {quoted(text)}: {ADVICE}."
        )
    return ids


def _continuation(tokenizer: Tokenizer, text: str, inner: bool = False) -> tuple[int, ...] | None:
    anchors = [(anchor, ids) for anchor in ANCHORS if (ids := _plain_ids(tokenizer, anchor))]

    def after_an_anchor() -> tuple[int, ...] | None:
        for anchor, start in anchors:
            both = _plain_ids(tokenizer, anchor + text)
            ids = both[len(start) :]
            if ids and both == start + ids and _continues(tokenizer, start, ids, text):
                return ids
        return None

    def alone() -> tuple[int, ...] | None:
        ids = _plain_ids(tokenizer, text)
        return ids if any(_continues(tokenizer, start, ids, text) for _, start in anchors) else None

    if inner:
        return alone() or after_an_anchor()
    return after_an_anchor() or alone()


class _Encoder:
    """Encodes the examples of one task; a text that occurs several times is encoded once."""

    def __init__(self, task: Task, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.in_chat = task.chat
        self.front = () if task.chat else _front(tokenizer, task)
        self.answer = cache(partial(_continuation, tokenizer))
        self.piece = cache(partial(continuation_ids, tokenizer, inner=True))

    def encode(self, example: Example) -> Encoded:
        """Encode all texts of an example."""
        borders: tuple[int, ...] = ()
        if example.pieces:
            parts = self._in_chat(example) if self.in_chat else self._plain(example)
            lengths = [len(part) for part in parts[: len(example.pieces) + 1]]
            prompt, borders = sum(parts, ()), tuple(accumulate(lengths))
        else:
            prompt = self._prompt(example, example.prompt)
        return Encoded(
            example,
            prompt,
            self._answer(example, prompt, example.target),
            tuple(self._answer(example, prompt, foil) for foil in example.foils),
            None if example.corrupted is None else self._prompt(example, example.corrupted),
            tuple(self._answer(example, prompt, answer) for answer in example.also),
            borders,
        )

    def _prompt(self, example: Example, text: str) -> tuple[int, ...]:
        if self.in_chat:
            inputs = _chat(self.tokenizer, text, tokenize=True, return_dict=True)
            ids = tuple(inputs["input_ids"])
        else:
            ids = _plain_ids(self.tokenizer, text)
        if not ids:
            raise HeadcountError(
                f"The tokenizer makes no token of the prompt {quoted(text)} of example "
                f"{quoted(example.id)}: write a prompt with words in it."
            )
        return self.front + ids

    def _answer(self, example: Example, prompt: tuple[int, ...], text: str) -> tuple[int, ...]:
        before = prompt[len(self.front) :]
        if self.in_chat and decoded(self.tokenizer, before)[-1:].isspace():
            text = text.removeprefix(" ") or text
        ids = self.answer(text)
        if ids is None or not _continues(self.tokenizer, before, ids, text):
            raise HeadcountError(
                f"The tokenizer cannot continue the prompt of example {quoted(example.id)} with "
                f"{quoted(text)}: {ADVICE}."
            )
        return ids

    def _plain(self, example: Example) -> list[tuple[int, ...]]:
        """The prefix and the ids of each piece: the first starts a text, the others continue it."""
        first, *others = example.pieces
        start = _plain_ids(self.tokenizer, first) if isinstance(first, str) else first
        return [self.front, start, *map(self._piece, others)]

    def _in_chat(self, example: Example) -> list[tuple[int, ...]]:
        """The ids that the template writes first, those of each piece, and those it writes last."""
        texts = [piece if isinstance(piece, str) else "" for piece in example.pieces]
        if any(MARK in text for text in texts):
            raise HeadcountError(
                f"The prompt of example {quoted(example.id)} contains the character U+E000, "
                "which headcount uses to find the pieces of a prompt in a chat: remove it."
            )
        written = str(_chat(self.tokenizer, MARK + MARK.join(texts) + MARK, tokenize=False))
        front, *inside, end = written.split(MARK)
        if inside != texts:
            raise HeadcountError(
                "The tokenizer's chat template changes the user's message, so that the pieces of a "
                "prompt cannot be found in it: set chat to False."
            )
        pieces = (*example.pieces, end)  # the end of the template continues the text as well
        return [_plain_ids(self.tokenizer, front), *map(self._piece, pieces)]

    def _piece(self, piece: str | tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(piece, str):
            return self.piece(piece) if piece else ()
        return piece


def require_corrupted(encoded: Iterable[Encoded]) -> None:
    """Refuse examples without a corrupted prompt that aligns, token by token, with the prompt."""
    for prompt in encoded:
        if prompt.corrupted is None:
            raise HeadcountError(
                f"Example {quoted(prompt.example.id)} has no corrupted prompt: choose a task that "
                'has them, or another ablation, such as "zero".'
            )
        if len(prompt.corrupted) != len(prompt.prompt):
            raise HeadcountError(
                f"The corrupted prompt of example {quoted(prompt.example.id)} has "
                f"{len(prompt.corrupted)} tokens and its prompt {len(prompt.prompt)}: "
                'make them equally long, or choose another ablation, such as "zero".'
            )
        if prompt.corrupted == prompt.prompt:
            raise HeadcountError(
                f"The corrupted prompt of example {quoted(prompt.example.id)} has the same tokens "
                "as its prompt, because the tokenizer does not know the words in which they "
                "differ: change these words."
            )


def require_foils(encoded: Iterable[Encoded], what: str) -> None:
    """Refuse examples without a foil, or with a foil whose first token starts a right answer.

    The difference between the logits of two equal tokens is 0, whatever the model does.
    """
    for prompt in encoded:
        example = prompt.example
        if not prompt.foils:
            raise HeadcountError(
                f"Example {quoted(example.id)} has no foil, and {what} needs one: choose a task "
                "with foils, or another metric."
            )
        right = {prompt.target[0]: example.target}
        right |= {ids[0]: text for text, ids in zip(example.also, prompt.also, strict=True)}
        for text, ids in zip(example.foils, prompt.foils, strict=True):
            if ids[0] in right:
                raise HeadcountError(
                    f"The target {quoted(right[ids[0]])} and the foil {quoted(text)} of "
                    f"example {quoted(example.id)} start with the same token, so {what} cannot "
                    "tell them apart: choose another foil, or a metric over whole targets."
                )


def _plain_ids(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def decoded(tokenizer: Tokenizer, ids: tuple[int, ...]) -> str:
    """The exact text of token ids."""
    # Tokenizers that clean up would drop spaces in front of punctuation.
    return str(tokenizer.decode(list(ids), clean_up_tokenization_spaces=False))


def _continues(
    tokenizer: Tokenizer, start: tuple[int, ...], ids: tuple[int, ...], text: str
) -> bool:
    return decoded(tokenizer, start + ids) == decoded(tokenizer, start) + text


def _front(tokenizer: Tokenizer, task: Task) -> tuple[int, ...]:
    """The prefix of every prompt by the task's BOS rule, without a chat template."""
    if task.bos == "never":
        return ()
    if task.bos == "always":
        if tokenizer.bos_token_id is None:
            raise HeadcountError(
                f'The task "{task.name}" asks for a BOS token and the tokenizer has none: set bos '
                'to "auto" or "never".'
            )
        return (int(tokenizer.bos_token_id),)
    text = task.examples[0].prompt
    plain = _plain_ids(tokenizer, text)
    full = tuple(tokenizer.encode(text))
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start]
    raise HeadcountError(
        "The tokenizer changes a text when it adds its special tokens, so the tokens that it puts "
        'in front cannot be told: set bos to "always" or "never".'
    )


def _chat(tokenizer: Tokenizer, text: str, **how: Any) -> Any:
    """Apply the chat template to a conversation in which `text` awaits its reply."""
    try:
        # Some templates print today's date unless they are given one. Measured values must not
        # depend on the day of the run.
        return tokenizer.apply_chat_template(
            [{"role": "user", "content": text}],
            add_generation_prompt=True,
            date_string="26 Jul 2024",
            **how,
        )
    except Exception as error:  # a template is a program, and may raise anything
        reason = " ".join(str(error).split())
        raise HeadcountError(
            f"The tokenizer's chat template cannot be used: {quoted(reason, 200)}; set chat to "
            "False or choose a chat model."
        ) from error
