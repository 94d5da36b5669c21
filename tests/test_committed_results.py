"""Results that are committed under docs/results: small, readable, and all that pages link to."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from headcount import HeadScores
from headcount.report import read_result

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
FOLDERS = sorted(path.parent for path in RESULTS.rglob("run.json"))
BUILT = (".html", ".svg", ".pdf")  # git ignores them there
PAGES = [*ROOT.glob("*.md"), *(ROOT / "benchmarks").glob("*.md"), *(ROOT / "docs").rglob("*.md")]

pytestmark = pytest.mark.skipif(not FOLDERS, reason="only a clone has the results")


def committed(folder: Path) -> list[Path]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path for path in files if path.suffix not in BUILT]


def test_results_are_small() -> None:
    for folder in FOLDERS:
        models = len(json.loads((folder / "run.json").read_text(encoding="utf-8"))["model"])
        assert sum(path.stat().st_size for path in committed(folder)) <= 1_000_000 * models
    assert sum(path.stat().st_size for path in committed(RESULTS)) <= 10_000_000
    assert list(RESULTS.rglob("heads.csv")) == []  # gzip -9n heads.csv


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: "-".join(folder.parts[-2:]))
def test_a_folder_reads_back_whole(folder: Path) -> None:
    result = read_result(folder)
    assert result.rows
    assert set(result.figures) == {path.stem for path in folder.glob("*.png")}
    assert bool(result.heads) == (folder / "heads.csv.gz").exists()
    for path in folder.glob("scores/*.json"):
        assert "samples" not in json.loads(path.read_text(encoding="utf-8"))
        scores = HeadScores.load(path)
        assert np.isfinite(scores.values).all()
        assert (scores.samples is not None) == path.with_suffix(".npz").exists()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)", page.read_text(encoding="utf-8"))
    inside = [page.parent / link for link in links if not re.match(r"\w+:", link)]
    assert [path for path in inside if not path.exists()] == []
    results = [path for path in inside if path.resolve().is_relative_to(RESULTS)]
    assert [path for path in results if path.suffix in BUILT] == []
