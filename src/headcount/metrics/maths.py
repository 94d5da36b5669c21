r"""Grading of problems: is what stands in the last box the same as the right answer?

Equivalence is that of `math-verify`, which reads LaTeX and compares with sympy: \frac{1}{2} is 0.5.
What it cannot read is compared as a text. A text without a box is wrong.

The published grader also takes an answer that is a part of the right one as a string ("1" for
"14"). That rule is here under its own name, to compare with; it is not our accuracy.
"""

from __future__ import annotations

import re
import threading
from functools import cache, lru_cache
from typing import Any

from headcount.errors import HeadcountError
from headcount.metrics.text import TextMetric, by_rule
from headcount.tasks.answer_endings import boxed

SECONDS = 5  # for one comparison; sympy may not come to an end
LONGEST = 400  # signs of an answer; nothing that long is one
# Towers of powers are computed in one step that no clock can interrupt.
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
    r"""Whether the last box of `text` holds what `gold` says.

    >>> is_right(r"So it is \boxed{0.5}.", r"\frac{1}{2}")
    True
    """
    answer, right = boxed(text), boxed(gold) or gold.strip()
    return answer is not None and same(answer, right)


@lru_cache(maxsize=10_000)
def same(answer: str, gold: str) -> bool:
    r"""Whether two answers are the same, without boxes around them.

    >>> same("1,000", "1000"), same(r"\text{Tuesday}", "tuesday"), same("13", "12")
    (True, True, False)
    """
    library = _math_verify()
    if plain(answer) == plain(gold):
        return True
    if any(len(text) > LONGEST or _TOWER.search(text) for text in (answer, gold)):
        return False
    # Its clock is a signal, which only the main thread can set.
    main = threading.current_thread() is threading.main_thread()
    seconds = SECONDS if main else None
    read = [
        library.parse(rf"$\boxed{{{text}}}$", parsing_timeout=seconds) for text in (gold, answer)
    ]
    return bool(all(read) and library.verify(*read, timeout_seconds=seconds))


def plain(answer: str) -> str:
    r"""An answer as a text, without what does not change it.

    >>> plain(r"\text{ (C) }"), plain(r"\$1{,}000."), plain(r"90^\circ")
    ('c', '1000', '90')
    """
    text = re.sub(r"\\(?:text|textbf|mbox|mathrm|mathbf)\s*\{([^{}]*)\}", r"\1", answer)
    text = text.replace("dfrac", "frac").replace("tfrac", "frac")
    text = re.sub(r"\\left|\\right|\\[!,;: ]|\\\$|\$|\^\{?\\circ\}?|\\%|%|~", "", text)
    text = re.sub(r"(?<=\d)(?:,|\{,\})(?=\d{3}(?!\d))", "", text)
    text = re.sub(r"\s+", "", text).rstrip(".").lower()
    lone = re.fullmatch(r"\(([a-z])\)", text)  # a choice
    return lone[1] if lone else text


def _or_part(text: str, gold: str) -> bool:
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
    by_rule(_or_part),
    binary=True,
    identity=_version,
    require=_math_verify,
)
