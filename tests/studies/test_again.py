"""`headcount report FOLDER --again`: what is made from a result's values, and what cannot be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from headcount.cli import main

RESULT = Path(__file__).parents[2] / "docs" / "results" / "masked-heads" / "smollm2-135m-q4"

pytestmark = pytest.mark.skipif(not RESULT.exists(), reason="only a clone has the results")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(RESULT, tmp_path / "result"))


def again(folder: Path) -> int:
    return main(["report", str(folder), "--again", "--out", str(folder / "page.html")])


def test_what_was_changed_by_hand_is_made_again(folder: Path) -> None:
    claims = (folder / "claims.json").read_text()
    (folder / "claims.json").write_text(claims.replace("undecided", "supported"))
    (folder / "curves.csv").write_text("model\n")
    (folder / "figure.png").unlink()
    run = json.loads((folder / "run.json").read_text())
    old = {**run, "figures": [*run["figures"], "drawn-by-an-old-version"], "captions": {}}
    (folder / "drawn-by-an-old-version.png").write_bytes(b"")
    (folder / "run.json").write_text(json.dumps(old))
    assert again(folder) == 0
    assert (folder / "claims.json").read_text() == claims
    assert (folder / "curves.csv").read_bytes() == (RESULT / "curves.csv").read_bytes()
    assert (folder / "figure.png").read_bytes() == (RESULT / "figure.png").read_bytes()
    assert not (folder / "drawn-by-an-old-version.png").exists()
    new = json.loads((folder / "run.json").read_text())
    assert {**new, "files": run["files"]} == run
    assert {"figure.svg", "figure-column.pdf"} <= {*new["files"]}  # a later run replaces them
    page = (folder / "page.html").read_text()
    assert "4-bit weights (Q4_1), dequantised to bfloat16" in page


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"study": "masked-heads"', '"study": "curve"', 'A result of "curve" cannot be made again'),
        ('"total": 270', '"heads": 270', "does not fit together: run.json names facts"),
    ],
)
def test_other_results_are_refused_in_a_sentence(
    folder: Path, old: str, new: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "run.json"
    before = (folder / "claims.json").read_bytes()
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert again(folder) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "Traceback" not in err
    assert (folder / "claims.json").read_bytes() == before
