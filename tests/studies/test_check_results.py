"""scripts/check_results.py: committed values are measured again, and a changed one is noticed."""

from __future__ import annotations

import csv
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from planted import Plant, plant
from studies.test_heads_kept import write
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model

from headcount import run_study
from headcount.studies import STUDIES, study_kind

ROOT = Path(__file__).resolve().parents[2]
# Results of studies; curves and contests are no studies, and have no settings of one.
COMMITTED = [
    path
    for path in sorted((ROOT / "docs" / "results").rglob("run.json"))
    if json.loads(path.read_text(encoding="utf-8"))["study"] in STUDIES
]


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check", ROOT / "scripts" / "check_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["check"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def planted() -> Plant:
    return plant(["0.0", "2.2"], n=64)


@pytest.fixture
def folder(planted: Plant, tmp_path: Path) -> Path:
    file = write(planted.task, tmp_path / "planted.jsonl")
    settings: dict[str, Any] = {"counts": (1, 2, 3, 5), "seeds": 3, "n": 12, "ranked": 8}
    study = run_study("heads-kept", planted.model, tasks=(file,), **settings)
    study.save(tmp_path / "result")
    return tmp_path / "result"


def test_a_result_agrees_with_itself(
    script: ModuleType, planted: Plant, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = script.compare(folder, planted.model)
    counts = {one.row["count"] for one in found}
    assert counts == {"0", "2", "12"}  # one count of those asked for, and both ends
    assert {one.row["series"] for one in found} == {"top"}
    assert script.check(folder, planted.model)
    assert "6 of 6 values agree" in capsys.readouterr().out


def test_another_number_is_noticed(
    script: ModuleType, planted: Plant, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "curves.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    changed = next(row for row in rows if (row["series"], row["count"]) == ("top", "2"))
    changed["value"] = str(float(changed["value"]) + 0.01)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert not script.check(folder, planted.model)
    out = capsys.readouterr().out
    assert "DIFFERENT" in out
    assert "5 of 6 values agree" in out


def test_rows_of_another_model_beside_it_are_left_alone(
    script: ModuleType, planted: Plant, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = folder / "curves.csv"
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    others = [row | {"model": "sparse", "value": str(float(row["value"]) + 1)} for row in rows]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows + others)
    assert script.check(folder, planted.model)
    assert "6 of 6 values agree" in capsys.readouterr().out


def test_other_weights_and_missing_folders_are_refused(
    script: ModuleType, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = tiny_model("llama", vocab_size=2000)
    module.save_pretrained(tmp_path / "other")
    byte_level().save_pretrained(tmp_path / "other")
    assert script.main([str(folder), "--model", str(tmp_path / "other")]) == 2
    assert "other weights" in capsys.readouterr().err
    assert script.main([str(tmp_path / "nowhere")]) == 2


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: path.parent.as_posix())
def test_every_committed_result_can_be_narrowed(
    script: ModuleType, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = json.loads(path.read_text())
    settings = script.narrowed(run["study"], run)
    monkeypatch.chdir(tmp_path)
    for task in settings.get("tasks", ()):  # files of data that are not ours to keep
        if task.endswith(".jsonl"):
            Path(task).touch()
    if "path" in settings.get("task_settings", ()):
        Path(settings["task_settings"]["path"]).write_text('{"problem": "1 + 1?", "answer": "2"}')
    study_kind(run["study"]).configure(**settings)  # refuses what there is not
    with (path.parent / "curves.csv").open(newline="") as file:
        assert any(script.comparable(row) for row in csv.DictReader(file))


def test_written_answers_may_differ_more_than_numbers_read_off_logits(script: ModuleType) -> None:
    assert script.Compared({"metric": "maths"}, 0.5, 0.52).same
    assert not script.Compared({"metric": "explained_effect"}, 0.5, 0.52).same
    assert script.Compared({"metric": "maths"}, float("nan"), float("nan")).same
    assert not script.Compared({"metric": "maths"}, 0.5, float("nan")).same
