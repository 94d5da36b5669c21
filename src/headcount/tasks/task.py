"""Examples and tasks: what a model is asked, and which answers are right or wrong."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
from jaxtyping import Int

from headcount.errors import HeadcountError, counted, unknown
from headcount.system.files import digest
from headcount.tasks.answer_endings import check_ending

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tokenizer: TypeAlias = "PreTrainedTokenizerBase"
Bos = Literal["auto", "always", "never"]
Split = Literal["ranking", "test", "all"]
HALF_PAIR = re.compile("[\ud800-\udfff]")
NOT_UNICODE = "not valid Unicode (half of a surrogate pair)"


@dataclass(frozen=True)
class Example:
    """One prompt, the target that should follow it, and other right and wrong answers.

    prompt      the text right before the target
    target      the right answer; it usually starts with a space, as a word within a text does
    foils       wrong answers, for metrics that compare answers
    also        other right answers, besides the target: for Greater Than, all later years
    corrupted   the counterfactual prompt: the same form without the information that the answer
                needs
    template    the name of the sentence pattern that the prompt fills
    content     what fills the pattern, without words that may be swapped, such as names; the whole
                prompt if empty
    pieces      the prompt in pieces that are encoded separately and joined as token ids: texts, or
                ids of one tokenizer; if empty, the prompt is one piece
    whole_text  the answers are whole texts, such as two sentences to choose from: the prompt is
                empty, and at most a BOS token stands before them

    >>> prompt = "Then, Mary and John went to the garden. John gave a lamp to"
    >>> Example("0", prompt, " Mary", (" John",), template="went", content="garden/lamp").cluster
    ('went', 'garden/lamp')
    """

    id: str
    prompt: str
    target: str
    foils: tuple[str, ...] = ()
    corrupted: str | None = None
    template: str = ""
    content: str = ""
    also: tuple[str, ...] = ()
    pieces: tuple[str | tuple[int, ...], ...] = ()
    whole_text: bool = False

    @property
    def content_id(self) -> str:
        """The content, which decides whether the example is in the ranking or the test split."""
        return self.content or self.prompt or self.target

    @property
    def cluster(self) -> tuple[str, str]:
        """Template and content: what makes examples alike; intervals resample both."""
        return self.template, self.content_id

    def checked(self, where: str) -> Example:
        """Return the example; refuse an unusable one with a sentence that starts with `where`.

        >>> Example("0", "One and one make", "").checked("Line 1")
        Traceback (most recent call last):
        headcount.errors.HeadcountError: Line 1 has an empty target.
        """
        both = next((answer for answer in self.also if answer in self.foils), "")
        texts = (self.id, self.prompt, self.target, *self.foils, *self.also, self.corrupted or "")
        problems = {
            "an empty prompt": not self.prompt and not self.whole_text,
            "a prompt, although its target is a whole text": self.prompt and self.whole_text,
            "a corrupted prompt, although its target is a whole text": (
                self.whole_text and self.corrupted
            ),
            "an empty target": not self.target,
            "an empty foil": "" in self.foils,
            f"the foil {quoted(self.target)}, which is its target": self.target in self.foils,
            "an empty answer": "" in self.also,
            f"{quoted(both)} among its right and its wrong answers": both,
            "an empty corrupted prompt": self.corrupted == "",
            "a corrupted prompt that is equal to its prompt": self.corrupted == self.prompt,
            "an empty piece in its prompt": not all(self.pieces),
            f"text that is {NOT_UNICODE}": HALF_PAIR.search("".join((*texts, *self.cluster))),
        }
        for problem, exists in problems.items():
            if exists:
                raise HeadcountError(f"{where} has {problem}.")
        return self


@dataclass(frozen=True)
class Task:
    """Examples under one name, split once into a *ranking* split and a *test* split.

    Heads are ranked on one split and tested on the other, so no content may be in both. One bit of
    a content's hash decides its split: an example keeps its split when others are added, and tasks
    that share contents split them alike. Only where this would leave less than a quarter of the
    examples in one split (as with few contents), contents are assigned in turn instead, the largest
    first, each to the smaller split. Splits and subsets of a task keep its test contents.

    bos     "auto": what the tokenizer puts before a text; "always" or "never": a BOS token
    chat    wrap each prompt in the tokenizer's chat template, which then decides about BOS
    stop    strings that end a written answer; the answer does not include them
    max_new_tokens  the largest number of tokens of a written answer
    until   a rule that ends an answer by its text (`answer_endings`): "boxed", after \\boxed{…}

    >>> capitals = {"France": " Paris", "Italy": " Rome", "Spain": " Madrid", "Greece": " Athens"}
    >>> task = Task("capitals", 1, tuple(
    ...     Example(land, f"The capital of {land} is", city) for land, city in capitals.items()))
    >>> [[example.id for example in task.split(split)] for split in ("ranking", "test")]
    [['Italy', 'Greece'], ['France', 'Spain']]
    >>> task.clusters.tolist()  # all of one template, each with a content of its own
    [[0, 0], [0, 1], [0, 2], [0, 3]]
    """

    name: str
    version: int
    examples: tuple[Example, ...]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    bos: Bos = "auto"
    chat: bool = False
    stop: tuple[str, ...] = ("\n",)
    max_new_tokens: int = 16
    until: str = ""
    test_contents: frozenset[str] = frozenset()
    """The contents of the test split; if empty, they are chosen from the examples."""

    def __post_init__(self) -> None:
        if not self.examples:
            raise HeadcountError(f'The task "{self.name}" has no examples: give it at least one.')
        if self.bos not in get_args(Bos):
            raise HeadcountError(f'bos is "auto", "always" or "never", not {self.bos!r}.')
        if self.chat and self.bos != "auto":
            raise HeadcountError(
                f'The task "{self.name}" uses a chat template, which decides about BOS itself: '
                f'leave bos at "auto", not "{self.bos}".'
            )
        if self.max_new_tokens < 1 or not all(self.stop):
            raise HeadcountError(
                f'The task "{self.name}" needs max_new_tokens of at least 1, and stop strings that '
                "are not empty."
            )
        if len({example.whole_text for example in self.examples}) > 1:
            raise HeadcountError(
                f'The task "{self.name}" has both whole texts and prompts: make two tasks of it.'
            )
        if self.chat and self.examples[0].whole_text:
            raise HeadcountError(
                f'The task "{self.name}" has whole texts, which are no messages of a chat: set '
                "chat to False."
            )
        check_ending(self.until)
        seen: set[str] = set()
        for example in self.examples:
            example.checked(f'Example {quoted(example.id)} of the task "{self.name}"')
            if example.id in seen:
                raise HeadcountError(
                    f'The task "{self.name}" has two examples with the id {quoted(example.id)}: '
                    "give each its own."
                )
            seen.add(example.id)
        if not self.test_contents:
            object.__setattr__(self, "test_contents", _choose_test_contents(self.examples))

    def __repr__(self) -> str:
        test = sum(example.content_id in self.test_contents for example in self)
        return (
            f"<Task {self.name}: {counted(len(self), 'example')}, {len(self) - test} to rank, "
            f"{test} to test>"
        )

    def __len__(self) -> int:
        return len(self.examples)

    def __iter__(self) -> Iterator[Example]:
        return iter(self.examples)

    @cached_property
    def clusters(self) -> Int[np.ndarray, "examples 2"]:
        """The numbers of each example's template and content, counted in order of appearance."""
        numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
        return np.array(
            [
                [
                    known.setdefault(name, len(known))
                    for known, name in zip(numbers, e.cluster, strict=True)
                ]
                for e in self.examples
            ]
        )

    def split(self, split: Split) -> Task:
        """The task with the examples of one split: "ranking", "test" or "all"."""
        if split not in get_args(Split):
            raise unknown("split", split, get_args(Split))
        if split == "all":
            return self
        if not self.test_contents:
            raise HeadcountError(
                f'The task "{self.name}" cannot be split into a ranking and a test split, because '
                "all its examples share one content: add examples of other content."
            )
        in_test = split == "test"
        chosen = tuple(e for e in self if (e.content_id in self.test_contents) == in_test)
        if not chosen:
            raise HeadcountError(
                f'The task "{self.name}" has no examples in its {split} split: ask for more '
                "examples, or in Python call split() before subset()."
            )
        return replace(self, examples=chosen)

    def subset(self, n: int, *, seed: int = 0) -> Task:
        """The task with `n` of its examples, spread evenly over the templates.

        The choice depends on the examples' ids and the seed alone, so a larger subset contains the
        smaller ones. The examples keep their order.
        """
        if not 1 <= n <= len(self):
            raise HeadcountError(
                f'Cannot take {counted(n, "example")} of the task "{self.name}": it has '
                f"{len(self)}; ask for 1 to {len(self)}."
            )
        ranks: Counter[str] = Counter()
        order: list[tuple[int, str, int]] = []  # round, sort key of the template, example
        shuffled = sorted(range(len(self)), key=lambda i: _digest(seed, self.examples[i].id))
        for index in shuffled:
            template = self.examples[index].template
            order.append((ranks[template], _digest(seed, template), index))
            ranks[template] += 1
        chosen = sorted(index for _, _, index in sorted(order)[:n])
        return replace(self, examples=tuple(self.examples[index] for index in chosen))


def quoted(text: str, limit: int = 60) -> str:
    r"""A text as error messages show it: in quotes, on one line, cut to `limit` characters.

    >>> print(quoted("one\ntwo"))
    "one\ntwo"
    """
    return json.dumps(text if len(text) <= limit else text[: limit - 1] + "…", ensure_ascii=False)


def of_task(settings: object) -> dict[str, Any]:
    """The settings of a factory that it passes on to `Task`."""
    own = ("bos", "chat", "max_new_tokens")
    return {name: value for name, value in vars(settings).items() if name in own}


def how_many(n: int, most: int, owner: str, what: str = "items") -> int:
    """`n`, or `most` where `n` is 0; a number above `most` or below 0 is refused."""
    if not 0 <= n <= most:
        raise HeadcountError(
            f"{owner} has {most} {what}, not {n}: ask for 1 to {most}, or 0 for all."
        )
    return n or most


def _digest(*parts: object) -> str:
    # Python's hash() of a text differs from process to process.
    return digest(json.dumps(parts))


def _choose_test_contents(examples: Sequence[Example]) -> frozenset[str]:
    """Choose the contents of the test split; an empty set where all examples share one content."""
    sizes = Counter(example.content_id for example in examples)
    if len(sizes) < 2:
        return frozenset()
    test = {content for content in sizes if int(_digest(content)[:2], 16) & 1}
    share = sum(sizes[content] for content in test) / len(examples)
    if not 0.25 <= share <= 0.75:
        test.clear()
        balance = 0  # examples in the ranking split minus those in the test split
        for content in sorted(sizes, key=lambda content: (-sizes[content], _digest(content))):
            if balance > 0:
                test.add(content)
                balance -= sizes[content]
            else:
                balance += sizes[content]
    return frozenset(test)
