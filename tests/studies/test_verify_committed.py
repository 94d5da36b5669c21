"""Every committed result that keeps the values of its examples follows from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headcount.studies import STUDIES
from headcount.studies.verify import verify
from headcount.value_table import VALUES

RESULTS = Path(__file__).parents[2] / "docs" / "results"
FOLDERS = sorted(path.parent for path in RESULTS.rglob(VALUES))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.relative_to(RESULTS).as_posix())
def test_every_interval_and_verdict_follows_from_the_committed_values(folder: Path) -> None:
    found = verify(folder)
    assert found.differences == ()
    assert found.numbers > 0
    study = json.loads((folder / "run.json").read_text(encoding="utf-8"))["study"]
    assert found.claims > 0 or study not in STUDIES  # a curve or a contest need not claim anything


def test_there_is_such_a_result() -> None:
    assert "masked-heads" in {folder.relative_to(RESULTS).parts[0] for folder in FOLDERS}
