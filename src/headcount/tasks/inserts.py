r"""Tokens put into a prompt: meaningless ones ("/"), meaningful ones ("he"), or any text.

    insert   the text repeated with spaces between, cut after exactly `length` tokens
    place    before    insert + instruction + problem
             between   instruction + insert + problem
             end       instruction + problem + insert
             random    between two tokens that the seed draws for each problem
             none      no insert

Everything is joined as token ids. Joined as strings, "." and "/" would merge into one token and
change the prompt. Joined as ids, every condition keeps the ids of the original tokens, so that the
prompt without the insert can be found in the prompt with it, token by token.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal, get_args

from headcount.errors import HeadcountError, counted, unknown
from headcount.tasks.encoding import Encoded, continuation_ids, decoded, encode
from headcount.tasks.task import HALF_PAIR, NOT_UNICODE, Task, Tokenizer, quoted

Place = Literal["before", "between", "end", "random", "none"]
PLACES: tuple[Place, ...] = get_args(Place)
LENGTHS = (0, 10, 25, 40, 55, 70)
LONGEST = 100_000


@dataclass(frozen=True)
class Insert:
    """The text that is inserted, the number of its tokens, and its place."""

    text: str = "/"
    length: int = 55
    place: Place = "between"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise unknown("place", self.place, PLACES)
        if HALF_PAIR.search(self.text):
            raise HeadcountError(f"The text of an insert is {NOT_UNICODE}: choose another text.")
        if not 0 <= self.length <= LONGEST:
            raise HeadcountError(
                f"An insert has from 0 to {LONGEST:,} tokens, not {self.length}: ask for fewer."
            )

    @property
    def empty(self) -> bool:
        """Whether nothing is inserted."""
        return self.place == "none" or self.length == 0


@dataclass(frozen=True)
class Inserted:
    """A prompt with an insert: the positions of the original and of the inserted tokens."""

    encoded: Encoded
    original: tuple[int, ...]  # positions of the original tokens
    span: tuple[int, ...]  # positions of the inserted tokens; empty without an insert


def insert_ids(tokenizer: Tokenizer, text: str, length: int) -> tuple[int, ...]:
    """Exactly `length` tokens of `text`, repeated with single spaces between.

    Where the text has several tokens, its last repetition may be cut to reach that number.
    """
    if not text.strip():
        raise HeadcountError("An insert needs a text of at least one character, such as /.")
    times = 1
    while True:
        try:
            ids = continuation_ids(tokenizer, " ".join([text] * times), inner=True)
        except HeadcountError as error:
            raise HeadcountError(
                f"The tokenizer has no tokens that decode to the insert {quoted(text)}: choose "
                "another text."
            ) from error
        if len(ids) >= length:
            return ids[:length]
        # Repetitions may merge into longer tokens, so their number is found by trying.
        times = max(times + 1, times * length // len(ids) + 1)
        if times > 100 * length:
            raise HeadcountError(
                f"The tokenizer makes only {counted(len(ids), 'token')} of {times:,} repetitions "
                f"of the insert {quoted(text)}: choose another text, or fewer than {length} tokens."
            )


def with_insert(task: Task, tokenizer: Tokenizer, insert: Insert) -> Task:
    """The task with the insert in every prompt; example ids, contents and splits do not change.

    The prompts must have two pieces, instruction and problem, as those of the maths tasks have.
    """
    if any(len(example.pieces) < 2 for example in task):
        raise HeadcountError(
            "Inserts need prompts in two pieces, an instruction and a problem, and the prompts of "
            f'"{task.name}" have no pieces: choose a task such as word-problems.'
        )
    if insert.empty:
        return task
    ids = insert_ids(tokenizer, insert.text, insert.length)
    examples = []
    for encoded in encode(task, tokenizer):
        prompt, example = encoded.prompt, encoded.example
        start, *inner, end = encoded.borders
        index = {"before": start, "between": inner[0], "end": end}.get(insert.place)
        if index is None:
            index = random.Random(f"{insert.seed} {example.content_id}").randint(start, end)
        parts = (prompt[start:index], ids, prompt[index:end])
        text = "".join(decoded(tokenizer, part) for part in parts)
        examples.append(replace(example, prompt=text, pieces=tuple(filter(None, parts))))
    return replace(task, examples=tuple(examples))


def locate(with_it: Encoded, without: Encoded) -> Inserted:
    """Find the original tokens of a prompt that contains an insert.

    `without` is the same example without the insert; the two may differ in one inserted run only.
    """
    new, old = with_it.prompt, without.prompt
    more = len(new) - len(old)
    for start in with_it.borders or (0,):
        if more >= 0 and new[:start] == old[:start] and new[start + more :] == old[start:]:
            span = tuple(range(start, start + more))
            return Inserted(with_it, (*range(start), *range(start + more, len(new))), span)
    raise HeadcountError(
        f"The prompt of example {quoted(with_it.example.id)} differs from the one without an "
        "insert in more than one inserted run of tokens: give the same example twice."
    )
