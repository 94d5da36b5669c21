"""Let Ctrl-C, SIGTERM and SIGHUP wait until work that must not be left half done is done."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
AGAIN = 1.0  # seconds; some starters of programs pass on one interruption twice


class HeldSignals:
    """Signals that have come and wait; `release` lets them act."""

    def __init__(self, tell: Callable[[], object]) -> None:
        self.tell = tell
        self.pending: list[int] = []
        self.handlers: dict[int, Callable[[int, FrameType | None], Any]] = {}
        self.since = 0.0

    def hold(self, number: int, _: FrameType | None) -> None:
        """Keep the first signal; another one, some time later, lets both act at once."""
        if self.pending:
            if time.monotonic() - self.since > AGAIN:
                self.release()
            return
        self.pending.append(number)
        self.since = time.monotonic()
        # The terminal may be closed, or the signal may have come in the middle of a print.
        with suppress(OSError, RuntimeError):
            self.tell()

    def release(self) -> None:
        """Let the signals that wait act, which raises KeyboardInterrupt as a rule."""
        waiting, self.pending = self.pending, []
        for number in waiting:
            self.handlers[number](number, None)


@contextmanager
def holding_signals(tell: Callable[[], object]) -> Iterator[HeldSignals]:
    """Hold signals inside this context and call `tell` when one comes; at its end they act.

    After an exception they do not act, since the work has ended anyway. Outside the main thread
    nothing is held, because no signal is handled there.
    """
    held = HeldSignals(tell)
    if threading.current_thread() is threading.main_thread():
        for name in NAMES:
            number = getattr(signal, name, None)
            handler = None if number is None else signal.getsignal(number)
            if number is not None and callable(handler):  # not one that ignores it or ends at once
                held.handlers[number] = handler
                signal.signal(number, held.hold)
    try:
        yield held
    finally:
        for number, handler in held.handlers.items():
            signal.signal(number, handler)
    held.release()
