"""Few-shot tasks: from items to prompts with solved questions in front, foils and twins.

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
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.encoding import continuation_ids
from headcount.tasks.items import Item
from headcount.tasks.task import Example, Task, Tokenizer, how_many

FOILS = 3


@dataclass(frozen=True)
class Asked:
    """An item that is asked behind solved ones.

    name    becomes the example's id; where it comes again, with a number behind it
    turn    the place of the item among those of its form, when a twin and foils are looked for
    """

    item: Item
    solved: Sequence[Item]
    name: str
    turn: str


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
    asked: Sequence[Asked],
    tokenizer: Tokenizer,
    *,
    n: int = 0,
    twins: bool = False,
    foils_from: int | None = None,
    **settings: Any,
) -> Task:
    """The task of `n` of the items (0: all); `settings` are those of a `Task`.

    The corrupted twin of a prompt has the same solved items, and another question of its form with
    as many tokens and another answer; None where there is no such question. With `twins`, items
    without one are left out. Foils are the item's own, or answers of the next items of its form, of
    which `foils_from` are looked at (None: all).
    """

    @cache
    def first_token(answer: str) -> int:
        return continuation_ids(tokenizer, f" {answer}")[0]

    lengths = [len(tokenizer.encode(shape(one.item.question))) for one in asked]
    by_form: dict[str, list[int]] = defaultdict(list)
    for number in sorted(range(len(asked)), key=lambda number: asked[number].turn):
        by_form[asked[number].item.template].append(number)
    names = _names(asked)
    examples: dict[int, Example] = {}
    for alike in by_form.values():
        for turn, number in enumerate(alike):
            item = asked[number].item
            others = alike[turn + 1 :] + alike[:turn]
            equally_long = (asked[o].item for o in others if lengths[o] == lengths[number])
            twin = next((other for other in equally_long if other.answer != item.answer), None)
            if twin is None and twins:
                continue
            # A first token tells foils from the right answer and from each other.
            by_token = {first_token(item.answer): item.answer}
            for wrong in item.foils or [asked[o].item.answer for o in others[:foils_from]]:
                if len(by_token) <= max(FOILS, len(item.foils)):
                    by_token.setdefault(first_token(wrong), wrong)
            front = "".join(shape(one.question, one.answer) for one in asked[number].solved)
            examples[number] = Example(
                id=names[number],
                prompt=front + shape(item.question),
                target=f" {item.answer}",
                foils=tuple(f" {wrong}" for wrong in list(by_token.values())[1:]),
                corrupted=None if twin is None else front + shape(twin.question),
                template=item.template,
                content=item.content,
            )
    return task_of(key, [examples[number] for number in sorted(examples)], n=n, **settings)


def task_of(key: str, examples: Sequence[Example], *, n: int = 0, **settings: Any) -> Task:
    """The task of `n` of the examples (0: all), spread evenly over the templates."""
    chosen = how_many(n, len(examples), f"The task {key}")
    task = Task(key, 1, tuple(examples), **settings)
    return task.subset(chosen)


def _names(asked: Sequence[Asked]) -> list[str]:
    """Ids by content, so that an item keeps its own when others are added."""
    times = Counter[str]()
    names: list[str] = []
    for one in asked:
        times[one.name] += 1
        names.append(one.name if times[one.name] == 1 else f"{one.name}-{times[one.name]}")
    return names
