"""Problems with answers in a box: ours, and those of files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tiny_tokenizers import byte_level

from headcount import HeadcountError
from headcount.tasks import encode, make_task
from headcount.tasks.answer_endings import box_end, boxed
from headcount.tasks.maths.problems import INSTRUCTION, as_problem, items_of_levels

# The published problems are not ours to bring: a folder that holds them may be named.
DATA = Path(os.environ.get("HEADCOUNT_DATA") or Path(__file__).parents[3] / "shared" / "data")


def test_ours_are_many_and_right() -> None:
    task = make_task("word-problems", byte_level())
    assert len(task) >= 200
    assert task.until == "boxed"
    assert len({example.id for example in task}) == len(task)
    for example in task:
        instruction, body = example.pieces
        assert instruction == INSTRUCTION
        assert example.prompt == f"{instruction}{body}"
        *shown, asked = body.split("\n\nProblem: ")[1:]
        assert len(shown) == 2
        assert asked.endswith("\nAnswer:")
        assert all(one.split("\nAnswer:")[0] not in asked for one in shown)
        assert all(box_end(one) == len(one) - 1 for one in shown)  # a point behind the box
        answer = int(str(boxed(example.target)))
        if asked.startswith("What is"):
            left, right = asked.removeprefix("What is ").split("?")[0].split(" * ")
            assert int(left) * int(right) == answer
    encode(task.subset(50), byte_level())


def test_solutions_end_in_the_answer() -> None:
    for items in items_of_levels().values():
        for item in items:
            problem = as_problem(item)
            assert boxed(problem.solution) == problem.answer
            assert problem.answer in item.answer


@pytest.mark.parametrize("level", ["products", "one-step", "two-step"])
def test_levels(level: str) -> None:
    task = make_task("word-problems", byte_level(), level=level, shots=0, n=20)
    for example in task:
        assert example.pieces[1] == example.prompt.removeprefix(INSTRUCTION)
        assert (" * " in example.pieces[1]) == (level == "products")


def written(folder: Path, records: list[Any]) -> str:
    path = folder / "some.jsonl"
    path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
    return str(path)


def test_files_of_either_layout(tmp_path: Path) -> None:
    math = {"problem": "What is $1+1$?", "answer": "2", "subject": "Algebra", "level": 1}
    gsm = {"question": "Anna has 3 pens and buys 1,004.", "answer": "3 <<1>>\n#### 1,007"}
    number = {"problem": "Two and a half?", "answer": 2.5}
    task = make_task("problems", byte_level(), path=written(tmp_path, [math, gsm, number, math]))
    assert task.name == "some"
    assert [example.target for example in task] == [
        r" \boxed{2}",
        r" \boxed{1,007}",
        r" \boxed{2.5}",
    ]
    assert task.examples[0].pieces == (INSTRUCTION, "What is $1+1$?")
    assert task.examples[0].template == "Algebra"
    same = make_task("math-500", byte_level(), path=written(tmp_path, [math, gsm]))
    assert same.name == "math-500"
    assert same.max_new_tokens == 2048


def test_solved_problems_of_ours_stand_in_front_of_those_of_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, [{"problem": "What is $1+1$?", "answer": "2"}])
    bare, shown = (make_task("problems", byte_level(), path=path, shots=n) for n in (0, 2))
    body = shown.examples[0].pieces[1]
    assert body.endswith("\n\nProblem: What is $1+1$?\nAnswer:")
    assert body.count(r"The final answer is \boxed{") == body.count("Answer: ") == 2
    assert shown.examples[0].target == bare.examples[0].target
    asked = {example.pieces[1] for example in make_task("word-problems", byte_level(), shots=0)}
    assert not any(problem in body for problem in asked)  # the grader's own are not given away
    with pytest.raises(HeadcountError, match=r"some has from 0 to \d shots, not 9"):
        make_task("problems", byte_level(), path=path, shots=9)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"problem": "What?"}, 'line 2: the field "answer" is missing, and a problem without'),
        ({"problem": "What?", "answer": ""}, '"answer" must hold a text'),
        ({"problem": "What?", "answer": None}, '"answer" must hold a text'),
        ({"question": "What?", "answer": "so\nand so"}, "no final answer after ####"),
        ({"answer": "2"}, r'the field "problem" \(or "question"\) is missing'),
    ],
)
def test_problems_without_answers(tmp_path: Path, record: dict[str, Any], words: str) -> None:
    path = written(tmp_path, [{"problem": "One?", "answer": "1"}, record])
    with pytest.raises(HeadcountError, match=words):
        make_task("problems", byte_level(), path=path)


def test_bad_settings() -> None:
    for settings, words in (
        ({"level": "hard"}, "no level"),
        ({"shots": 9}, "from 0 to 8 shots"),
        ({"n": 10_000}, "items, not 10000"),
        ({"instruction": " "}, "must not be empty"),
    ):
        with pytest.raises(HeadcountError, match=words):
            make_task("word-problems", byte_level(), **settings)


@pytest.mark.parametrize(("file", "count"), [("math-500.jsonl", 500), ("gsm8k-test.jsonl", 1319)])
def test_the_published_files(file: str, count: int) -> None:
    path = DATA / file
    if not path.exists():
        pytest.skip(f"there is no {file}: name its folder in HEADCOUNT_DATA")
    assert len(make_task("problems", byte_level(), path=str(path))) == count
