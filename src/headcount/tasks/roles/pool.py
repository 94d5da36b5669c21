"""From items to a task in the shape of the published study of head roles.

One solved item, or some, stand in front of each question. They come from a pool of short items that
is set aside and never asked, and are drawn for each question. What is left is split by content:
heads are fitted on the ranking part (train) and tested on the test part (validation).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headcount.errors import HeadcountError
from headcount.system.files import digest
from headcount.tasks.few_shot import Asked, check_shots, few_shot_task
from headcount.tasks.items import Item
from headcount.tasks.task import Bos, Task, Tokenizer, quoted

POOL = 64
MIN_ASKED = 36  # below this, a part could have fewer than ten items
MAX_SHOTS = 8
FOILS_FROM = 50  # items whose answers are looked at for foils
LETTERS = "ABCDEFGHIJ"


def pool_task(
    key: str,
    items: Sequence[Item],
    tokenizer: Tokenizer,
    *,
    shots: int = 1,
    seed: int = 0,
    same_form: bool = True,
    options: Mapping[Item, Sequence[str]] | None = None,
    **settings: Any,
) -> Task:
    """The task of the items, each behind `shots` solved ones that are its own.

    Which ones depends on its content and the seed; with `same_form` they have the item's form
    where the pool has enough of it. With `options`, those of each item are listed and the target
    is a letter. `settings` are those of `few_shot_task`.
    """
    check_shots(key, shots, MAX_SHOTS)
    if len(items) < POOL + MIN_ASKED:
        raise HeadcountError(
            f"The task {key} has {len(items)} items and needs at least {POOL + MIN_ASKED}: {POOL} "
            "are set aside to be shown solved, and the others are split into two parts."
        )
    shown = {item.content for item in example_pool(items)}
    if options is not None:
        items = [lettered(item, options[item]) for item in items]
    pool = [item for item in items if item.content in shown]
    asked = [
        Asked(
            item,
            draw(item, pool, shots, seed=seed, same_form=same_form),
            name=f"{key}-{_digest(item.template, item.content)[:12]}",
            turn=_digest(item.content),
        )
        for item in items
        if item.content not in shown
    ]
    return few_shot_task(key, asked, tokenizer, foils_from=FOILS_FROM, **settings)


def _role_task(
    key: str,
    items: Callable[[], list[Item]],
    tokenizer: Tokenizer,
    *,
    n: int = 0,
    shots: int = 1,
    seed: int = 0,
    same_form: bool = True,
    max_new_tokens: int,
    bos: Bos = "auto",
) -> Task:
    return pool_task(
        key,
        items(),
        tokenizer,
        n=n,
        shots=shots,
        seed=seed,
        same_form=same_form,
        max_new_tokens=max_new_tokens,
        bos=bos,
    )


def role_factory(
    key: str, items: Callable[[], list[Item]], *, max_new_tokens: int, summary: str
) -> Callable[..., Task]:
    """The factory of a task whose settings are those of `pool_task`."""
    factory = partial(_role_task, key, items, max_new_tokens=max_new_tokens)
    factory.__doc__ = summary
    return factory


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


def _digest(*parts: object) -> str:
    return digest("\0".join(map(str, parts)))
