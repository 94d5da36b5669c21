"""From items to a task in the shape of the published study of head roles.

One solved item stands in front of each question; the target is all that comes behind the last
"Answer:", after one space:

    Question: What is the plural of city?
    Answer: cities

    Question: What is the plural of fox?
    Answer:                                     → foxes

The solved items come from a pool of short ones that is set aside and never asked. What is left is
split by content: heads are fitted on the ranking part (train) and tested on the test part
(validation).
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from headcount.errors import HeadcountError
from headcount.tasks.cognitive.item import Item
from headcount.tasks.cognitive.prompt import shape
from headcount.tasks.encoding import continuation_ids
from headcount.tasks.task import Bos, Example, Task, quoted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

POOL = 64
MIN_ASKED = 36  # below this, a part could have fewer than ten items
MAX_SHOTS = 8
FOILS = 3
LETTERS = "ABCDEFGHIJ"


def build(
    key: str,
    items: Sequence[Item],
    tokenizer: PreTrainedTokenizerBase,
    *,
    n: int = 0,
    shots: int = 1,
    seed: int = 0,
    same_form: bool = True,
    options: Mapping[Item, Sequence[str]] | None = None,
    stop: tuple[str, ...] = ("\n",),
    max_new_tokens: int = 32,
    bos: Bos = "auto",
) -> Task:
    """The task of `n` items (0: all), each behind `shots` solved ones that are its own.

    Which ones depends on its content and the seed; with `same_form` they have the item's form
    where the pool has enough of it. With `options`, those of each item are listed and the target
    is a letter. The corrupted twin of a prompt has the same solved items, and another question of
    the form with as many tokens and another answer; None where there is no such question.
    """
    if not 0 <= shots <= MAX_SHOTS:
        raise HeadcountError(f"The task {key} has from 0 to {MAX_SHOTS} shots, not {shots}.")
    if len(items) < POOL + MIN_ASKED:
        raise HeadcountError(
            f"The task {key} has {len(items)} items and needs at least {POOL + MIN_ASKED}: {POOL} "
            "are set aside to be shown solved, and the others are split into two parts."
        )
    shown = {item.content for item in example_pool(items)}
    if options is not None:
        items = [lettered(item, options[item]) for item in items]
    pool = [item for item in items if item.content in shown]
    asked = [item for item in items if item.content not in shown]
    if not 0 <= n <= len(asked):
        raise HeadcountError(f"The task {key} has {len(asked)} items, not {n}: ask for fewer.")
    lengths = [len(tokenizer.encode(shape(item.question))) for item in asked]
    by_form: dict[str, list[int]] = defaultdict(list)
    for place in sorted(range(len(asked)), key=lambda place: _digest(asked[place].content)):
        by_form[asked[place].template].append(place)
    starts = _Starts(tokenizer)
    names = _names(key, asked)
    examples: dict[int, Example] = {}
    for alike in by_form.values():
        for turn, place in enumerate(alike):
            item, others = asked[place], alike[turn + 1 :] + alike[:turn]
            solved = draw(item, pool, shots, seed=seed, same_form=same_form)
            front = "".join(shape(one.question, one.answer) for one in solved)
            twin = next(
                (
                    asked[other]
                    for other in others
                    if lengths[other] == lengths[place] and asked[other].answer != item.answer
                ),
                None,
            )
            examples[place] = Example(
                id=names[place],
                prompt=front + shape(item.question),
                target=f" {item.answer}",
                foils=starts.foils(item, [asked[other].answer for other in others[:50]]),
                corrupted=None if twin is None else front + shape(twin.question),
                template=item.template,
                content=item.content,
            )
    in_order = tuple(examples[place] for place in range(len(asked)))
    task = Task(key, 1, in_order, bos=bos, stop=stop, max_new_tokens=max_new_tokens)
    return task.subset(n) if n else task


def example_pool(items: Sequence[Item]) -> list[Item]:
    """The items that are shown solved and never asked: forms in turn, short items first.

    Short are those of the shorter half of their form. Which ones are taken depends on the contents
    alone.
    """
    by_form: dict[str, list[Item]] = defaultdict(list)
    for item in sorted(items, key=lambda item: _digest(item.content)):
        by_form[item.template].append(item)
    turns = []
    for form, alike in sorted(by_form.items()):
        sizes = [len(item.question) + len(item.answer) for item in alike]
        middle = sorted(sizes)[(len(sizes) - 1) // 2]
        order = sorted(range(len(alike)), key=lambda place: sizes[place] > middle)
        turns += [(turn, form, alike[place]) for turn, place in enumerate(order)]
    return [item for _, _, item in sorted(turns, key=lambda turn: turn[:2])[:POOL]]


def draw(
    item: Item, pool: Sequence[Item], shots: int, *, seed: int = 0, same_form: bool = True
) -> list[Item]:
    """The solved items in front of an item; another seed, others."""
    alike = [one for one in pool if one.template == item.template] if same_form else []
    found = alike if len(alike) >= shots else pool
    return sorted(found, key=lambda one: _digest(seed, item.content, one.content))[:shots]


def shuffled(item: Item) -> tuple[str, ...]:
    """The answer and the foils in an order that tells nothing, the same each time."""
    return tuple(sorted((item.answer, *item.foils), key=lambda one: _digest(item.content, one)))


def lettered(item: Item, options: Sequence[str]) -> Item:
    r"""The item with its options listed and a letter as its answer.

    >>> item = Item("What barks?", "dog", "animal", "barks", ("cat", "cow"))
    >>> asked = lettered(item, ("cow", "dog", "cat"))
    >>> asked.question, asked.answer
    ('What barks?\nA. cow\nB. dog\nC. cat', 'B')
    """
    if len(options) > len(LETTERS) or list(options).count(item.answer) != 1:
        raise HeadcountError(
            f"The question {quoted(item.question)} cannot be asked with letters: it needs its "
            f"answer once among at most {len(LETTERS)} options."
        )
    listed = "".join(f"\n{letter}. {o}" for letter, o in zip(LETTERS, options, strict=False))
    answer = LETTERS[list(options).index(item.answer)]
    foils = tuple(letter for letter in LETTERS[: len(options)] if letter != answer)
    return replace(item, question=item.question + listed, answer=answer, foils=foils)


class _Starts:
    """First tokens of answers, each looked up once."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self.tokenizer = tokenizer
        self.known: dict[str, int] = {}

    def __getitem__(self, answer: str) -> int:
        if answer not in self.known:
            self.known[answer] = continuation_ids(self.tokenizer, f" {answer}")[0]
        return self.known[answer]

    def foils(self, item: Item, others: Sequence[str]) -> tuple[str, ...]:
        """Wrong answers that a first token tells from the right one and from each other."""
        found: list[str] = []
        taken = Counter([self[item.answer]])
        for answer in item.foils or others:
            if len(found) < max(FOILS, len(item.foils)) and not taken[self[answer]]:
                taken[self[answer]] += 1
                found.append(f" {answer}")
        return tuple(found)


def _names(key: str, items: Sequence[Item]) -> list[str]:
    """Ids by content, so that an item keeps its own when others are added."""
    names: list[str] = []
    times = Counter[str]()
    for item in items:
        name = f"{key}-{_digest(item.template, item.content)[:6].hex()}"
        times[name] += 1
        names.append(name if times[name] == 1 else f"{name}-{times[name]}")
    return names


def _digest(*parts: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, parts)).encode()).digest()
