"""The tasks of the study head-roles: Syntax, Common Sense and Math.

The prompt format is that of Nam et al. ("Causal Head Gating", NeurIPS 2025); the items are our own,
under the licence of headcount. One solved item, or several, stand in front of each question. They
are drawn for each question from a pool of short items that are never asked. The other items are
split by content: gates are fitted on the ranking split (train) and tested on the test split
(validation).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from headcount.errors import HeadcountError, counted
from headcount.system.files import digest
from headcount.tasks.few_shot import check_shots, few_shot_task, shape
from headcount.tasks.items import Item
from headcount.tasks.roles.items import arithmetic_items, common_sense_items, syntax_items
from headcount.tasks.task import Bos, Task, Tokenizer, of_task, quoted

POOL = 64
MIN_ASKED = 36  # with fewer items, a split could have fewer than ten
MAX_SHOTS = 8
FOILS_FROM = 50  # items whose answers are tried as foils
LETTERS = "ABCDEFGHIJ"


@dataclass(frozen=True)
class PoolSettings:
    """The number of items (0: all), and of solved items in front, which the seed draws."""

    separator: ClassVar[str] = "\n\n"
    instruction: ClassVar[str] = ""
    pool: ClassVar[int] = POOL
    validation: ClassVar[float] = 0.0
    n: int = 0
    shots: int = 1
    seed: int = 0
    max_new_tokens: int = 16
    bos: Bos = "auto"


@dataclass(frozen=True)
class PublishedSettings(PoolSettings):
    """Rows of published data, and the look of the prompt.

    path         a file, or a data set of the hub (OWNER/NAME), of which `split` is read
    separator    what stands behind a solved item
    instruction  a line in front of all else
    pool         items that are set aside to be shown solved
    validation   share of the other contents in the test split; 0 takes about a half
    """

    path: str = ""
    split: str = "train"
    revision: str = ""
    separator: str = "\n\n"  # type: ignore[misc]  # our own tasks have one look
    instruction: str = ""  # type: ignore[misc]
    pool: int = POOL  # type: ignore[misc]
    validation: float = 0.0  # type: ignore[misc]

    def __post_init__(self) -> None:
        if not (self.pool >= 1 and 0 <= self.validation < 1):
            raise HeadcountError(
                "pool is at least 1 and validation from 0 to below 1, not "
                f"{self.pool} and {self.validation}."
            )


@dataclass(frozen=True)
class SyntaxSettings(PoolSettings):
    """With `same_form`, solved items have the form of the question, if the pool has enough."""

    same_form: bool = True
    max_new_tokens: int = 24


@dataclass(frozen=True)
class ArithmeticSettings(SyntaxSettings):
    """Worked solutions need more new tokens than short answers."""

    max_new_tokens: int = 64


@dataclass(frozen=True)
class CommonSenseSettings(SyntaxSettings):
    """The target is the text of the answer; with `letters`, the letter of a listed option."""

    letters: bool = False
    max_new_tokens: int = 16


def syntax(tokenizer: Tokenizer, settings: SyntaxSettings) -> Task:
    """Syntax: agreement, tense, plural, pronoun, question and negation, with solved items."""
    return pool_task("syntax", syntax_items(), tokenizer, settings, settings.same_form)


def arithmetic(tokenizer: Tokenizer, settings: ArithmeticSettings) -> Task:
    """Math: word problems whose target is a whole worked solution, with solved items."""
    return pool_task("arithmetic", arithmetic_items(), tokenizer, settings, settings.same_form)


def common_sense(tokenizer: Tokenizer, settings: CommonSenseSettings) -> Task:
    """Common Sense: short questions about everyday things, with solved items."""
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
    """Make a task of items, each with solved items of its own in front.

    With `options`, the prompt lists the options of the item and the target is a letter. `further`
    settings are those of a `Task`.
    """
    check_shots(key, settings.shots, MAX_SHOTS)
    if len(items) < settings.pool + MIN_ASKED:
        raise HeadcountError(
            f"The task {key} has {counted(len(items), 'item')} and needs at least "
            f"{settings.pool + MIN_ASKED}: {settings.pool} are set aside to be shown solved, and "
            "the others are split in two; give a file with more items."
        )
    shown = {item.content for item in example_pool(items, settings.pool)}
    if options is not None:
        items = [lettered(item, options[item]) for item in items]
    asked = behind_pool(items, shown, settings.shots, settings.seed, same_form)
    if settings.validation:
        contents = sorted({item.content for item, _ in asked}, key=_digest)
        further["test_contents"] = frozenset(contents[: round(settings.validation * len(contents))])
    return few_shot_task(
        key,
        asked,
        tokenizer,
        name=lambda item: _digest(item.template, item.content),
        turn=lambda item: _digest(item.content),
        n=settings.n,
        foils_from=FOILS_FROM,
        in_front=partial(_front, settings),
        **of_task(settings),
        **further,
    )


def _front(settings: PoolSettings, solved: Sequence[Item]) -> str:
    """The instruction and the solved items in front of a question."""
    front = f"{settings.instruction}\n" if settings.instruction else ""
    return front + "".join(
        f"{shape(item.question)} {item.answer}{settings.separator}" for item in solved
    )


def example_pool(items: Sequence[Item], size: int = POOL) -> list[Item]:
    """The items that are shown solved and never asked: forms in turn, short items first.

    An item is short if it is in the shorter half of its form. The choice depends on the contents
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
    return [item for _, _, item in sorted(turns, key=lambda turn: turn[:2])[:size]]


def behind_pool(
    items: Sequence[Item], shown: set[str], shots: int, seed: int, same_form: bool
) -> list[tuple[Item, list[Item]]]:
    """Pair each item that is asked with the solved items in front of it.

    `shown` holds the contents of the pool. The content of the item and the seed choose the solved
    items; with `same_form` they have the form of the item where the pool has enough of that form.
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
    """The answer and the foils in a fixed order that does not reveal the answer."""
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
