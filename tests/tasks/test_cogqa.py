"""The published CogQA layout."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headcount import HeadcountError
from headcount.tasks import Task
from headcount.tasks.cogqa import SkillSettings
from headcount.tasks.cogqa import cogqa as cogqa_of

RECORD: dict[str, Any] = {
    "question": "Anna has 3 apples and buys 4 more. How many has she?",
    "answer": "7",
    "generated": [
        {"subquestion": "How many had she?", "answer": "3", "cognitive_skill": "Retrieval"},
        {"subquestion": "What is buying?", "answer": "get", "cognitive_skill": "Knowledge Recall"},
        {"subquestion": "What is 3 + 4?", "answer": 7, "cognitive_skill": "Math Calculation"},
    ],
}  # fmt: skip
OTHER = {**RECORD, "question": "Ben has 2 pens."}


def cogqa(**settings: Any) -> Task:
    return cogqa_of(settings=SkillSettings(**settings))


def written(folder: Path, records: Any, *, lines: bool = False) -> str:
    path = folder / "cogqa.json"
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("lines", [False, True])
def test_sub_questions_come_with_the_earlier_ones(tmp_path: Path, lines: bool) -> None:
    task = cogqa(path=written(tmp_path, [RECORD, OTHER], lines=lines), skill="math_calculation")
    assert task.name == "cogqa-math-calculation"
    assert [example.target for example in task] == [" 7", " 7"]
    assert task.examples[0].prompt == (
        "Anna has 3 apples and buys 4 more. How many has she?\n\n"
        "Question: How many had she?\nAnswer: 3\n\n"
        "Question: What is buying?\nAnswer: get\n\n"
        "Question: What is 3 + 4?\nAnswer:"
    )
    assert len({example.content_id for example in task}) == 2


def test_context_can_be_as_in_the_published_code(tmp_path: Path) -> None:
    path = written(tmp_path, [RECORD, OTHER])
    some = cogqa(path=path, skill="Math Calculation", context="retrieval").examples[0].prompt
    assert "How many had she" in some
    assert "buying" not in some
    none = cogqa(path=path, skill="Math Calculation", context="none").examples[0].prompt
    assert "How many had she" not in none
    assert len(cogqa(path=path)) == 6


def test_the_first_n_sub_questions_of_a_skill(tmp_path: Path) -> None:
    path = written(tmp_path, [RECORD, OTHER])
    assert [example.id for example in cogqa(path=path, skill="Retrieval", n=1)] == ["1.1"]
    assert len(cogqa(path=path, n=4)) == 4
    with pytest.raises(HeadcountError, match=r"has 2 sub-questions of this skill, not 3"):
        cogqa(path=path, skill="Retrieval", n=3)


@pytest.mark.parametrize(
    ("records", "words"),
    [
        ([3], "a record is a JSON object"),
        ([{"question": "x"}], 'a list "generated"'),
        ([{**RECORD, "generated": [{"subquestion": "x", "answer": ""}]}], 'the field "answer"'),
        ([], "has no CogQA records"),
        ([{**RECORD, "generated": []}], "no sub-question"),
    ],
)
def test_bad_records(tmp_path: Path, records: Any, words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        cogqa(path=written(tmp_path, records))


def test_bad_files(tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text('[{"question": ', encoding="utf-8")
    with pytest.raises(HeadcountError, match="not JSON"):
        cogqa(path=str(path))
    path.write_bytes(b'["\xff\xfe"]')
    with pytest.raises(HeadcountError, match="not UTF-8"):
        cogqa(path=str(path))
    path.write_bytes(b"x" * 10_000_000)
    with pytest.raises(HeadcountError, match="longer than"):
        cogqa(path=str(path))
    with pytest.raises(HeadcountError, match="Cannot read"):
        cogqa(path=str(tmp_path / "none.json"))
    with pytest.raises(HeadcountError, match="Name the file"):
        cogqa()
    good = written(tmp_path, [RECORD])
    with pytest.raises(HeadcountError, match="Did you mean"):
        cogqa(path=good, skill="Retrival")
    with pytest.raises(HeadcountError, match="no context"):
        cogqa(path=good, context="some")  # type: ignore[arg-type]
