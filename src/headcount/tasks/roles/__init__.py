"""The tasks of the study of head roles: Syntax, Common Sense and Math, with one solved item each.

The prompt shape is that of Nam et al. ("Causal Head Gating", NeurIPS 2025); the items are our own,
and so under the licence of headcount. One solved item, or some, stand in front of each question.
They come from a pool of short items that is set aside and never asked, and are drawn for each
question. What is left is split by content: heads are fitted on the ranking split (train) and tested
on the test split (validation).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headcount.errors import HeadcountError
from headcount.system.files import digest
from headcount.tasks.few_shot import check_shots, few_shot_task
from headcount.tasks.items import Item
from headcount.tasks.roles.items import arithmetic_items, common_sense_items, syntax_items
from headcount.tasks.task import Bos, Task, Tokenizer, of_task, quoted

POOL = 64
MIN_ASKED = 36  # below this, a part could have fewer than ten items
MAX_SHOTS = 8
FOILS_FROM = 50  # items whose answers are looked at for foils
LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class PoolSettings:
    """How many items are asked (0: all), and behind how many of the pool, drawn by a seed."""

    n: int = 0
    shots: int = 1
    seed: int = 0
    max_new_tokens: int = 16
    bos: Bos = "auto"


@dataclass(frozen=True)
class SyntaxSettings(PoolSettings):
    """Solved items have the form of what is asked with `same_form`, if the pool has enough."""

    same_form: bool = True
    max_new_tokens: int = 24


@dataclass(frozen=True)
class ArithmeticSettings(SyntaxSettings):
    """Solutions are longer."""

    max_new_tokens: int = 64


@dataclass(frozen=True)
class CommonSenseSettings(SyntaxSettings):
    """The target is the answer's words; with `letters` options are listed and it is a letter."""

    letters: bool = False
    max_new_tokens: int = 16


def syntax(tokenizer: Tokenizer, settings: SyntaxSettings) -> Task:
    """Syntax: agreement, tense, plural, pronoun, question and negation, behind one solved item."""
    return pool_task("syntax", syntax_items(), tokenizer, settings, settings.same_form)


def arithmetic(tokenizer: Tokenizer, settings: ArithmeticSettings) -> Task:
    """Math: word problems whose target is a whole worked solution, behind one solved item."""
    return pool_task("arithmetic", arithmetic_items(), tokenizer, settings, settings.same_form)


def common_sense(tokenizer: Tokenizer, settings: CommonSenseSettings) -> Task:
    """Common Sense: short questions about everyday things, behind one solved item."""
    items = common_sense_items()
    options = {item: shuffled(item) for item in items} if settings.letters else None
    return pool_task("common-sense", items, tokenizer, settings, settings.same_form, options)


def pool_task(
    key: str,
    items: Sequence[Item],
    tokenizer: Tokenizer,
    settings: PoolSettings,
    same_form: bool = True,
    options: Mapping[Item, Sequence[str]] | None = None,
    **further: Any,
) -> Task:
    """The task of the items, each behind solved ones that are its own.

    With `options`, those of each item are listed and the target is a letter. `further` settings
    are those of a `Task`.
    """
    check_shots(key, settings.shots, MAX_SHOTS)
    if len(items) < POOL + MIN_ASKED:
        raise HeadcountError(
            f"The task {key} has {len(items)} items and needs at least {POOL + MIN_ASKED}: {POOL} "
            "are set aside to be shown solved, and the others are split into two parts."
        )
    shown = {item.content for item in example_pool(items)}
    if options is not None:
        items = [lettered(item, options[item]) for item in items]
    asked = behind_pool(items, shown, settings.shots, settings.seed, same_form)
    return few_shot_task(
        key,
        asked,
        tokenizer,
        name=lambda item: _digest(item.template, item.content),
        turn=lambda item: _digest(item.content),
        n=settings.n,
        foils_from=FOILS_FROM,
        **of_task(settings),
        **further,
    )


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
        order = sorted(range(len(alike)), key=lambda index: sizes[index] > middle)
        turns += [(turn, form, alike[index]) for turn, index in enumerate(order)]
    return [item for _, _, item in sorted(turns, key=lambda turn: turn[:2])[:POOL]]


def behind_pool(
    items: Sequence[Item], shown: set[str], shots: int, seed: int, same_form: bool
) -> list[tuple[Item, list[Item]]]:
    """Each item that is asked with the solved ones in front of it; `shown` are their contents.

    Which ones depends on its content and the seed; with `same_form` they have the item's form
    where the pool has enough of it.
    """
    pool = [item for item in items if item.content in shown]
    by_form: dict[str, list[Item]] = defaultdict(list)
    for item in pool:
        by_form[item.template].append(item)

    def solved(item: Item) -> list[Item]:
        alike = by_form.get(item.template, []) if same_form else []
        drawn = alike if len(alike) >= shots else pool
        return sorted(drawn, key=lambda other: _digest(seed, item.content, other.content))[:shots]

    return [(item, solved(item)) for item in items if item.content not in shown]


def shuffled(item: Item) -> tuple[str, ...]:
    """The answer and the foils in an order that tells nothing, the same each time."""
    options = (item.answer, *item.foils)
    return tuple(sorted(options, key=lambda option: _digest(item.content, option)))


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
    by_letter = dict(zip(LETTERS, options, strict=False))
    listed = "".join(f"\n{letter}. {option}" for letter, option in by_letter.items())
    answer = LETTERS[list(options).index(item.answer)]
    foils = tuple(letter for letter in by_letter if letter != answer)
    return replace(item, question=item.question + listed, answer=answer, foils=foils)


def _digest(*parts: object) -> str:
    return digest("\0".join(map(str, parts)))
