"""Progress with time left, on standard error, silent where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(label: str, total: int, *, show: bool, unit: str = "example") -> Iterator[Any]:
    """A bar whose `update(n)` is called for each n finished units."""
    from tqdm import tqdm

    # Neither a terminal nor a notebook (a log, a test): tqdm would print a line per refresh.
    quiet = not show or not (sys.stderr.isatty() or "ipykernel" in sys.modules)
    with tqdm(total=total, desc=label, unit=unit, disable=quiet, leave=False) as bar:
        yield bar
