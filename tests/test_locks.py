"""The system's own file lock, which takes the place of filelock's where that is missing."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import filelock
import pytest

from headcount.system.locks import BusyError, FileLock, SystemLock, Timeout


def _hold(path: str, seconds: float, begun: multiprocessing.synchronize.Event) -> None:
    with SystemLock(path):
        begun.set()
        time.sleep(seconds)


def test_filelock_is_used_where_it_is() -> None:
    assert FileLock is filelock.FileLock
    assert Timeout is filelock.Timeout


def test_one_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    with SystemLock(path):
        for other in (SystemLock(path, timeout=0), SystemLock(path)):
            with pytest.raises(BusyError, match=r"a\.lock is held"):
                other.acquire(timeout=0.1)
        with pytest.raises(filelock.Timeout):  # they see each other
            filelock.FileLock(path, timeout=0).acquire()
    with SystemLock(path, timeout=0) as again:
        again.release()
        again.release()  # as often as one likes
        with filelock.FileLock(path, timeout=0), pytest.raises(BusyError):
            again.acquire(timeout=0)


def test_it_waits_for_another_process(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    begun = context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path / "a.lock"), 0.5, begun))
    other.start()
    assert begun.wait(30)
    with SystemLock(tmp_path / "a.lock", timeout=30):
        other.join(30)
    assert other.exitcode == 0


def test_a_place_that_cannot_be_opened_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SystemLock(tmp_path / "missing" / "a.lock").acquire()


BLOCKED = """
import builtins, sys
usual = builtins.__import__
def without(name, globals=None, *rest, **more):
    asks = (globals or {}).get("__name__", "")
    if name.split(".")[0] in ("filelock", "platformdirs") and asks.startswith("headcount"):
        raise ImportError(name)
    return usual(name, globals, *rest, **more)
builtins.__import__ = without
from headcount.system.paths import _usual
from headcount.store import Store
from headcount.system.locks import FileLock
with Store(sys.argv[1]) as store:
    store.put_document("kind", {"a": 1}, {"b": 2})
    print(store.get_document("kind", {"a": 1}), FileLock.__name__, _usual())
"""


def test_the_store_works_without_filelock_and_platformdirs(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(tmp_path / "store.sqlite")],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path), "XDG_CACHE_HOME": "/there"},
        check=True,
    )
    assert found.stdout.split() == ["{'b':", "2}", "SystemLock", "/there/headcount"]
