"""One small run of each study on the bundled model gives the numbers that it gave before.

The values in `tests/data/same_numbers.json` were written by the first version of the house; their
intervals are those of the present statistics. Where values change for a reason, `MEASUREMENT` in
engine/measure/plan.py is raised.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from real import bundled

from headcount import run_study

CASES = json.loads((Path(__file__).parent / "data" / "same_numbers.json").read_text("utf-8"))
KEYS = ("task", "series", "metric", "count", "ranking", "ablation", "place")


def key(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in KEYS if name in row)


@pytest.mark.real
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["study"])
def test_a_study_gives_the_numbers_that_it_gave(case: dict[str, Any]) -> None:
    study = run_study(case["study"], bundled(), **case["settings"])
    again = {key(dict(row)): row for row in study.rows}
    assert len(again) == len(case["rows"])
    for row in case["rows"]:
        new = again[key(row)]
        for name in ("value", "low", "high"):
            # Sums over many tokens are larger, and rounding differs from machine to machine.
            near = pytest.approx(row[name], abs=1e-4, rel=1e-4, nan_ok=True)
            assert new[name] == near, (key(row), name)
