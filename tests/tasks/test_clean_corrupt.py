"""Files of clean and corrupt prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers as tiny

from headcount.errors import HeadcountError
from headcount.tasks import encode, make_task, require_corrupted

GOOD: dict[str, Any] = {
    "clean": "Then, Mary and John went to the garden. John gave a lamp to",
    "corrupt": "Then, Anna and Paul went to the garden. Lucy gave a lamp to",
    "answers": [" Mary", " Mary", " Kate"],
    "wrong_answers": [" John"],
}


def write(folder: Path, data: Any) -> str:
    path = folder / "prompts.json"
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return str(path)


def test_prompts_are_read(tmp_path: Path) -> None:
    path = write(tmp_path, {"seq_labels": ["ignored"], "prompts": [GOOD, GOOD | {"id": 7}]})
    task = make_task(path, tiny.byte_level())
    assert [example.id for example in task] == ["prompt-1", "prompt-2"]
    first = task.examples[0]
    assert (first.prompt, first.corrupted) == (GOOD["clean"], GOOD["corrupt"])
    assert (first.target, first.also, first.foils) == (" Mary", (" Kate",), (" John",))
    require_corrupted(encode(task, tiny.byte_level()))
    assert len(make_task(path, tiny.byte_level(), n=1)) == 1
    assert make_task("circuit", tiny.byte_level(), path=path).examples == task.examples


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("{", "the file is not JSON"),
        ([GOOD], 'has no list "prompts"'),
        ({"prompts": GOOD}, 'has no list "prompts"'),
        ({"prompts": []}, "has no prompts"),
        ({"prompts": [GOOD, "text"]}, "prompt 2: a record is a JSON object"),
        ({"prompts": [GOOD | {"clean": 3}]}, 'prompt 1: the field "clean" must hold a text'),
        ({"prompts": [GOOD | {"corrupt": None}]}, 'the field "corrupt" must hold a text'),
        (
            {"prompts": [GOOD | {"answers": []}]},
            "each need at least one text",
        ),
        ({"prompts": [GOOD | {"answers": " Mary"}]}, '"answers" must be a list'),
        ({"prompts": [GOOD | {"wrong_answers": [1]}]}, '"wrong_answers" must be a list'),
        ({"prompts": [GOOD | {"wrong_answers": [" Mary"]}]}, "foil .* which is its target"),
        ({"prompts": [GOOD | {"wrong_answers": [" Kate"]}]}, "among its right and its wrong"),
        ({"prompts": [GOOD | {"answers": [" Mary", ""]}]}, "an empty answer"),
        ({"prompts": [GOOD | {"corrupt": GOOD["clean"]}]}, "equal to its prompt"),
    ],
)
def test_bad_files_are_a_sentence(tmp_path: Path, data: Any, words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        make_task(write(tmp_path, data), tiny.byte_level())


def test_other_bad_input(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="Cannot read the task file"):
        make_task(str(tmp_path / "none.json"), tiny.byte_level())
    with pytest.raises(HeadcountError, match="path=FILE"):
        make_task("circuit", tiny.byte_level())
    path = write(tmp_path, {"prompts": [GOOD]})
    with pytest.raises(HeadcountError, match="has 1 prompts, not 2"):
        make_task(path, tiny.byte_level(), n=2)
    with pytest.raises(HeadcountError, match=r"not -1: ask for 1 to \d+, or 0 for all"):
        make_task(path, tiny.byte_level(), n=-1)
    (tmp_path / "latin.json").write_bytes(b'{"prompts": "\xe4"}')
    with pytest.raises(HeadcountError, match="not UTF-8"):
        make_task(str(tmp_path / "latin.json"), tiny.byte_level())
