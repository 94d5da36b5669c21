"""The one thread in which an explorer computes: the newest inquiry wins.

A newer inquiry of the same kind from the same page cancels the older one. Long work, such as a
ranking, pauses between its units for inquiries that take a moment. A failure becomes a sentence.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headcount.errors import HeadcountError

LOG = logging.getLogger("headcount.explorer")
MOST_WAITING = 16
Emit = Callable[[str, Any], None]
ENDS = ("done", "refused", "failed", "cancelled")


class Cancelled(Exception):  # noqa: N818
    """Nobody wants the answer any more: a newer inquiry took its place, or its page is gone."""


@dataclass(eq=False)
class Inquiry:
    """What a page asks for: what to do, and where its events (name, data) go.

    The last event is one of `ENDS`.
    """

    page: str
    kind: str
    urgency: int  # 0 is most urgent
    do: Callable[[Inquiry], None]
    emit: Emit
    queue: Inquiries
    cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Stop at the next check."""
        self.cancelled.set()

    def check(self) -> None:
        """Raise `Cancelled` if nobody wants the answer any more."""
        if self.cancelled.is_set():
            raise Cancelled

    @property
    def held_up(self) -> bool:
        """Whether something more urgent waits for this."""
        return self.queue.waits(self.urgency)

    def pause(self) -> None:
        """Do what is more urgent, then go on; call it only where no gate is on the model."""
        self.check()
        self.queue.catch_up(self.urgency)
        self.check()


class Inquiries:
    """Does inquiries in one thread, the most urgent first."""

    def __init__(self) -> None:
        self._waiting: list[Inquiry] = []
        self._doing: list[Inquiry] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="headcount-explorer", daemon=True)
        self._thread.start()

    def ask(
        self, page: str, kind: str, urgency: int, do: Callable[[Inquiry], None], emit: Emit
    ) -> Inquiry:
        """Enter an inquiry, in place of older ones of its kind and page, unless too many wait."""
        inquiry = Inquiry(page, kind, urgency, do, emit, self)
        with self._changed:
            for older in (*self._waiting, *self._doing):
                if (older.page, older.kind) == (page, kind):
                    older.cancel()
            gone = [one for one in self._waiting if one.cancelled.is_set()]
            self._waiting = [one for one in self._waiting if one not in gone]
            full = len(self._waiting) >= MOST_WAITING
            closed = self._closed
            if not (full or closed):
                self._waiting.append(inquiry)
                self._waiting.sort(key=lambda one: one.urgency)  # equal ones keep their order
            self._changed.notify()
        for older in gone:
            older.emit("cancelled", {})
        if closed:
            emit("refused", {"text": "The explorer has ended."})
        elif full:
            emit("refused", {"text": "Too many requests are waiting: try again in a moment."})
        return inquiry

    def catch_up(self, urgency: int) -> None:
        """Do every waiting inquiry that is more urgent than this; in the worker's thread only."""
        while (inquiry := self._next(urgency)) is not None:
            self._do(inquiry)

    def waits(self, urgency: int) -> bool:
        """Whether an inquiry waits that is more urgent than this."""
        with self._changed:
            return bool(self._waiting) and self._waiting[0].urgency < urgency

    @property
    def busy(self) -> bool:
        """Whether an inquiry is being done, or waits."""
        return bool(self._doing or self._waiting)

    def close(self) -> None:
        """Cancel everything, and end the thread."""
        with self._changed:
            self._closed = True
            waiting, self._waiting = self._waiting, []
            for inquiry in self._doing:
                inquiry.cancel()
            self._changed.notify()
        for inquiry in waiting:
            inquiry.emit("cancelled", {})
        self._thread.join(timeout=10)

    def _next(self, urgency: int) -> Inquiry | None:
        with self._changed:
            if self._waiting and self._waiting[0].urgency < urgency:
                inquiry = self._waiting.pop(0)
                self._doing.append(inquiry)
                return inquiry
        return None

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._closed):
                    self._changed.wait()
                if self._closed:
                    return
            self.catch_up(urgency=1 << 30)

    def _do(self, inquiry: Inquiry) -> None:
        said: dict[str, str] = {}
        try:
            inquiry.check()
            inquiry.do(inquiry)
            end = "done"
        except Cancelled:
            end = "cancelled"
        except HeadcountError as error:
            end, said = "refused", {"text": str(error)}
        except Exception as error:
            LOG.exception("an inquiry of kind %s failed", inquiry.kind)
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            end, said = "failed", {"text": f"This computation failed ({what}); the rest goes on."}
        with self._changed:
            self._doing.remove(inquiry)
        inquiry.emit(end, said)
