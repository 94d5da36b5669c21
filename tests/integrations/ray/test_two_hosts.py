"""The page shows what scripts/two_hosts.py saw, and nothing was lost in it."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("two_hosts", ROOT / "scripts" / "two_hosts.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["two_hosts"] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


def test_the_page_has_the_table_of_the_outcome(script: ModuleType) -> None:
    assert f"{script.BEGIN}\n\n{script.table()}\n\n{script.END}" in script.PAGE.read_text()


def test_every_experiment_was_made_and_lost_nothing(script: ModuleType) -> None:
    known = json.loads(script.OUTCOME.read_text())["experiments"]
    assert list(known) == list(script.EXPERIMENTS)
    for name, seen in known.items():
        assert seen["processes left"] == [], name
        refused = seen.get("exit code") == 2 and not seen["values stored after"]
        assert refused or name == "asking-host-killed" or seen["scores equal"], name
