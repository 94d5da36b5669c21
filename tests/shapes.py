"""Check array shapes, and nothing else, whenever a function of the package is called in a test.

Other annotations are the type checker's business, and tests of bad input pass wrong things on
purpose.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import jaxtyping
from beartype import beartype

SHAPED = re.compile(r"\b(Bool|Float|Int|Num|Shaped)\[")


def check_shapes_of(package: str) -> None:
    """Check the shapes that functions and dataclasses of a package announce, from its import on."""
    # The import hook decorates every function, also hooks that are made a thousand times in a pass.
    jaxtyping.jaxtyped = partial(_if_shaped, jaxtyping.jaxtyped)
    jaxtyping.install_import_hook(package, "shapes.check_shapes")


def check_shapes(function: Callable[..., Any]) -> Callable[..., Any]:
    """What jaxtyping applies to each function in order to check it."""
    function.__annotations__ = _shaped(function.__annotations__)
    return beartype(function)


def _if_shaped(jaxtyped: Callable[..., Any], thing: Any = None, *, typechecker: Any) -> Any:
    if thing is None:
        return partial(_if_shaped, jaxtyped, typechecker=typechecker)
    inner = getattr(thing, "fget", None) or getattr(thing, "__func__", thing)
    if not _shaped(getattr(inner, "__annotations__", {})):
        return thing
    return jaxtyped(thing, typechecker=typechecker)


def _shaped(hints: dict[str, Any]) -> dict[str, Any]:
    return {name: hint for name, hint in hints.items() if SHAPED.search(str(hint))}
