r"""Grading of maths problems: is the answer in the last \boxed{} equal to the right one?

`math-verify` decides, which reads LaTeX and compares with sympy: \frac{1}{2} equals 0.5. Answers
that it cannot read are compared as texts. A text without a box is wrong.

The published grader also accepts an answer that is a substring of the right one ("1" for "14").
This rule has its own name, for comparison with the paper; it is not our accuracy.
"""

from __future__ import annotations

import re
import threading
from functools import cache, lru_cache
from typing import Any

from headcount.errors import HeadcountError
from headcount.metrics.text import TextMetric, by_rule
from headcount.tasks.answer_endings import boxed

SECONDS = 5  # limit for one comparison, since sympy may never finish
LONGEST = 400  # characters: a longer text is not an answer
# Huge powers and factorials are computed in one step that the time limit cannot interrupt.
_TOWER = re.compile(r"\^[^+\-=,]*\^|\^\{?\d{4}|\d{400}|!\s*!|\d{4}!")


@cache
def _math_verify() -> Any:
    try:
        import math_verify
    except ImportError as error:
        raise HeadcountError(
            "Grading problems needs math-verify: run pip install 'headcount[math]'."
        ) from error
    return math_verify


def is_right(text: str, gold: str) -> bool:
    r"""Whether the last box of `text` holds the answer `gold`.

    >>> is_right(r"So it is \boxed{0.5}.", r"\frac{1}{2}")
    True
    """
    answer, right = boxed(text), boxed(gold) or gold.strip()
    return answer is not None and same(answer, right)


@lru_cache(maxsize=10_000)
def same(answer: str, gold: str) -> bool:
    r"""Whether two answers, given without boxes, are the same.

    >>> same("1,000", "1000"), same(r"\text{Tuesday}", "tuesday"), same("13", "12")
    (True, True, False)
    """
    library = _math_verify()
    if plain(answer) == plain(gold):
        return True
    if any(len(text) > LONGEST or _TOWER.search(text) for text in (answer, gold)):
        return False
    # math-verify's time limit uses a signal, which only the main thread can set.
    main = threading.current_thread() is threading.main_thread()
    seconds = SECONDS if main else None
    parsed = [
        library.parse(rf"$\boxed{{{text}}}$", parsing_timeout=seconds) for text in (gold, answer)
    ]
    return bool(all(parsed) and library.verify(*parsed, timeout_seconds=seconds))


def plain(answer: str) -> str:
    r"""An answer as a text, without LaTeX commands and units that do not change its value.

    >>> plain(r"\text{ (C) }"), plain(r"\$1{,}000."), plain(r"90^\circ")
    ('c', '1000', '90')
    """
    text = re.sub(r"\\(?:text|textbf|mbox|mathrm|mathbf)\s*\{([^{}]*)\}", r"\1", answer)
    text = text.replace("dfrac", "frac").replace("tfrac", "frac")
    text = re.sub(r"\\left|\\right|\\[!,;: ]|\\\$|\$|\^\{?\\circ\}?|\\%|%|~", "", text)
    text = re.sub(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\s+", "", text).rstrip(".").lower()
    choice = re.fullmatch(r"\(([a-z])\)", text)
    return choice[1] if choice else text


def _is_right_or_substring(text: str, gold: str) -> bool:
    answer, right = boxed(text), boxed(gold) or gold.strip()
    return answer is not None and (answer in right or same(answer, right))


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("math-verify")
    except PackageNotFoundError:
        return "not installed"


MATHS = TextMetric(
    "maths",
    "Accuracy (math-verify)",
    by_rule(is_right),
    binary=True,
    identity=_version,
    require=_math_verify,
)
PUBLISHED_MATHS = TextMetric(
    "published_maths",
    "Accuracy (published rule: also a part of the right answer)",
    by_rule(_is_right_or_substring),
    binary=True,
    identity=_version,
    require=_math_verify,
)
