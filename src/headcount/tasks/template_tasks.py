"""What the tasks of sentence templates share: one-token words, an even deal, twins of equal length.

Words that a tokenizer writes as one token each can be swapped without moving anything else.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TypeVar

from headcount.errors import HeadcountError
from headcount.tasks.encoding import continuation_ids
from headcount.tasks.task import Tokenizer

MAX_DRAWS = 100  # of words for one prompt and its twin, before a tokenizer is given up

Form = TypeVar("Form")
Content = TypeVar("Content")


def single_tokens(tokenizer: Tokenizer, texts: Sequence[str], before: str = " ") -> dict[str, int]:
    """Those of `texts` that are one token behind `before`, with their ids; no id comes twice."""
    known: dict[str, int] = {}
    for text in texts:
        try:
            ids = continuation_ids(tokenizer, before + text)
        except HeadcountError:  # the tokenizer cannot write it at all
            continue
        if len(ids) == 1 and ids[0] not in known.values():
            known[text] = ids[0]
    return known


def enough_single_tokens(
    tokenizer: Tokenizer, texts: Sequence[str], kind: str, task: str, least: int
) -> dict[str, int]:
    """The words that are one token each, or a sentence where a task has too few of them."""
    known = single_tokens(tokenizer, texts)
    if len(known) < least:
        raise HeadcountError(
            f"Only {len(known)} of our {len(texts)} {kind} are one token for this tokenizer, and "
            f"{task} needs {least}: choose another task, or bring yours as a JSON Lines file."
        )
    return known


def deal(
    key: str, task: str, n: int, seed: int, forms: Sequence[Form], contents: Sequence[Content]
) -> Iterator[tuple[Form, Content]]:
    """`n` different pairs of a form and a content, shuffled: each form comes once per round.

    >>> pairs = list(deal("some", "Some", 5, 0, ["asked", "told"], [1, 2, 3]))
    >>> len(set(pairs)), sorted(form for form, _ in pairs[:2])
    (5, ['asked', 'told'])
    """
    most = len(forms) * len(contents)
    if not 1 <= n <= most:
        raise HeadcountError(f"{task} has from 1 to {most} different examples, not {n}.")
    decks = [
        random.Random(f"{key} {seed} {form}").sample(contents, len(contents)) for form in forms
    ]
    rng = random.Random(f"{key} rounds {seed}")
    pairs = (
        (forms[number], decks[number][turn])
        for turn in range(len(contents))
        for number in rng.sample(range(len(forms)), len(forms))
    )
    return islice(pairs, n)


def no_twin(pattern: str, kind: str) -> HeadcountError:
    """What to say where no prompt and twin of equal length was found."""
    return HeadcountError(
        f'Found no prompt and twin of equal length for the template "{pattern}" in {MAX_DRAWS} '
        f"draws: this tokenizer writes a {kind} differently from place to place, so choose another "
        "task."
    )
