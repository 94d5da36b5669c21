"""Progress bars leave nothing behind."""

from __future__ import annotations

import sys
import threading
from types import SimpleNamespace

import pytest

from headcount.system import progress


def test_bars_leave_no_thread_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "watched", lambda: True)
    before = threading.active_count()
    for number in range(5):
        with progress.progress(f"bar {number}", 3, show=True) as bar:
            bar.update(3)
        assert bar.n == 3
    assert threading.active_count() == before


def test_marimo_is_a_notebook_where_one_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    for runs in (False, True):
        fake = SimpleNamespace(running_in_notebook=lambda runs=runs: runs)
        monkeypatch.setitem(sys.modules, "marimo", fake)
        assert progress.in_notebook() is runs
