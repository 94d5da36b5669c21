r"""Endings: rules that end a written answer by its text, besides stop strings and a token limit.

The answer to a maths problem ends with its box, \boxed{…}, once the braces are balanced and not
empty. Prompts write an empty box when they ask for one, so an empty box does not count.

An answer that is asked for as JSON, [{"answer": "…"}], ends with the list, and metrics read the
text inside.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headcount.errors import unknown

_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_LIST = re.compile(r"\[\s*\{[^}]+\}\s*\]")
_ANSWER = re.compile(r'"answer"\s*:\s*("(?:[^"\\]|\\.)*"|[^}]*)', re.DOTALL)


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


def json_end(text: str) -> int | None:
    """The index right after the first complete list with an answer, or None.

    >>> json_end('[{"answer": "16"}] and more'), json_end('[{"answer": "1')
    (18, None)
    """
    found = _LIST.search(text)
    return found.end() if found else None


def json_answer(text: str) -> str:
    """The answer in the last complete list, with or without quotes; without any list, the text.

    >>> json_answer('[{"answer": "$528"}]'), json_answer("[{'a': 1}]"), json_answer("It is 528.")
    ('$528', "[{'a': 1}]", 'It is 528.')
    """
    lists = _LIST.findall(text)
    found = _ANSWER.search(lists[-1]) if lists else None
    if found is None:
        return text
    answer = found[1].strip()
    try:
        return str(json.loads(answer))
    except ValueError:  # models often leave the quotes out
        return answer


@dataclass(frozen=True)
class AnswerEnding:
    """A rule.

    sign    a character that the last token of an ending contains
    end     the index right after the ending; None where the text has not ended
    read    the answer in a text, which metrics compare
    """

    sign: str
    end: Callable[[str], int | None]
    read: Callable[[str], str] = str


# Metrics of maths read the box themselves.
ENDINGS = {"boxed": AnswerEnding("}", box_end), "json": AnswerEnding("]", json_end, json_answer)}


def read_answers(name: str, texts: Sequence[str]) -> list[str]:
    """The answers in the texts, by the ending of this name; "" stands for no ending."""
    return [ENDINGS[name].read(text) for text in texts] if name else list(texts)


def check_ending(name: str) -> None:
    """Refuse an unknown ending; "" stands for no ending."""
    if name and name not in ENDINGS:
        raise unknown("ending", name, ENDINGS)
