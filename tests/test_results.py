"""The folder that a run leaves behind."""

from __future__ import annotations

import csv
import errno
import gzip
import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from planted import Plant, plant

from headcount import Curve, HeadScores, curve
from headcount.cli import main
from headcount.errors import HeadcountError
from headcount.figures.head_map import draw_head_map
from headcount.report import find_results, read_result
from headcount.report.curve_study import curve_study
from headcount.report.study import Study
from headcount.system.files import to_json
from headcount.system.folders import (
    MARK,
    READY,
    UNFINISHED,
    locked_folder,
    make_marked,
    replacing_files,
)
from headcount.value_table import ValueTable

PICTURES = ["figure.png", "figure.svg", "figure.pdf"]
TABLES = ["curves.csv", "values.csv.gz", "examples.csv.gz", "heads.csv"]
FILES = [*PICTURES, *TABLES, "claims.json", "run.json", "report.html"]
SHARED = ("model", "task")
COMPARISON = {"claim": "masking hurts", "one": "top", "other": "random", "count": 1, "below": -0.8}


@cache
def measured() -> tuple[Plant, Curve]:
    planted = plant(needed=["0.1"], interfering=["1.0"], layers=2, heads=2)
    return planted, curve(planted.model, planted.task, counts=[0, 1, 3], seeds=2)


def write(folder: Path, **settings: object) -> list[Path]:
    planted, result = measured()
    study = curve_study(result, planted.model, planted.task, settings, [COMPARISON])
    return study.save(folder, "headcount curve")


def test_everything_is_written_the_picture_first(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    paths = write(folder)
    assert [path.name for path in paths] == FILES
    assert all(path.stat().st_size > 0 for path in paths)
    assert {path.name for path in folder.iterdir()} == {*FILES, "scores"}


def test_what_an_earlier_run_left_does_not_stay(tmp_path: Path) -> None:
    write(tmp_path)
    bare = Study("other", "other", [{"count": 1}], [], {}, {}, {})
    paths = bare.save(tmp_path, page="index.html")
    assert [path.name for path in paths] == ["curves.csv", "claims.json", "run.json", "index.html"]
    assert not (tmp_path / "heads.csv").exists()
    assert not (tmp_path / "values.csv.gz").exists()
    assert not (tmp_path / "examples.csv.gz").exists()
    assert json.loads((tmp_path / "claims.json").read_text()) == []


def contents(folder: Path) -> dict[str, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def other_study() -> Study:
    """A study whose files are partly those of `write`."""
    planted, result = measured()
    study = curve_study(result, planted.model, planted.task, {}, [])
    figures = {"figure": draw_head_map([1.0, 2.0], (2,)).figure, "more": result.figure()}
    return replace(study, name="other", figures=figures, values=None, tables={"T": [{"a": 1}]})


@pytest.mark.parametrize("where", ["figure", "scores", "page"])
def test_a_folder_is_as_before_when_the_new_result_cannot_be_written(
    tmp_path: Path, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    before = contents(tmp_path)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    targets = {"figure": "save_figure", "page": "write_page", "scores": "HeadScores.save"}
    room = "heads" if where == "scores" else "report.study"
    monkeypatch.setattr(f"headcount.{room}.{targets[where]}", full)
    with pytest.raises(OSError, match="No space"):
        other_study().save(tmp_path)
    assert contents(tmp_path) == before


def test_files_that_no_result_has_written_stay(tmp_path: Path) -> None:
    write(tmp_path)
    mine = {"notes.txt": b"mine", "scores/mine.json": b"{}", "sub/figure.png": b"mine"}
    for name, content in mine.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    other_study().save(tmp_path)
    after = contents(tmp_path)
    assert {name: after[name] for name in mine} == mine
    assert not {"values.csv.gz", "examples.csv.gz"} & {
        *after
    }  # the first result's, and not the second's
    other_study().save(tmp_path / "alone")
    assert {n: c for n, c in after.items() if n not in mine} == contents(tmp_path / "alone")


def test_a_record_cannot_have_files_elsewhere_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    write(folder)
    (tmp_path / "mine").write_text("precious")
    (folder / "link").symlink_to(tmp_path)
    names = ["../mine", str(tmp_path / "mine"), "link/mine", "a\0b", "", "..", None, 3, ["x"]]
    (folder / "run.json").write_text(json.dumps({"files": names}))
    other_study().save(folder)
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_name_that_is_a_folder_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").mkdir()
    (tmp_path / "figure.png").write_bytes(b"mine")
    with pytest.raises(HeadcountError, match=r"curves\.csv is a folder"):
        write(tmp_path)
    assert contents(tmp_path) == {"figure.png": b"mine"}


def test_killed_while_files_are_moved_the_next_writer_moves_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_study().save(tmp_path / "whole")
    wanted, move = contents(tmp_path / "whole"), os.replace

    class Killed(BaseException):
        pass

    for moves in range(len(wanted)):
        folder = tmp_path / str(moves)
        write(folder)
        left = moves

        def killed(source: Path, target: Path) -> None:
            nonlocal left
            if READY in str(source):
                if not left:
                    raise Killed
                left -= 1
            move(source, target)

        monkeypatch.setattr(os, "replace", killed)
        with pytest.raises(Killed):
            other_study().save(folder)
        monkeypatch.setattr(os, "replace", move)
        assert not (folder / "run.json").exists()  # no half result passes for a whole one
        before = contents(folder)
        assert find_results(folder) == [folder]
        with pytest.raises(HeadcountError, match=r"interrupted: run the command .* again"):
            read_result(folder)
        assert contents(folder) == before  # readers move nothing
        if moves % 2:
            with pytest.raises(OSError, match="full"), replacing_files(folder):
                raise OSError("full")  # what was decided before is finished all the same
        else:
            other_study().save(folder)
        assert contents(folder) == wanted
        assert read_result(folder).study == "other"


def test_killed_after_the_last_file_was_moved_the_result_stays(tmp_path: Path) -> None:
    write(tmp_path)
    before = contents(tmp_path)
    (tmp_path / READY).mkdir()
    make_marked(tmp_path / READY)
    with pytest.raises(OSError, match="full"), replacing_files(tmp_path):
        raise OSError("full")
    assert contents(tmp_path) == before


@pytest.mark.parametrize("forged", [False, True])
def test_nothing_is_moved_for_a_folder_of_a_stranger(
    tmp_path: Path, forged: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Neither through a link to elsewhere, nor out of one, whoever reads or writes."""
    folder, elsewhere = tmp_path / "theirs", tmp_path / "elsewhere"
    write(folder)
    elsewhere.mkdir()
    (elsewhere / "rc").write_text("mine")
    (folder / "sub").symlink_to(elsewhere)
    ready = folder / READY
    (ready / "files" / "sub").mkdir(parents=True)
    (ready / "sub").mkdir()
    if forged:
        (ready / MARK).write_text(str(ready.stat().st_ino))
    for place in (ready / "files" / "sub" / "rc", ready / "sub" / "rc"):
        place.write_text("theirs")
    before = contents(tmp_path)
    assert main(["report", str(folder), "--out", str(tmp_path / "p.html")]) == 2
    with pytest.raises(HeadcountError, match=r"not made by headcount|is a link"):
        write(folder)
    assert contents(tmp_path) == before


@pytest.mark.parametrize("name", [READY, UNFINISHED])
def test_a_link_in_place_of_the_hidden_folder_is_not_followed(tmp_path: Path, name: str) -> None:
    folder, mine = tmp_path / "theirs", tmp_path / "mine"
    write(folder)
    mine.mkdir()
    make_marked(mine)
    (mine / "files" / "notes.txt").write_text("mine")
    (folder / name).symlink_to(mine)
    before = contents(tmp_path)
    assert main(["report", str(folder), "--out", str(tmp_path / "p.html")]) in (0, 2)
    (tmp_path / "p.html").unlink(missing_ok=True)
    with pytest.raises(HeadcountError, match="not made by headcount here"):
        write(folder)
    assert contents(tmp_path) == before


def test_a_result_is_not_written_through_a_link(tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.mkdir()
    (folder / "scores").symlink_to(elsewhere)
    with pytest.raises(HeadcountError, match="scores is a link or a file"):
        write(folder)
    assert list(elsewhere.iterdir()) == []
    assert [path.name for path in folder.iterdir()] == ["scores"]


def test_killed_while_writing_the_old_result_stays(tmp_path: Path) -> None:
    write(tmp_path)
    before = contents(tmp_path)
    (tmp_path / UNFINISHED).mkdir()
    (make_marked(tmp_path / UNFINISHED) / "run.json").write_text("{")
    assert find_results(tmp_path) == [tmp_path]
    assert read_result(tmp_path).study == "curve"
    write(tmp_path)
    assert contents(tmp_path) == before


def test_two_that_save_into_one_folder_take_turns(tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        saved = [pool.submit(study.save, tmp_path) for study in (other_study(), other_study())]
        assert [len(paths.result()) for paths in saved] == [12, 12]
    other_study().save(tmp_path.parent / f"{tmp_path.name}-alone")
    assert contents(tmp_path) == contents(tmp_path.parent / f"{tmp_path.name}-alone")
    with (
        locked_folder(tmp_path),
        pytest.raises(BlockingIOError),
        locked_folder(tmp_path, wait=False),
    ):
        pass


def test_the_table_and_scores_read_back(tmp_path: Path) -> None:
    write(tmp_path)
    _, result = measured()
    with (tmp_path / "curves.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(result.points)
    assert b"\r" not in (tmp_path / "curves.csv").read_bytes()
    scores = HeadScores.load(tmp_path / "scores" / "attribution.json")
    assert scores.values.tolist() == result.scores.values.tolist()


def test_every_point_can_be_computed_again_from_the_values(tmp_path: Path) -> None:
    write(tmp_path)
    planted, result = measured()
    tables = []
    for name in ("values.csv.gz", "examples.csv.gz"):
        with gzip.open(tmp_path / name, "rt", newline="") as file:
            tables.append(list(csv.DictReader(file)))
    rows, examples = tables
    for point in result.points:
        key = (point.series, str(point.count))
        draws = [row["values"] for row in rows if (row["series"], row["count"]) == key]
        own = [float(value) for draw in draws for value in draw.split()]
        assert (len(draws), len(own)) == (point.draws, point.n * point.draws)
        assert sum(own) / len(own) == pytest.approx(point.value)
    named = [(row["example"], row["template"], row["content"]) for row in examples]
    assert named == [(e.id, *e.cluster) for e in planted.task.split("test")]
    clusters = ValueTable.read(tmp_path).clusters(**{name: rows[0][name] for name in SHARED})
    np.testing.assert_array_equal(clusters, result.clusters)


def test_names_of_scores_and_tables_stay_inside_the_folder(tmp_path: Path) -> None:
    _, result = measured()
    some = [{"count": 1}]
    study = Study(
        *("name", "title", some, [], {}, {}, {}),
        scores={"../../up": result.scores, "gates/a model": result.scores},
        tables={"../Some Table": some},
    )
    study.save(tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    written = {path.relative_to(tmp_path / "out").as_posix() for path in tmp_path.rglob("*.*")}
    assert {"scores/--/--/up.json", "scores/gates/a-model.json", "..-some-table.csv"} <= written


def test_claims_have_the_fields_of_the_design(tmp_path: Path) -> None:
    write(tmp_path)
    (claim,) = json.loads((tmp_path / "claims.json").read_text())
    _, result = measured()
    gap = result.difference("top", "random", 1)
    assert gap.low < -0.8 < gap.high
    assert claim == {
        "claim": "masking hurts",
        "published": None,
        "measured": gap.value,
        "low": pytest.approx(gap.low, abs=0.01),
        "high": pytest.approx(gap.high, abs=0.01),
        "verdict": "undecided",
        "reason": "",
        "detectable": pytest.approx(gap.detectable, abs=0.01),
        "p_value": None,
    }


def test_the_run_can_be_made_again_from_its_facts(tmp_path: Path) -> None:
    planted, result = measured()
    write(tmp_path, seeds=2, out=tmp_path, task="planted", counts=None)
    run = json.loads((tmp_path / "run.json").read_text())
    assert list(run) == [
        *("study", "title", "command", "asked", "settings", "facts", "model"),
        *("captions", "notes", "figures", "tables", "files", "versions"),
    ]
    assert (run["study"], run["command"], run["asked"]) == ("curve", "headcount curve", "")
    settings = run["settings"]
    assert (settings["seeds"], settings["out"]) == (2, str(tmp_path))
    assert (settings["metric"], settings["ablation"]) == ("accuracy", "zero")
    assert settings["counts"] == [0, 1, 3]
    assert settings["task"]["ranking examples"] + settings["task"]["test examples"] == 32
    (model,) = run["model"].values()
    assert model["heads"] == [2, 2]
    assert planted.model.identity.items() <= model.items()
    said, *left_out = run["notes"]
    assert said.startswith("Intervals: 8 examples in 4 templates")
    assert left_out == list(result.left_out) != []
    assert run["facts"]["comparisons"] == [COMPARISON]
    assert run["figures"] == ["figure"]
    assert {"headcount", "python", "torch", "transformers", "numpy"} <= run["versions"].keys()


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
