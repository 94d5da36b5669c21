"""docs/benchmarks.md is what benchmarks/report.py makes of the files in benchmarks/results."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def report() -> ModuleType:
    spec = importlib.util.spec_from_file_location("report", ROOT / "benchmarks" / "report.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_nothing_on_the_page_was_written_by_hand(report: ModuleType) -> None:
    assert report.PAGE.read_text(encoding="utf-8") == report.page()


def row(key: str, seconds: float, agrees: bool = True) -> dict[str, Any]:
    memory = {"setup_seconds": 0.5, "peak_bytes": None, "before_bytes": None}
    times = {"seconds": [seconds, seconds], "cpu_seconds": [2 * seconds]}
    return {"key": key, "name": key, "difference": 0.25, "agrees": agrees, **times, **memory}


def test_no_time_is_given_for_other_numbers(report: ModuleType) -> None:
    rows = [row("plain", 8.0), row("wrong", 1.0, agrees=False), row("headcount", 2.0)]
    race = {"part": "heads", "model": "some", "rows": rows}
    lines = report.sweep_table(race, on_cpu=True).splitlines()
    assert [cell.strip() for cell in lines[3].split("|")[2:6]] == ["other numbers", "2", "–", "–"]
    assert [cell.strip() for cell in lines[2].split("|")[2:6]] == ["8.00", "2", "1.00", "4.00"]
    ledger = {"device": "cpu", "threads": 2, "races": [race]}
    assert "4.00 × |        4.00 × | plain" in report.summary([ledger])


def test_long_prompts_get_a_section(report: ModuleType) -> None:
    both = {"plain": 0.2, "headcount": 0.002}
    row = {"shape": "8b", "tokens": 4096, "head sets": 512, "part": "late", "late positions": 8}
    row |= {"seconds per head set": both, "times as fast": 100.0, "apart": 0.01}
    row |= {"peak bytes": {"plain": 2**34}, "times the memory": 1.1}
    row |= {"times as fast per further head set": 150.0}
    facts = {"machine": {"accelerator": "a card"}, "versions": {}, "command": "c", "dtype": "d"}
    text = report.long_section({**facts, "rows": [row]})
    cells = [cell.strip() for cell in text.splitlines()[6].split("|")[1:-1]]
    what = "32 heads off at the last 8 positions"
    assert cells[:6] == ["8b", "4,096", "512", what, "200.0", "2.00"]
    assert cells[6:] == ["100.00 ×", "150 ×", "16.0", "1.10 ×", "1.0e-02"]
