"""Progress with time left, on standard error, silent where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_watchers: list[Callable[[], None]] = []


@contextmanager
def progress(label: str, total: int, *, show: bool, unit: str = "example") -> Iterator[Any]:
    """A bar whose `update(n)` is called for each n finished units."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        def update(self, n: float | None = 1) -> bool | None:
            for watcher in _watchers:
                watcher()
            return super().update(n)

    # Not a terminal (a log, a test): tqdm would print a line per refresh.
    quiet = not show or not sys.stderr.isatty()
    with Bar(total=total, desc=label, unit=unit, disable=quiet, leave=False) as bar:
        yield bar


@contextmanager
def watched(watcher: Callable[[], None]) -> Iterator[None]:
    """Call `watcher` whenever any bar moves: work that has many bars has one line over them."""
    _watchers.append(watcher)
    try:
        yield
    finally:
        _watchers.remove(watcher)
