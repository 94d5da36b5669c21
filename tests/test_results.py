"""The folder that a run leaves behind."""

from __future__ import annotations

import csv
import json
import math
from functools import cache
from pathlib import Path

import pytest
from planted import Plant, plant

from headcount import Curve, HeadScores, curve
from headcount.claims import Claim
from headcount.report.folder import write_results
from headcount.system.files import to_json

PICTURES = ["figure.png", "figure.svg", "figure.pdf"]
FILES = [*PICTURES, "curves.csv", "scores.json", "heads.csv", "run.json"]
CLAIM = Claim("masking hurts", None, -0.5, -0.7, math.nan, "undecided")


@cache
def measured() -> tuple[Plant, Curve]:
    planted = plant(needed=["0.1"], interfering=["1.0"], layers=2, heads=2)
    return planted, curve(planted.model, planted.task, counts=[0, 1, 3], seeds=2)


def write(folder: Path, **settings: object) -> list[Path]:
    planted, result = measured()
    return write_results(folder, result, planted.model, planted.task, settings, [CLAIM])


def test_everything_is_written_the_picture_first(tmp_path: Path) -> None:
    paths = write(tmp_path / "new" / "folder")
    assert [path.name for path in paths] == [*FILES, "claims.json", "report.html"]
    assert all(path.stat().st_size > 0 for path in paths)
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {
        *FILES,
        "scores.npz",
        "claims.json",
        "report.html",
    }


def test_without_claims_there_is_no_such_file(tmp_path: Path) -> None:
    planted, result = measured()
    paths = write_results(tmp_path, result, planted.model, planted.task, {})
    assert [path.name for path in paths] == [*FILES, "report.html"]


def test_the_table_and_scores_read_back(tmp_path: Path) -> None:
    write(tmp_path)
    _, result = measured()
    with (tmp_path / "curves.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(result.points)
    scores = HeadScores.load(tmp_path / "scores.json")
    assert scores.values.tolist() == result.scores.values.tolist()


def test_claims_have_the_fields_of_the_design(tmp_path: Path) -> None:
    write(tmp_path)
    (claim,) = json.loads((tmp_path / "claims.json").read_text())
    assert claim == {
        "claim": "masking hurts",
        "published": None,
        "measured": -0.5,
        "low": -0.7,
        "high": None,
        "verdict": "undecided",
    }


def test_the_run_can_be_made_again_from_its_facts(tmp_path: Path) -> None:
    planted, result = measured()
    write(tmp_path, seeds=2, out=tmp_path, command="headcount.cli.curve:curve", quiet=True)
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["settings"] == {"seeds": 2, "out": str(tmp_path)}
    assert facts["model"]["heads"] == [2, 2]
    identity = planted.model.identity
    assert identity.items() <= facts["model"].items()
    assert facts["task"]["ranking examples"] + facts["task"]["test examples"] == 32
    assert facts["counts"] == [0, 1, 3]
    assert facts["left_out"] == list(result.left_out) != []
    assert (facts["metric"], facts["stand_in"]) == ("accuracy", "zero")
    assert {"headcount", "python", "torch", "transformers", "numpy"} <= facts["versions"].keys()


def test_the_same_run_leaves_the_same_bytes(tmp_path: Path) -> None:
    for one, two in zip(write(tmp_path / "one"), write(tmp_path / "two"), strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"low": math.nan, "high": math.inf}, {"low": None, "high": None}),
        ([1, 2.5, True, None, "é"], [1, 2.5, True, None, "é"]),
        ({3: (1, {2})}, {"3": [1, [2]]}),
        (Path("a/b"), "a/b"),
    ],
)
def test_json_that_every_reader_takes(value: object, expected: object) -> None:
    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    assert json.loads(to_json(value), parse_constant=refuse) == expected
