"""Kinds of tokens in a problem: digits, operators, conjunctions, and all others."""

from __future__ import annotations

import re
from typing import Literal

TokenClass = Literal["digits", "operators", "conjunctions", "other"]
CLASSES: tuple[TokenClass, ...] = ("digits", "operators", "conjunctions", "other")
_WORDS = "and or but if then so because while when since unless although as than nor yet for"
CONJUNCTIONS = frozenset(_WORDS.split())
_OPERATOR = re.compile(r"(?:[-+*/=<>^×÷±·%]|\\(?:times|cdot|div|pm|frac|sqrt|leq?|geq?))+")


def token_class(text: str) -> TokenClass:
    """The kind of a token by its text; the token " x" counts as a multiplication sign.

    >>> [token_class(text) for text in ("17", " +", " and", " pens")]
    ['digits', 'operators', 'conjunctions', 'other']
    """
    bare = text.strip()
    if bare and all(sign.isdigit() or sign in ".," for sign in bare) and bare.strip(".,"):
        return "digits"
    if _OPERATOR.fullmatch(bare) or text == " x":
        return "operators"
    return "conjunctions" if bare.lower() in CONJUNCTIONS else "other"
