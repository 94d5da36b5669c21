"""Time left, from what was expected and what was seen."""

from __future__ import annotations

import pytest

from headcount.cli import timetable
from headcount.cli.timetable import Timetable, overall
from headcount.system.progress import progress


def test_parts_that_ran_correct_those_to_come() -> None:
    table = Timetable({"one": 60, "two": 120, "three": 30})
    assert table.left(0) == 210
    table.start("one", 0)
    assert table.left(30) == 180
    table.finish(120)  # half as fast as thought
    assert table.left(120) == 300
    table.start("two", 120)
    table.finish(240)  # this one as thought: 240 seconds for 180
    assert table.left(240) == pytest.approx(40)


def test_a_quick_part_promises_nothing() -> None:
    table = Timetable({"one": 600, "two": 600})
    table.start("one", 0)
    table.finish(100)
    assert table.left(100) == 600


def test_short_parts_and_failures_are_no_measure() -> None:
    table = Timetable({"one": 5, "two": 300, "three": 600})
    table.start("one", 0)
    table.finish(20)
    table.start("two", 20)
    table.finish(21, whole=False)
    assert table.left(21) == 600


def test_a_part_that_takes_longer_says_so_and_leaves_the_others_time() -> None:
    table = Timetable({"one": 60, "two": 120})
    table.start("one", 0)
    assert "longer" not in table.line(50)
    assert table.line(60 * 5) == (
        "one: 5 min of about 1 min, longer than thought · all: about 2 min left"
    )


def test_a_log_gets_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = iter([0, 10, 70, 80, 140])
    table = Timetable({"one": 300})
    table.start("one", 0)
    with (
        overall(table, show=True, clock=lambda: next(now)),
        progress("bars", 4, show=True) as bar,
    ):
        for _ in range(4):
            bar.update(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "one: 1 min of about 5 min · all: about 4 min left",
        "one: 2 min of about 5 min · all: about 3 min left",
    ]
    with progress("bars", 1, show=True) as bar:
        bar.update(1)  # nobody watches any more
    monkeypatch.setattr(timetable, "watched", lambda tick: pytest.fail("shown"))
    with overall(table, show=False):
        pass
