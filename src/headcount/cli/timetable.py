"""How long several parts of a work take in all: what was expected, mended by what was seen."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from headcount.system.progress import watched

EVERY = 60  # seconds between two lines of a log
TELLING = 60  # seconds that a part must be expected to take, to correct the others


class Timetable:
    """Expected seconds of each part; parts that took longer slow down those to come.

    One that was quicker than expected does not promise as much of the others: answers that end
    early save time, and other measurements have none to save.

    >>> table = Timetable({"one": 100, "two": 200})
    >>> table.start("one", now=0)
    >>> table.left(now=40)
    260.0
    >>> table.finish(now=150)  # slower than thought, and so will be the rest
    >>> table.left(now=150)
    300.0
    """

    def __init__(self, expected: Mapping[str, float]) -> None:
        self.waiting = dict(expected)
        self.pace = 1.0
        self.current: tuple[str, float, float] | None = None  # name, expected, start
        self._seen = [0.0, 0.0]  # seconds that finished parts took, and were expected to take

    def start(self, name: str, now: float) -> None:
        """A part begins."""
        self.current = (name, self.waiting.pop(name), now)

    def finish(self, now: float, *, whole: bool = True) -> None:
        """It ends. A short one, or one that failed, is no measure of the others."""
        if self.current is None:
            return
        _, expected, start = self.current
        self.current = None
        if whole and expected >= TELLING:
            self._seen[0] += now - start
            self._seen[1] += expected
            self.pace = max(1.0, self._seen[0] / self._seen[1])

    def left(self, now: float) -> float:
        """Seconds until all is done, as far as one can know."""
        rest = sum(self.waiting.values()) * self.pace
        if self.current is not None:
            _, expected, start = self.current
            rest += max(0.0, expected * self.pace - (now - start))
        return float(rest)

    def late(self, now: float) -> bool:
        """Whether the part that runs has taken longer than expected."""
        return self.current is not None and now - self.current[2] > self.current[1] * self.pace

    def line(self, now: float) -> str:
        """In words: what runs, for how long, and how much is left of the whole."""
        if self.current is None:
            return f"about {minutes(self.left(now))} left"
        name, expected, start = self.current
        much = f"{minutes(now - start)} of about {minutes(expected * self.pace)}"
        if self.late(now):
            much += ", longer than thought"
        return f"{name}: {much} · all: about {minutes(self.left(now))} left"


def minutes(seconds: float) -> str:
    """Whole minutes, or what is less than one.

    >>> minutes(20), minutes(100), minutes(4000)
    ('less than a minute', '2 min', '67 min')
    """
    return "less than a minute" if seconds < 45 else f"{seconds / 60:.0f} min"


@contextmanager
def overall(
    table: Timetable, *, show: bool, clock: Callable[[], float] = time.monotonic
) -> Iterator[None]:
    """One line over all bars: on a terminal kept up to date, in a log now and then."""
    if not show:
        yield
        return
    from tqdm import tqdm

    terminal = sys.stderr.isatty()
    bar = tqdm(total=0, bar_format="{desc}", position=0, leave=False, disable=not terminal)
    last = clock()

    def tick() -> None:
        nonlocal last
        now = clock()
        if now - last < (1 if terminal else EVERY):
            return
        last = now
        if terminal:
            bar.set_description_str(table.line(now))
        else:
            print(table.line(now), file=sys.stderr, flush=True)

    try:
        with watched(tick):
            yield
    finally:
        bar.close()
