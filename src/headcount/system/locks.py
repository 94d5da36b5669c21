"""File locks: one process at a time.

filelock's where it is installed, as `pip install headcount` does; else the system's own, which are
the same locks on Linux and macOS: a machine that only fits gates or measures needs little more than
torch and transformers.
"""

from __future__ import annotations

import os
import time
from typing import IO, TYPE_CHECKING

POLL = 0.05  # seconds between two tries


class BusyError(TimeoutError):
    """Another process has held the lock for all the time that one would wait."""


class SystemLock:
    """An exclusive lock on a file, as filelock's `FileLock`; a negative timeout waits for ever."""

    def __init__(self, path: str | os.PathLike[str], timeout: float = -1) -> None:
        self.path, self.timeout = os.fspath(path), timeout
        self._file: IO[str] | None = None

    def acquire(self, timeout: float | None = None) -> SystemLock:
        """Take the lock, or raise `BusyError`."""
        import fcntl

        patience = self.timeout if timeout is None else timeout
        end = time.monotonic() + patience
        file = open(self.path, "a", encoding="utf-8")  # noqa: SIM115  (open while it is locked)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if patience >= 0 and time.monotonic() >= end:
                    file.close()
                    raise BusyError(
                        f"the file lock {self.path} is held by another process"
                    ) from None
                time.sleep(POLL)
            except BaseException:
                file.close()
                raise
            else:
                self._file = file
                return self

    def release(self) -> None:
        """Let go of the lock."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> SystemLock:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


if TYPE_CHECKING:
    from filelock import FileLock, Timeout
else:
    try:
        from filelock import FileLock, Timeout
    except ImportError:
        FileLock, Timeout = SystemLock, BusyError

__all__ = ["BusyError", "FileLock", "SystemLock", "Timeout"]
