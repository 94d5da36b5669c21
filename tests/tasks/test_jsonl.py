from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headcount.errors import HeadcountError
from headcount.tasks.own_files import jsonl
from headcount.tasks.task import Example

FRANCE = {"prompt": "The capital of France is", "target": " Paris"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "capitals.jsonl"


def write(file: Path, *records: Any) -> str:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return str(file)


def test_all_fields(file: Path) -> None:
    full = {
        **FRANCE,
        "foils": [" Rome", " Madrid"],
        "corrupted": "The capital of Utopia is",
        "template": "is",
        "content": "France",
        "id": "fr",
    }
    task = jsonl(path=write(file, full), bos="never")
    assert task.examples == (
        Example(
            "fr",
            "The capital of France is",
            " Paris",
            (" Rome", " Madrid"),
            "The capital of Utopia is",
            "is",
            "France",
        ),
    )
    assert (task.name, task.version, task.bos, task.chat) == ("capitals", 1, "never", False)


def test_defaults_nulls_numbers_and_empty_lines(file: Path) -> None:
    italy = {"prompt": "Italy?", "target": " Rome", "foils": None, "corrupted": None, "id": 12}
    text = f"\ufeff{json.dumps(FRANCE)}\r\n\n   \n{json.dumps(italy)}"
    file.write_bytes(text.encode())
    task = jsonl(path=str(file), chat=True)
    assert [e.id for e in task] == ["line-1", "12"]
    assert task.examples[1] == Example("12", "Italy?", " Rome")
    assert task.chat


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"prompt": "x"}, 'the field "target" is missing'),
        ({"target": "x"}, 'the field "prompt" is missing'),
        ({**FRANCE, "foil": [" Rome"]}, 'There is no field "foil"'),
        ({**FRANCE, "foil": [" Rome"]}, 'Did you mean "foils"?'),
        ({**FRANCE, "target": ""}, "the example has an empty target"),
        ({**FRANCE, "target": 7}, 'the field "target" must hold a text in quotes'),
        ({**FRANCE, "target": None}, 'the field "target" must hold a text in quotes'),
        ({**FRANCE, "foils": " Rome"}, 'the field "foils" must be a list of texts in quotes'),
        ({**FRANCE, "foils": [1]}, 'the field "foils" must be a list of texts in quotes'),
        ({**FRANCE, "foils": [" Paris"]}, "which is its target"),
        ({**FRANCE, "id": True}, 'the field "id" must hold a text in quotes'),
        ({**FRANCE, "content": ["a"]}, 'the field "content" must hold a text in quotes'),
        ({**FRANCE, "target": "\ud800"}, "not valid Unicode"),
        ([FRANCE], "a record is a JSON object"),
        ("text", "a record is a JSON object"),
        ({**FRANCE, "id": "first"}, 'the id "first" is taken by line 1'),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(file: Path, record: Any, words: str) -> None:
    with pytest.raises(HeadcountError) as error:
        jsonl(path=write(file, {**FRANCE, "id": "first"}, record))
    assert str(error.value).startswith(f"{file}, line 2: ")
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b'{"prompt": "x", ', "the line is not JSON (Expecting property name"),
        (b"[" * 100_000, "the line is not JSON (RecursionError)"),
        (b'{"id": ' + b"1" * 5000 + b"}", "the line is not JSON (ValueError)"),
        ('{"prompt": "Café"}'.encode("latin-1"), "the text is not UTF-8 (byte 16)"),
        (b'{"prompt": "' + b"x" * 10_000_000 + b'"}', "longer than 1,000,000 bytes"),
    ],
)
def test_lines_that_cannot_be_read(file: Path, line: bytes, words: str) -> None:
    file.write_bytes(b"\n" + line + b"\n")
    with pytest.raises(HeadcountError) as error:
        jsonl(path=str(file))
    assert str(error.value).startswith(f"{file}, line 2: ")
    assert words in str(error.value)
    assert len(str(error.value)) < 300


def test_utf_16(file: Path) -> None:
    file.write_text(json.dumps(FRANCE), encoding="utf-16")
    with pytest.raises(HeadcountError, match="line 1: the text is not UTF-8"):
        jsonl(path=str(file))


def test_files_without_examples(file: Path, tmp_path: Path) -> None:
    file.write_text("\n\n")
    with pytest.raises(HeadcountError, match="has no examples: give it at least one"):
        jsonl(path=str(file))
    with pytest.raises(HeadcountError, match=r"Cannot read the task file .*No such file"):
        jsonl(path=str(tmp_path / "none.jsonl"))
    with pytest.raises(HeadcountError, match=r"Cannot read the task file .*directory"):
        jsonl(path=str(tmp_path))
    with pytest.raises(HeadcountError, match="Name the file that holds the examples"):
        jsonl()
