"""Few-shot tasks: items become prompts with solved questions in front, foils, corrupted prompts.

All tasks have the same prompt format, so that they differ in nothing but their content:

    Question: What is the capital of Italy?
    Answer: Rome

    Question: What is the capital of France?
    Answer:                                     → Paris

The target is the text after the last "Answer:", with one leading space. An item that is shown
solved is never asked. Each family of tasks chooses the solved items: `cognitive` shows one of three
fixed draws in front of all items, `roles` and `maths` draw from a pool for each item.
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
    r"""A question in the prompt format, with its answer or without.

    >>> shape("What is the capital of Italy?", "Rome")
    'Question: What is the capital of Italy?\nAnswer: Rome\n\n'
    """
    return f"Question: {question}\nAnswer:" + ("" if answer is None else f" {answer}\n\n")


def solved_front(solved: Sequence[Item]) -> str:
    """Solved items as they stand in front of a question."""
    return "".join(shape(item.question, item.answer) for item in solved)


def check_shots(key: str, shots: int, most: int) -> None:
    """Refuse a number of solved items (shots) that the task cannot show."""
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
    in_front: Callable[[Sequence[Item]], str] = solved_front,
    **settings: Any,
) -> Task:
    """Make a task of `n` items (0: all), each with the solved items in front of it.

    `asked` pairs each item with its solved items. `name` gives the text in the id of an example,
    `turn` the sort key that orders the items of one form. `settings` are those of a `Task`.

    The corrupted prompt has the same solved items, and asks another question of the same form that
    has equally many tokens and another answer; it is None where no such question exists. With
    `need_corrupted`, items without a corrupted prompt are left out. Foils are the item's own, or
    answers of the next items of its form (of `foils_from` items at most). `in_front` writes the
    solved items in front of a question.
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
        for index, number in enumerate(alike):
            item = items[number]
            others = alike[index + 1 :] + alike[:index]
            equally_long = (items[o] for o in others if lengths[o] == lengths[number])
            corrupted = next((other for other in equally_long if other.answer != item.answer), None)
            if corrupted is None and need_corrupted:
                continue
            # Metrics compare first tokens, so no two answers may share theirs.
            by_token = {first_token(item.answer): item.answer}
            for wrong in item.foils or [items[o].answer for o in others[:foils_from]]:
                if len(by_token) <= max(FOILS, len(item.foils)):
                    by_token.setdefault(first_token(wrong), wrong)
            front = in_front(asked[number][1])
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
    """Make a task of `n` examples (0: all), spread evenly over the templates."""
    chosen = how_many(n, len(examples), f"The task {key}")
    return Task(key, 1, tuple(examples), **settings).subset(chosen)


def _numbered(names: Sequence[str]) -> list[str]:
    """Append a number to a repeated name, so that ids stay as they are when items are added."""
    times = Counter[str]()
    numbered: list[str] = []
    for name in names:
        times[name] += 1
        numbered.append(name if times[name] == 1 else f"{name}-{times[name]}")
    return numbered
