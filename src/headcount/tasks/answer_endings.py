r"""Endings: rules that end a written answer by its text, besides stop strings and a token limit.

The answer to a maths problem ends with its box, \boxed{…}, once the braces are balanced and not
empty. Prompts write an empty box when they ask for one, so an empty box does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headcount.errors import unknown

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


def box_end(text: str) -> int | None:
    r"""The index right after the first complete box, or None.

    >>> box_end(r"so \boxed{\frac{1}{2}} it is"), box_end(r"\boxed{} and \boxed{\frac{1}{2}")
    (22, None)
    """
    return next((end for _, end in _boxes(text)), None)


def boxed(text: str) -> str | None:
    r"""The content of the last complete box, or None.

    >>> boxed(r"first \boxed{3}, then \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    contents = [content for content, _ in _boxes(text)]
    return contents[-1] if contents else None


def _boxes(text: str) -> list[tuple[str, int]]:
    """Content and end of every complete box that is not empty, in the order of the text."""
    boxes = []
    for start in (match.end() for match in _BOX.finditer(text)):
        depth, end = 1, start
        while depth and end < len(text):
            if text[end] == "\\":
                end += 1  # skip the escaped character: the brace of \{ opens nothing
            else:
                depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        content = text[start : end - 1].strip()
        if not depth and content:
            boxes.append((content, end))
    return boxes


ENDINGS: dict[str, tuple[str, Callable[[str], int | None]]] = {"boxed": ("}", box_end)}
"""By name: a character that the last token of an ending contains, and the function that finds the
index right after the ending (None where the text has not ended)."""


def check_ending(name: str) -> None:
    """Refuse an unknown ending; "" stands for no ending."""
    if name and name not in ENDINGS:
        raise unknown("ending", name, ENDINGS)
