"""From the items of a cognitive function to a task: few-shot prompts, foils and twins.

Every function has the one shape, so that nothing but the content tells functions apart:

    Question: What is the capital of Italy?
    Answer: Rome

    Question: What is the capital of France?
    Answer:                                     → Paris

The solved questions in front come from items that are set aside and never asked. There are three
fixed draws of them; all items of a task have the same ones.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headcount.errors import HeadcountError
from headcount.tasks.cognitive.item import Item
from headcount.tasks.encoding import continuation_ids
from headcount.tasks.task import Bos, Example, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DRAWS = 3
FOILS = 3
MAX_SHOTS = 12  # so many items are set aside for each draw


@dataclass(frozen=True)
class Function:
    """A cognitive function: its name in figures, its level, its items, and how many are shown."""

    key: str
    name: str
    level: Literal["low", "high"]
    shots: int
    items: Callable[[], Sequence[Item]]


def shape(question: str, answer: str | None = None) -> str:
    r"""A question in the one shape, solved or not.

    >>> shape("What is the capital of Italy?", "Rome")
    'Question: What is the capital of Italy?\nAnswer: Rome\n\n'
    """
    return f"Question: {question}\nAnswer:" + ("" if answer is None else f" {answer}\n\n")


def build(
    function: Function,
    tokenizer: PreTrainedTokenizerBase,
    *,
    n: int = 0,
    shots: int,
    draw: int = 0,
    twins: bool = False,
    max_new_tokens: int = 16,
    bos: Bos = "auto",
) -> Task:
    """The task of a function, with `n` of its items (0: all) behind `shots` solved ones.

    The corrupted twin of a prompt is another question of its form with as many tokens and another
    answer. Items that have none under this tokenizer are left out with `twins`.
    """
    if not 0 <= shots <= MAX_SHOTS:
        raise HeadcountError(f"{function.name} has from 0 to {MAX_SHOTS} shots, not {shots}.")
    if not 0 <= draw < DRAWS:
        raise HeadcountError(f"{function.name} has the draws 0 to {DRAWS - 1}, not {draw}.")
    items = list(function.items())
    aside = set_aside(items)
    asked = [item for item in items if item not in set(aside)]
    solved = aside[draw * MAX_SHOTS :][:shots]
    front = "".join(shape(item.question, item.answer) for item in solved)
    starts = {item.answer: _first_token(tokenizer, item.answer) for item in items}
    for item in items:
        starts |= {foil: _first_token(tokenizer, foil) for foil in item.foils}
    lengths = {item: len(tokenizer.encode(shape(item.question))) for item in asked}
    by_form: dict[str, list[Item]] = defaultdict(list)
    for item in sorted(asked, key=_turn):
        by_form[item.template].append(item)
    examples = []
    for item in asked:
        alike = by_form[item.template]
        place = alike.index(item)
        others = alike[place + 1 :] + alike[:place]
        twin = next(
            (o for o in others if lengths[o] == lengths[item] and o.answer != item.answer), None
        )
        if twin is None and twins:
            continue
        examples.append(
            Example(
                id=f"{function.key}-{_turn(item)[:6].hex()}",
                prompt=front + shape(item.question),
                target=f" {item.answer}",
                foils=_foils(item, others, starts),
                corrupted=None if twin is None else front + shape(twin.question),
                template=item.template,
                content=item.content,
            )
        )
    if not 0 <= n <= len(examples):
        raise HeadcountError(f"{function.name} has {len(examples)} items, not {n}: ask for fewer.")
    task = Task(function.key, 1, tuple(examples), bos=bos, max_new_tokens=max_new_tokens)
    return task.subset(n) if n else task


def set_aside(items: Sequence[Item]) -> list[Item]:
    """The items that are shown solved, for all draws: forms in turn, and no answer twice in a row.

    Which ones depends on their contents alone.
    """
    left = sorted(items, key=_turn)
    forms, answers = Counter[str](), Counter[str]()
    chosen: list[Item] = []
    while left and len(chosen) < DRAWS * MAX_SHOTS:
        item = min(left, key=lambda one: (forms[one.template], answers[one.answer]))
        left.remove(item)
        forms[item.template] += 1
        answers[item.answer] += 1
        chosen.append(item)
    return chosen


def _turn(item: Item) -> bytes:
    return hashlib.sha256(f"{item.template}/{item.content}".encode()).digest()


def _first_token(tokenizer: PreTrainedTokenizerBase, answer: str) -> int:
    return continuation_ids(tokenizer, f" {answer}")[0]


def _foils(item: Item, others: Sequence[Item], starts: dict[str, int]) -> tuple[str, ...]:
    """Wrong answers that a first token tells from the right one."""
    found: list[str] = []
    taken = {starts[item.answer]}
    for answer in item.foils or [other.answer for other in others]:
        if starts[answer] not in taken and len(found) < FOILS:
            taken.add(starts[answer])
            found.append(f" {answer}")
    return tuple(found)
