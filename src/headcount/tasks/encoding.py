"""Tasks as token ids, for a given tokenizer.

Tokenisation is a contract. Prompt and target are encoded separately and joined as ids, so no token
spans the border between them, and a prompt has the same ids whatever follows it:

    ids     = [prefix] + [prompt] + [target]
    scored  = the positions that predict the target: len(prompt) - 1, ..., len(ids) - 2

The pieces of a prompt, where an example has them, are also encoded separately and joined as ids: a
text that is inserted between two pieces merges with neither and leaves their ids unchanged.

The task's BOS rule decides the prefix. With "auto" the tokenizer is asked to encode a text, because
its settings do not tell reliably. A prompt begins with one BOS at most, also where its text has one
already. Nothing (EOS, SEP) is ever appended to a prompt.

An example may be a whole text, with no prompt. Then "auto" puts a BOS token if the tokenizer has
one; without it, the first token of each text is read and not scored.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from itertools import accumulate
from typing import Any

from headcount.errors import HeadcountError, counted
from headcount.system.files import digest
from headcount.tasks.task import Example, Task, Tokenizer, quoted

# A continuation is encoded after each of these texts in turn, until one does not merge with it: a
# letter may merge with a text that starts with a letter, a line end with one that starts with it.
ANCHORS = ("a", "\n", ":", "(")
MOST_LEFT_OUT = 0.2  # share of a file's examples that may be left out
LOG = logging.getLogger("headcount.tasks")
MARK = "\ue000"  # separates the pieces of a prompt while the chat template is applied
ADVICE = "choose a text that it can write, with a space in front of a word"


@dataclass(frozen=True)
class Encoded:
    """One example as token ids; `prompt` and `corrupted` include the prefix (BOS).

    `borders` are the indices in the prompt where its pieces start, and where the last piece ends.
    With `opens`, the answers are whole texts that no BOS precedes: `prompt` is the target's first
    token, which is not scored, and the ids of all other answers begin with their own first token.
    """

    example: Example
    prompt: tuple[int, ...]
    target: tuple[int, ...]
    foils: tuple[tuple[int, ...], ...]
    corrupted: tuple[int, ...] | None
    also: tuple[tuple[int, ...], ...] = ()
    borders: tuple[int, ...] = ()
    opens: bool = False

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
        self.front = () if task.chat else front_ids(tokenizer, task)
        self.answer = cache(partial(_continuation, tokenizer))
        self.piece = cache(partial(continuation_ids, tokenizer, inner=True))

    def encode(self, example: Example) -> Encoded:
        """Encode all texts of an example."""
        if example.whole_text:
            return self._whole_text(example)
        borders: tuple[int, ...] = ()
        if example.pieces:
            parts = self._in_chat(example) if self.in_chat else self._plain(example)
            lengths = [len(part) for part in parts[: len(example.pieces) + 1]]
            prompt, borders = sum(parts, ()), tuple(accumulate(lengths))
        else:
            prompt = self.prompt(example, example.prompt)
        return Encoded(
            example,
            prompt,
            self._answer(example, prompt, example.target),
            tuple(self._answer(example, prompt, foil) for foil in example.foils),
            None if example.corrupted is None else self.prompt(example, example.corrupted),
            tuple(self._answer(example, prompt, answer) for answer in example.also),
            borders,
        )

    def _whole_text(self, example: Example) -> Encoded:
        """Encode answers that are whole texts: nothing but BOS stands before them."""
        texts = (example.target, *example.foils, *example.also)
        ids = [_plain_ids(self.tokenizer, text) for text in texts]
        for text, tokens in zip(texts, ids, strict=True):
            if len(tokens) < (1 if self.front else 2):
                raise HeadcountError(
                    f"The text {quoted(text)} of example {quoted(example.id)} has "
                    f"{counted(len(tokens), 'token')}, so that no token of it can be predicted: "
                    "write a longer text."
                )
        target, *others = ids
        foils, also = tuple(others[: len(example.foils)]), tuple(others[len(example.foils) :])
        if self.front:
            return Encoded(example, self.front, target, foils, None, also)
        return Encoded(example, target[:1], target[1:], foils, None, also, opens=True)

    def prompt(self, example: Example, text: str) -> tuple[int, ...]:
        """The ids of a prompt, with its prefix."""
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
        return one_bos(self.tokenizer, self.front + ids)

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
        front = self.front if one_bos(self.tokenizer, both := self.front + start) == both else ()
        return [front, start, *map(self._piece, others)]

    def _in_chat(self, example: Example) -> list[tuple[int, ...]]:
        """The ids that the template writes first, those of each piece, and those it writes last."""
        texts = [piece if isinstance(piece, str) else "" for piece in example.pieces]
        if any(MARK in text for text in texts):
            raise HeadcountError(
                f"The prompt of example {quoted(example.id)} contains the character U+E000, "
                "which headcount uses to find the pieces of a prompt in a chat: remove it."
            )
        written = in_chat(self.tokenizer, MARK + MARK.join(texts) + MARK)
        front, *inside, end = written.split(MARK)
        if inside != texts:
            raise HeadcountError(
                "The tokenizer's chat template changes the user's message, so that the pieces of a "
                "prompt cannot be found in it: set chat to False."
            )
        pieces = (*example.pieces, end)  # the end of the template continues the text as well
        first = one_bos(self.tokenizer, _plain_ids(self.tokenizer, front))
        return [first, *map(self._piece, pieces)]

    def _piece(self, piece: str | tuple[int, ...]) -> tuple[int, ...]:
        if isinstance(piece, str):
            return self.piece(piece) if piece else ()
        return piece


def no_corrupted(example: Example) -> HeadcountError:
    """The error for an example without a corrupted prompt."""
    return HeadcountError(
        f"Example {quoted(example.id)} has no corrupted prompt: choose a task that has them, or "
        'another ablation, such as "zero".'
    )


def no_foil(example: Example, what: str) -> HeadcountError:
    """The error for an example without a foil, which `what` needs."""
    return HeadcountError(
        f"Example {quoted(example.id)} has no foil, and {what} needs one: choose a task with "
        "foils, or another metric."
    )


def require_corrupted(encoded: Iterable[Encoded]) -> None:
    """Refuse examples without a corrupted prompt that aligns, token by token, with the prompt."""
    for prompt in encoded:
        if prompt.corrupted is None:
            raise no_corrupted(prompt.example)
        if len(prompt.corrupted) != len(prompt.prompt):
            raise HeadcountError(
                f"The corrupted prompt of example {quoted(prompt.example.id)} has "
                f"{len(prompt.corrupted)} tokens and its prompt {len(prompt.prompt)}: "
                f"make them equally long (up to {MOST_LEFT_OUT:.0%} of the prompts of a file may "
                'differ, and are left out), or choose another ablation, such as "zero".'
            )
        if prompt.corrupted == prompt.prompt:
            raise HeadcountError(
                f"The corrupted prompt of example {quoted(prompt.example.id)} has the same tokens "
                "as its prompt, because the tokenizer does not know the words in which they "
                "differ: change these words."
            )


def leave_out_unaligned(task: Task, tokenizer: Tokenizer, equal: Collection[str]) -> Task:
    """The task without examples whose corrupted prompt does not align with the prompt.

    `equal` are the ids of further examples to leave out: their corrupted prompts are their prompts.
    The sentence that says how many also goes into the log. If more than `MOST_LEFT_OUT` of all
    examples would be left out, all stay, and ablations that need corrupted prompts refuse them.
    """
    if not equal and all(example.corrupted is None for example in task):
        return task
    encoder = _Encoder(task, tokenizer)

    def aligned(example: Example) -> bool:
        if example.corrupted is None:
            return example.id not in equal
        prompt, corrupted = (
            encoder.prompt(example, text) for text in (example.prompt, example.corrupted)
        )
        return len(prompt) == len(corrupted) and prompt != corrupted

    kept = tuple(example for example in task if aligned(example))
    dropped = len(task) - len(kept)
    if not 0 < dropped <= MOST_LEFT_OUT * len(task):
        return task
    LOG.warning(
        "headcount: %d of the %d examples of %s are left out, because their corrupted prompts have "
        "another number of tokens than their prompts, or the same tokens, for this tokenizer.",
        *(dropped, len(task), task.name),
    )
    return replace(task, examples=kept, parameters={**task.parameters, "left_out": dropped})


def require_foils(encoded: Iterable[Encoded], what: str, *, whole: bool = False) -> None:
    """Refuse examples without a foil, or with a foil whose first token starts a right answer.

    The difference between the logits of two equal tokens is 0, whatever the model does. With
    `whole`, only a foil with all the tokens of a right answer is refused.
    """
    end = None if whole else 1
    equal = "have the same tokens" if whole else "start with the same token"
    other = "choose another foil"
    advice = other if whole else f"{other}, or a metric of whole answers, such as choice"
    for prompt in encoded:
        example = prompt.example
        if not prompt.foils:
            raise no_foil(example, what)
        target = (*prompt.prompt, *prompt.target) if prompt.opens else prompt.target
        right = {target[:end]: example.target}
        right |= {ids[:end]: text for text, ids in zip(example.also, prompt.also, strict=True)}
        for text, ids in zip(example.foils, prompt.foils, strict=True):
            if ids[:end] in right:
                raise HeadcountError(
                    f"The target {quoted(right[ids[:end]])} and the foil {quoted(text)} of "
                    f"example {quoted(example.id)} {equal}, so {what} cannot tell them apart: "
                    f"{advice}."
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


def front_ids(tokenizer: Tokenizer, task: Task) -> tuple[int, ...]:
    """The prefix of every prompt by the task's BOS rule, without a chat template.

    Before whole texts, "auto" puts a BOS token if the tokenizer has one: the first token of a text
    can be predicted only from something before it.
    """
    whole_texts = task.examples[0].whole_text
    if task.bos == "never" or (whole_texts and task.bos == "auto" and not has_bos(tokenizer)):
        return ()
    if whole_texts and task.bos == "auto":
        return (int(tokenizer.bos_token_id),)
    if task.bos == "always":
        if not has_bos(tokenizer):
            raise HeadcountError(
                f'The task "{task.name}" asks for a BOS token and the tokenizer has none: set bos '
                'to "auto" or "never".'
            )
        return (int(tokenizer.bos_token_id),)
    return own_prefix(tokenizer, task.examples[0].prompt)


def own_prefix(tokenizer: Tokenizer, text: str) -> tuple[int, ...]:
    """The ids that the tokenizer puts in front of a text by itself, such as BOS."""
    plain = _plain_ids(tokenizer, text)
    full = tuple(tokenizer.encode(text))
    for start in range(len(full) - len(plain) + 1):
        if full[start : start + len(plain)] == plain:
            return full[:start]
    raise HeadcountError(
        "The tokenizer changes a text when it adds its special tokens, so the tokens that it puts "
        'in front cannot be told: set bos to "always" or "never".'
    )


def has_bos(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer has a BOS token."""
    return tokenizer.bos_token_id is not None


def one_bos(tokenizer: Tokenizer, ids: tuple[int, ...]) -> tuple[int, ...]:
    """The ids with one BOS in front where there are several.

    A prompt that a chat template wrote may begin with BOS, and the tokenizer adds another one.
    """
    while len(ids) > 1 and ids[0] == ids[1] == tokenizer.bos_token_id:
        ids = ids[1:]
    return ids


def in_chat(tokenizer: Tokenizer, text: str) -> str:
    """The conversation, as the chat template writes it, in which `text` awaits its reply."""
    return str(_chat(tokenizer, text, tokenize=False))


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
