"""Contents dealt to the forms of a task: forms come round evenly, and nothing comes twice."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TypeVar

Form = TypeVar("Form")
Content = TypeVar("Content")


def rounds(
    key: str, seed: int, forms: Sequence[Form], contents: Sequence[Content]
) -> Iterator[tuple[Form, Content]]:
    """All pairs of a form and a content, shuffled: each form once per round.

    >>> pairs = list(rounds("some", 0, ["asked", "told"], [1, 2, 3]))
    >>> len(set(pairs)), sorted(form for form, _ in pairs[:2])
    (6, ['asked', 'told'])
    """
    decks = [
        random.Random(f"{key} {seed} {form}").sample(contents, len(contents)) for form in forms
    ]
    rng = random.Random(f"{key} rounds {seed}")
    for turn in range(len(contents)):
        for place in rng.sample(range(len(forms)), len(forms)):
            yield forms[place], decks[place][turn]
