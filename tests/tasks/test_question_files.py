"""CommonsenseQA and GSM8K-style files: every layout, and what is wrong with a bad one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import byte_level

from headcount import HeadcountError
from headcount.tasks import Task, encode, make_task
from headcount.tasks.question_files import solution

N = 110
THINGS = ("chair", "river", "lamp", "horse", "cloud")


def official(place: int) -> dict[str, Any]:
    choices = [{"label": "ABCDE"[i], "text": text} for i, text in enumerate(THINGS)]
    question = {"stem": f"Which thing has the number {place}?", "choices": choices}
    return {"id": f"id-{place}", "question": question, "answerKey": "ABCDE"[place % 5]}


def columns(place: int) -> dict[str, Any]:
    record = official(place)
    choices = {"label": list("ABCDE"), "text": list(THINGS)}
    return {**record, "question": record["question"]["stem"], "choices": choices}


def lines(place: int) -> dict[str, Any]:
    options = "".join(f"\n{'abcde'[i]}: {text}" for i, text in enumerate(THINGS))
    return {"input": f"Which thing has the number {place}?{options}", "output": "abcde"[place % 5]}


def problem(place: int) -> dict[str, Any]:
    return {
        "question": f"Anna has {place} pens and buys 4.  How many pens has Anna?",
        "answer": f"Anna has {place} + 4 = <<{place}+4={place + 4}>>{place + 4} pens.\n"
        f"#### {place + 4}",
    }


def written(folder: Path, records: Any, *, as_list: bool = False) -> str:
    path = folder / "records.json"
    text = json.dumps(records) if as_list else "\n".join(map(json.dumps, records))
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize("layout", [official, columns, lines])
def test_the_layouts_of_commonsense_qa(tmp_path: Path, layout: Any, as_list: bool) -> None:
    path = written(tmp_path, [layout(place) for place in range(N)], as_list=as_list)
    task = make_task("commonsense-qa", byte_level(), path=path)
    assert task.name == "commonsense-qa"
    assert len(task) == N - 64
    for example in task:
        place = int(example.content.split()[-1].rstrip("?"))
        assert example.target == f" {THINGS[place % 5]}"
        assert set(example.foils) <= {f" {thing}" for thing in THINGS} - {example.target}
        assert example.prompt.endswith(f"\n\nQuestion: {example.content}\nAnswer:")
    encode(task, byte_level())
    path = written(tmp_path, [official(place) for place in range(N)])
    same = make_task("commonsense-qa", byte_level(), path=path)
    assert same.examples == task.examples


def test_letters_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, [lines(place) for place in range(N)])
    task = make_task("commonsense-qa", byte_level(), path=path, letters=True)
    for example in task:
        place = int(example.content.split()[-1].rstrip("?"))
        assert example.target == f" {'ABCDE'[place % 5]}"
        assert "\nA. chair\nB. river\nC. lamp\nD. horse\nE. cloud\nAnswer:" in example.prompt
        assert len(example.foils) == 4


def test_an_option_that_comes_twice_is_listed_once(tmp_path: Path) -> None:
    options = "a: cat\nb: dog\nc: dog\nd: cow"
    records = [{"input": f"What barks {place}?\n{options}", "output": "c"} for place in range(N)]
    path = written(tmp_path, records)
    assert {e.target for e in make_task("commonsense-qa", byte_level(), path=path)} == {" dog"}
    for example in make_task("commonsense-qa", byte_level(), path=path, letters=True):
        assert example.target == " B"
        assert example.prompt.endswith("?\nA. cat\nB. dog\nC. cow\nAnswer:")


def test_gsm8k(tmp_path: Path) -> None:
    path = written(tmp_path, [problem(place) for place in range(N)])
    task = make_task("gsm8k", byte_level(), path=path)
    assert task.name == "gsm8k"
    assert len(task) == N - 64
    assert task.stop == ("\n\n",)
    for example in task:
        place = int(example.content.split()[2])
        assert example.target == (
            f" Anna has {place} + 4 = {place + 4} pens.\nThe answer is {place + 4}."
        )
        shown, asked = example.prompt.split("\n\n")
        assert shown.endswith(".")
        assert "The answer is " in shown
        assert asked.endswith("pens has Anna?\nAnswer:")
    encode(task, byte_level())


def test_endings_of_solutions() -> None:
    answer = "He pays 2*$5=$<<2*5=10>>10.\nThat is 1,000 - 10 = <<1000-10=990>>990\n#### 990"
    start = "He pays 2*$5=$10.\nThat is 1,000 - 10 = 990"
    assert solution(answer) == f"{start}\nThe answer is 990."
    assert solution(answer, "marks") == f"{start}\n#### 990"
    assert solution(answer, "none") == start
    assert solution("Just seven.") == "Just seven."


def load(kind: str, path: str, **settings: Any) -> Task:
    return make_task(
        "gsm8k" if kind == "gsm8k" else "commonsense-qa", byte_level(), path=path, **settings
    )


def no(record: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in names}


def asking(**changes: Any) -> dict[str, Any]:
    return {**official(0), "question": {**official(0)["question"], **changes}}


@pytest.mark.parametrize(
    ("kind", "record", "words"),
    [
        ("gsm8k", 3, "line 3: a record is a JSON object"),
        ("gsm8k", no(problem(0), "question"), 'line 3: the field "question" is missing'),
        ("gsm8k", no(problem(0), "answer"), 'the field "answer" is missing'),
        ("gsm8k", {**problem(0), "answer": "  "}, '"answer" must hold a text that is not empty'),
        ("gsm8k", {**problem(0), "answer": 7}, '"answer" must hold a text'),
        ("gsm8k", {**problem(0), "answer": "<<1+1=2>>"}, "holds no solution"),
        ("gsm8k", {**problem(0), "answer": "\ud800"}, "not valid Unicode"),
        ("csqa", no(official(0), "question"), 'the field "question" is missing'),
        ("csqa", no(official(0), "answerKey"), 'line 3: the field "answerKey" is missing or empty'),
        ("csqa", {**official(0), "answerKey": ""}, "comes with the answers"),
        ("csqa", {**official(0), "answerKey": "F"}, '"F" names 0 of the options'),
        ("csqa", asking(stem=""), '"stem" must hold a text'),
        ("csqa", asking(choices="chair"), "must list objects"),
        ("csqa", asking(choices=[{"label": "A"}]), 'a choice: the field "text" is missing'),
        ("csqa", asking(choices=[{"label": "A", "text": "x"}]), "wrong option besides the answer"),
        ("csqa", {**columns(0), "choices": {"label": ["A"], "text": []}}, "as many labels as"),
        ("csqa", no(lines(0), "output"), 'the field "output" is missing'),
        ("csqa", {"input": "What?", "output": "a"}, 'an option such as "a: chair"'),
        ("csqa", {"input": "What?\nchair", "output": "a"}, 'an option such as "a: chair"'),
        ("csqa", {"input": "What?\na: x\nb: x", "output": "a"}, "wrong option besides the answer"),
    ],
)
def test_bad_records(tmp_path: Path, kind: str, record: Any, words: str) -> None:
    good = problem if kind == "gsm8k" else official
    path = written(tmp_path, [good(1), good(2), record, good(3)])
    with pytest.raises(HeadcountError, match=words):
        load(kind, path)


@pytest.mark.parametrize("kind", ["gsm8k", "csqa"])
def test_bad_files(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "bad.json"
    for data, words in (
        (b"", r"has no \w+ records"),
        (b"[]", r"has no \w+ records"),
        (b'{"question": ', "line 1: the line is not JSON"),
        (b'[{"question": ', "the file is not JSON"),
        (b'["\xff\xfe"]', "not UTF-8"),
        ('{"question": "é"}'.encode("latin-1"), "not UTF-8"),
        ('{"question": "x"}'.encode("utf-16"), "not UTF-8"),
        (b'{"question": "' + b"x" * 10_000_000, "longer than 1,000,000 bytes"),
        (b"[" * 100_000, "not JSON"),
    ):
        path.write_bytes(data)
        with pytest.raises(HeadcountError, match=words):
            load(kind, str(path))
    with pytest.raises(HeadcountError, match="Cannot read"):
        load(kind, str(tmp_path / "none.json"))
    with pytest.raises(HeadcountError, match="Cannot read"):
        load(kind, str(tmp_path))
    with pytest.raises(HeadcountError, match="Name the file"):
        load(kind, "")


@pytest.mark.parametrize("kind", ["gsm8k", "csqa"])
def test_an_id_comes_once(tmp_path: Path, kind: str) -> None:
    good = problem if kind == "gsm8k" else official
    path = written(tmp_path, [{**good(place), "id": place % 50} for place in range(N)])
    with pytest.raises(HeadcountError, match='line 51: the id "0" is taken by line 1; give each'):
        load(kind, path)


@pytest.mark.parametrize("kind", ["gsm8k", "csqa"])
def test_too_few_records_for_the_split(tmp_path: Path, kind: str) -> None:
    good = problem if kind == "gsm8k" else official
    path = written(tmp_path, [good(place) for place in range(70)])
    with pytest.raises(HeadcountError, match="has 70 items and needs at least 100"):
        load(kind, path)


def test_a_question_that_comes_again_counts_once(tmp_path: Path) -> None:
    records = [no(official(place % 105), "id") for place in range(210)]
    task = make_task("commonsense-qa", byte_level(), path=written(tmp_path, records))
    assert len(task) == 105 - 64


def test_bad_settings(tmp_path: Path) -> None:
    path = written(tmp_path, [problem(place) for place in range(N)])
    with pytest.raises(HeadcountError, match=r'no ending "word".*Did you mean'):
        make_task("gsm8k", byte_level(), path=path, ending="word")
    with pytest.raises(HeadcountError, match="has 46 items, not 47"):
        make_task("gsm8k", byte_level(), path=path, n=47)
