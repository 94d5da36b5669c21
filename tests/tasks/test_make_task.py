from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_tokenizers as tiny

from headcount.errors import HeadcountError
from headcount.tasks import TASKS, make_task


def test_by_name_with_all_parameters_recorded() -> None:
    task = make_task("ioi", tiny.byte_level(), n=12)
    assert (task.name, len(task)) == ("ioi", 12)
    assert task.parameters == {"n": 12, "seed": 0, "bos": "auto"}
    again = make_task(task.name, tiny.byte_level(), **task.parameters)
    assert again == task


def test_by_path(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    path.write_text(json.dumps({"prompt": "up and", "target": " down"}))
    for spec in (path, str(path)):
        task = make_task(spec, tiny.byte_level(), bos="always")
        assert (task.name, len(task), task.bos) == ("own", 1, "always")
        assert task.parameters == {"path": str(path), "n": 0, "bos": "always", "chat": False}
    assert make_task("jsonl", tiny.byte_level(), **task.parameters) == task


def test_a_ready_task_passes_through() -> None:
    task = make_task("ioi", tiny.byte_level(), n=2)
    assert make_task(task, tiny.byte_level()) is task
    with pytest.raises(HeadcountError, match=r'"ioi" is already made: settings \(n\)'):
        make_task(task, tiny.byte_level(), n=3)


@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [
        ("ioj", {}, 'There is no task "ioj" (known: ioi, ioi-long, '),
        ("ioj", {}, 'Did you mean "ioi"?'),
        (
            "ioi",
            {"sed": 1},
            'ioi has no setting "sed" (it has: n, seed, bos). Did you mean "seed"?',
        ),
        ("none.jsonl", {}, "Cannot read the task file none.jsonl"),
        ("no/such/file", {}, "Cannot read the task file no/such/file"),
    ],
)
def test_bad_specs(spec: str, settings: dict[str, int], words: str) -> None:
    with pytest.raises(HeadcountError) as error:
        make_task(spec, tiny.byte_level(), **settings)
    assert words in str(error.value)


def test_each_task_can_be_listed() -> None:
    names = [(entry.key, entry.name) for entry in TASKS.values()]
    assert {("ioi", "IOI"), ("knowledge-recall", "Knowledge Recall"), ("cogqa", "CogQA")} < {*names}
    assert len({name for _, name in names}) == len(names)
    assert all(entry.summary.endswith((".", "?")) for entry in TASKS.values())


def test_the_import_is_light() -> None:
    code = "import sys, headcount.tasks; print({'torch', 'transformers'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
