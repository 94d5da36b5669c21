"""Few-shot tasks: from items to prompts with solved questions in front, foils, corrupted prompts.

Every task has the one shape, so that nothing but the content tells tasks apart:

    Question: What is the capital of Italy?
    Answer: Rome

    Question: What is the capital of France?
    Answer:                                     → Paris

The target is all that comes behind the last "Answer:", after one space. What is shown solved is
never asked. Which items are shown is the choice of a family of tasks: `cognitive` has three fixed
draws for all items, `roles` and `maths` draw from a pool for each item.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.encoding import continuation_ids
from headcount.tasks.items import Item
from headcount.tasks.task import Example, Task, Tokenizer, how_many

FOILS = 3


def shape(question: str, answer: str | None = None) -> str:
    r"""A question in the one shape, solved or not.

    >>> shape("What is the capital of Italy?", "Rome")
    'Question: What is the capital of Italy?\nAnswer: Rome\n\n'
    """
    return f"Question: {question}\nAnswer:" + ("" if answer is None else f" {answer}\n\n")


def check_shots(key: str, shots: int, most: int) -> None:
    """Refuse a number of solved items that a task does not have."""
    if not 0 <= shots <= most:
        raise HeadcountError(f"The task {key} has from 0 to {most} shots, not {shots}.")


def few_shot_task(
    key: str,
    asked: Sequence[tuple[Item, Sequence[Item]]],
    tokenizer: Tokenizer,
    name: Callable[[Item], str],
    turn: Callable[[Item], str],
    *,
    n: int = 0,
    need_corrupted: bool = False,
    foils_from: int | None = None,
    **settings: Any,
) -> Task:
    """The task of `n` of the items (0: all) behind solved ones; `settings` are those of a `Task`.

    An item's `name` is in the example's id, and its `turn` its place among those of its form. The
    corrupted prompt of a prompt has the same solved items, and another question of its form with as
    many tokens and another answer; None where there is no such question. With `need_corrupted`,
    items without one are left out. Foils are the item's own, or answers of the next items
    of its form, of which `foils_from` are looked at (None: all).
    """

    @cache
    def first_token(answer: str) -> int:
        return continuation_ids(tokenizer, f" {answer}")[0]

    items = [item for item, _ in asked]
    ids = _numbered([f"{key}-{name(item)[:12]}" for item in items])
    lengths = [len(tokenizer.encode(shape(item.question))) for item in items]
    by_form: dict[str, list[int]] = defaultdict(list)
    for number in sorted(range(len(items)), key=lambda number: turn(items[number])):
        by_form[items[number].template].append(number)
    examples: dict[int, Example] = {}
    for alike in by_form.values():
        for place, number in enumerate(alike):
            item = items[number]
            others = alike[place + 1 :] + alike[:place]
            equally_long = (items[o] for o in others if lengths[o] == lengths[number])
            corrupted = next((other for other in equally_long if other.answer != item.answer), None)
            if corrupted is None and need_corrupted:
                continue
            # A first token tells foils from the right answer and from each other.
            by_token = {first_token(item.answer): item.answer}
            for wrong in item.foils or [items[o].answer for o in others[:foils_from]]:
                if len(by_token) <= max(FOILS, len(item.foils)):
                    by_token.setdefault(first_token(wrong), wrong)
            front = "".join(shape(solved.question, solved.answer) for solved in asked[number][1])
            examples[number] = Example(
                id=ids[number],
                prompt=front + shape(item.question),
                target=f" {item.answer}",
                foils=tuple(f" {wrong}" for wrong in list(by_token.values())[1:]),
                corrupted=None if corrupted is None else front + shape(corrupted.question),
                template=item.template,
                content=item.content,
            )
    return task_of(key, [examples[number] for number in sorted(examples)], n=n, **settings)


def task_of(key: str, examples: Sequence[Example], *, n: int = 0, **settings: Any) -> Task:
    """The task of `n` of the examples (0: all), spread evenly over the templates."""
    chosen = how_many(n, len(examples), f"The task {key}")
    return Task(key, 1, tuple(examples), **settings).subset(chosen)


def _numbered(names: Sequence[str]) -> list[str]:
    """Names, with a number behind one that comes again: items keep theirs when others are added."""
    times = Counter[str]()
    numbered: list[str] = []
    for name in names:
        times[name] += 1
        numbered.append(name if times[name] == 1 else f"{name}-{times[name]}")
    return numbered
