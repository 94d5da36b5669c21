"""At which token positions gates act: everywhere, or only late, where the answer is predicted.

all        every position
last       the last position of the prompt, which predicts the target's first token
answer     the positions that predict the target's tokens
START:STOP the positions of the prompt in this slice, as in Python: -8: are the last eight
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks import Encoded

NAMED = ("all", "last", "answer")


def read_positions(given: Any) -> str:
    """The positions as a text, which is part of the store's key.

    >>> read_positions(slice(-8, None)), read_positions("0:4"), read_positions("last")
    ('-8:', '0:4', 'last')
    """
    if isinstance(given, slice):
        ends = [given.start, given.stop]
        if given.step in (None, 1) and all(end is None or type(end) is int for end in ends):
            return ":".join("" if end is None else str(end) for end in ends)
    elif isinstance(given, str):
        if given in NAMED:
            return given
        ends = given.split(":")
        try:
            if len(ends) == 2:
                return ":".join(str(int(end)) if end.strip() else "" for end in ends)
        except ValueError:
            pass
    raise HeadcountError(
        f"Cannot gate at the positions {given!r}: give one of {', '.join(NAMED)}, or a slice of "
        "the prompt's tokens, such as -8: for the last eight."
    )


def acting(positions: str, prompt: int, target: int) -> range:
    """The positions of a text at which gates act; the text is a prompt and its target.

    >>> acting("answer", prompt=10, target=3), acting("-2:", prompt=10, target=3)
    (range(9, 12), range(8, 10))
    """
    if positions == "all":
        return range(prompt + target - 1)
    if positions == "answer":
        return range(prompt - 1, prompt + target - 1)
    if positions == "last":
        return range(prompt - 1, prompt)
    start, stop = (int(end) if end else None for end in positions.split(":"))
    return range(prompt)[start:stop]


def check_acting(positions: str, examples: Iterable[Encoded]) -> None:
    """Refuse positions that some prompt does not have."""
    for example in examples:
        if not acting(positions, len(example.prompt), len(example.target)):
            raise HeadcountError(
                f'The prompt of example "{example.example.id}" has {len(example.prompt)} tokens, '
                f"and none of them is in the positions {positions}: choose other positions."
            )
