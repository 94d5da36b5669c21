"""Progress bars with the time left, on standard error; hidden in logs and tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(label: str, total: int, *, show: bool, unit: str = "example") -> Iterator[Any]:
    """A bar whose `update(n)` is called for each n finished units."""
    from tqdm import tqdm

    class ProgressBar(tqdm):  # type: ignore[type-arg]
        monitor_interval = 0  # tqdm would leave a thread behind that watches for slow bars

    # Into a log, tqdm would print a line per refresh.
    quiet = not (show and watched())
    with ProgressBar(total=total, desc=label, unit=unit, disable=quiet, leave=False) as bar:
        yield bar


def watched() -> bool:
    """Whether somebody sees standard error: in a terminal, or in a notebook."""
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel; IPython or marimo may be imported elsewhere."""
    ipython, marimo = sys.modules.get("IPython"), sys.modules.get("marimo")
    shell = ipython.get_ipython() if ipython is not None else None
    in_marimo = marimo is not None and marimo.running_in_notebook()
    return getattr(shell, "kernel", None) is not None or in_marimo


def duration(seconds: float) -> str:
    """A time in words, rounded.

    >>> duration(50), duration(600), duration(9000)
    ('50 seconds', '10 minutes', '2.5 hours')
    """
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
