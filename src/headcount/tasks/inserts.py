r"""Tokens put into a prompt: meaningless ones ("/"), meaningful ones ("he"), or any text.

    insert   the text again and again, with a space between, cut after exactly `length` tokens
    place    before    insert + instruction + problem
             between   instruction + insert + problem
             end       instruction + problem + insert
             random    at a border of two tokens, drawn for each problem by the seed
             none      nowhere

Everything is joined as token ids. As strings, "." and "/" would merge into one token, and the
prompt would be another one; so every condition keeps the ids of the original tokens, and what an
example was asked without an insert can be found in it again, token by token.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.tasks.encoding import Encoded, continuation_ids, decoded, encode
from headcount.tasks.task import Task, Tokenizer, quoted

Place = Literal["before", "between", "end", "random", "none"]
PLACES: tuple[Place, ...] = get_args(Place)
LENGTHS = (0, 10, 25, 40, 55, 70)
LONGEST = 100_000


@dataclass(frozen=True)
class Insert:
    """What is put in, how many tokens of it, and where."""

    text: str = "/"
    length: int = 55
    place: Place = "between"
    seed: int = 0

    def __post_init__(self) -> None:
        if self.place not in PLACES:
            raise unknown("place", self.place, PLACES)
        if not 0 <= self.length <= LONGEST:
            raise HeadcountError(
                f"An insert has from 0 to {LONGEST:,} tokens, not {self.length}: ask for fewer."
            )

    @property
    def empty(self) -> bool:
        """Whether nothing is put in."""
        return self.place == "none" or self.length == 0


@dataclass(frozen=True)
class Inserted:
    """A prompt with an insert: which of its tokens are the original ones, and which came in."""

    encoded: Encoded
    original: tuple[int, ...]  # places of the original tokens
    span: tuple[int, ...]  # places of the inserted ones; none without an insert


def insert_ids(tokenizer: Tokenizer, text: str, length: int) -> tuple[int, ...]:
    """Exactly `length` tokens of `text` again and again, with single spaces between.

    The text may be more tokens than one: then the last may be cut, and the count still holds.
    """
    if not text.strip():
        raise HeadcountError("An insert is a text with at least one sign: give one, such as /.")
    times = 1
    while True:
        try:
            ids = continuation_ids(tokenizer, " ".join([text] * times), inner=True)
        except HeadcountError as error:
            raise HeadcountError(
                f"The tokenizer makes no tokens of the insert {quoted(text)} that read as it is "
                "written: choose another text."
            ) from error
        if len(ids) >= length:
            return ids[:length]
        # Signs may come together in longer tokens, so the number of times is found by trying.
        times = max(times + 1, times * length // len(ids) + 1)
        if times > 100 * length:
            raise HeadcountError(
                f"The tokenizer makes only {len(ids)} tokens of the insert {quoted(text)}, "
                f"{times:,} times: choose another text, or fewer tokens than {length}."
            )


def with_insert(task: Task, tokenizer: Tokenizer, insert: Insert) -> Task:
    """The task with the insert in every prompt; ids, contents and split stay as they are.

    The prompts must be in pieces, instruction and problem, as those of the problem tasks are.
    """
    if any(len(example.pieces) < 2 for example in task):
        raise HeadcountError(
            "Inserts need prompts in pieces, an instruction and a problem, and the task "
            f'"{task.name}" has none: choose one such as word-problems.'
        )
    if insert.empty:
        return task
    ids = insert_ids(tokenizer, insert.text, insert.length)
    examples = []
    for one in encode(task, tokenizer):
        start, *inner, end = one.borders
        place = {"before": start, "between": inner[0], "end": end}.get(insert.place)
        if place is None:
            place = random.Random(f"{insert.seed} {one.example.content_id}").randint(start, end)
        parts = (one.prompt[start:place], ids, one.prompt[place:end])
        text = "".join(decoded(tokenizer, part) for part in parts)
        examples.append(replace(one.example, prompt=text, pieces=tuple(filter(None, parts))))
    return replace(task, examples=tuple(examples))


def locate(with_it: Encoded, without: Encoded) -> Inserted:
    """Find the original tokens of a prompt that holds an insert.

    `without` is the same example as it was before; all that differs must be one inserted run.
    """
    new, old = with_it.prompt, without.prompt
    more = len(new) - len(old)
    for start in with_it.borders or (0,):
        if more >= 0 and new[:start] == old[:start] and new[start + more :] == old[start:]:
            span = tuple(range(start, start + more))
            return Inserted(with_it, (*range(start), *range(start + more, len(new))), span)
    raise HeadcountError(
        f"The prompt of example {quoted(with_it.example.id)} is not its own with one insert in it."
    )
