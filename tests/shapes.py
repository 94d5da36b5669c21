"""Check array shapes, and nothing else, whenever a function of the package is called in a test.

Other annotations are the type checker's business, and tests of bad input pass wrong things on
purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from beartype import beartype

SHAPED = re.compile(r"\b(Bool|Float|Int|Num|Shaped)\[")


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """What jaxtyping's import hook applies to each function."""
    hints = function.__annotations__
    function.__annotations__ = {n: hint for n, hint in hints.items() if SHAPED.search(str(hint))}
    return beartype(function)
