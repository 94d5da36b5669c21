r"""Where a written answer ends by what it says, beside stop strings and the number of its tokens.

An answer to a problem ends with its box: \boxed{…}, once the braces are balanced and something
stands between them. An empty box is how prompts name the box, and does not count.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from headcount.errors import unknown

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")


def box_end(text: str) -> int | None:
    r"""The place behind the first complete box, or None.

    >>> box_end(r"so \boxed{\frac{1}{2}} it is"), box_end(r"\boxed{} and \boxed{\frac{1}{2}")
    (22, None)
    """
    return next((end for _, end in _boxes(text)), None)


def boxed(text: str) -> str | None:
    r"""What stands in the last complete box, or None.

    >>> boxed(r"first \boxed{3}, then \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    """
    found = [content for content, _ in _boxes(text)]
    return found[-1] if found else None


def _boxes(text: str) -> list[tuple[str, int]]:
    """Content and end of every complete box that is not empty, in the order of the text."""
    found = []
    for start in (match.end() for match in _BOX.finditer(text)):
        depth, place = 1, start
        while depth and place < len(text):
            if text[place] == "\\":
                place += 1  # what follows is the name of a sign, such as \{
            else:
                depth += {"{": 1, "}": -1}.get(text[place], 0)
            place += 1
        content = text[start : place - 1].strip()
        if not depth and content:
            found.append((content, place))
    return found


ENDINGS: dict[str, tuple[str, Callable[[str], int | None]]] = {"boxed": ("}", box_end)}
"""By name: a sign that the last token of an end holds, and the place behind the end, or None."""


def check_ending(name: str) -> None:
    """Refuse an ending that there is not; "" is none."""
    if name and name not in ENDINGS:
        raise unknown("ending", name, ENDINGS)
