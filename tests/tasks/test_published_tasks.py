"""Published data: what their rows become, and the look of the prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies import published_data as data

from headcount import HeadcountError, Task, make_task
from headcount.tasks.answer_endings import json_answer, json_end, read_answers


def made(name: str, **settings: Any) -> Task:
    return make_task(name, data.tokenizer(True), **settings)


@pytest.fixture
def csqa(tmp_path: Path) -> str:
    return data.write_lines(tmp_path / "csqa.jsonl", data.commonsense_rows(120))


def test_the_look_of_the_released_package(csqa: str) -> None:
    look = {"separator": "\n", "instruction": "Choose.", "bos": "never", "pool": 50}
    task = made("commonsense-qa", path=csqa, letters=True, **look)
    first = task.examples[0]
    assert len(task) == 120 - 50
    assert first.prompt.startswith("Choose.\nQuestion: Who went to garden ")
    assert "\nE. Rose\nAnswer: " in first.prompt
    solved, asked = first.prompt.split("Question: ")[1:]
    assert solved.splitlines()[-1].split(": ")[1] in "ABCDE"
    assert asked.endswith("E. Rose\nAnswer:")
    assert first.target in [f" {letter}" for letter in "ABCDE"]
    assert task.bos == "never"


@pytest.mark.parametrize(("share", "tested"), [(0.1, 7), (0.4, 28)])
def test_a_share_of_the_items_is_for_validation(csqa: str, share: float, tested: int) -> None:
    task = made("commonsense-qa", path=csqa, validation=share, pool=50)
    assert len(task.split("test")) == tested
    assert len(task.split("ranking")) == 70 - tested
    with pytest.raises(HeadcountError, match="validation from 0 to below 1"):
        made("commonsense-qa", path=csqa, validation=1.0)


def test_the_shortest_problems_that_have_an_answer(tmp_path: Path) -> None:
    rows = data.openmath_rows(150)
    for row in rows[100:]:
        row["problem"] += " Add nothing to it, and then nothing again."
    path = data.write_lines(tmp_path / "maths.jsonl", rows)
    task = made("openmath", path=path, shortest=110, pool=64)
    texts = [example.content for example in task]
    assert len(task) == 110 - 64
    assert "What is 3 + 1?" not in " ".join(e.prompt for e in task)  # it has no answer
    assert sum("nothing" in text for text in texts) <= 11
    assert task.examples[0].target.count("\n") == 1  # the whole solution


def test_frames_of_big_bench_are_removed(tmp_path: Path) -> None:
    for kind in ("tense", "subject_verb_agreement"):
        data.write_lines(tmp_path / f"{kind}.jsonl", data.big_bench_rows(kind, 90))
    task = made("big-bench", path=str(tmp_path), subsets="tense, subject_verb_agreement", each=70)
    assert {example.template for example in task} == {"tense", "subject_verb_agreement"}
    assert not any("Q:" in example.prompt or "A:" in example.prompt for example in task)
    verbs = [example for example in task if example.template == "subject_verb_agreement"]
    assert all({e.target, *e.foils} == {" is", " are"} for e in verbs)
    assert len(task) == 140 - 64


def test_cogqa_in_the_published_form(tmp_path: Path) -> None:
    train = data.write_list(tmp_path / "train.json", data.cogqa_records(0, 4))
    test = data.write_list(tmp_path / "test.json", data.cogqa_records(9, 2))
    how: dict[str, Any] = {"path": train, "test": test, "form": "json", "context": "retrieval"}
    task = made("inference", **how)
    assert task.name == "inference"  # a function, so masked-heads and the probe take it
    assert (task.stop, task.until) == ((), "json")
    assert (len(task.split("ranking")), len(task.split("test"))) == (4, 2)
    example = task.split("test").examples[0]
    assert "<known>\nQ1: What is step 0 of 9?\nA1: 9\n</known>" in example.prompt
    assert "What is step 1 of 9?" not in example.prompt
    assert example.target == '[{"answer": "Anna"}]'
    first = made("retrieval", **how).examples[0]
    assert "Nothing is known so far." in first.prompt


def test_cogqa_with_words_of_your_own(tmp_path: Path) -> None:
    train = data.write_list(tmp_path / "train.json", data.cogqa_records(0, 4))
    words = tmp_path / "words.txt"
    words.write_text('{question}|{known}|{asked}|{{"answer"}}')
    task = made("retrieval", path=train, form=str(words))
    asked = 'Mary has 0 lamps?|Nothing is known so far.|What is step 0 of 0?|{"answer"}'
    assert task.examples[0].prompt == asked
    with pytest.raises(HeadcountError, match="no form"):
        made("retrieval", path=train, form="xml")


@pytest.mark.parametrize(
    ("text", "answer", "ended"),
    [
        ('[\n  {"answer": "$528"}\n] so', "$528", True),
        ('[{"answer": 16}]', "16", True),
        ("[{\"answer\": 'x'}]", "'x'", True),
        ('[{"answer": "a \\"b\\" c"}]', 'a "b" c', True),
        ("It is 528.", "It is 528.", False),
        ('[{"answer": "5', '[{"answer": "5', False),
        ('[1] then [{"answer": "5"}]', "5", True),
    ],
)
def test_answers_are_read_out_of_json(text: str, answer: str, ended: bool) -> None:
    assert json_answer(text) == answer
    assert (json_end(text) is not None) == ended
    assert read_answers("json", [text]) == [answer]
    assert read_answers("", [text]) == [text]
