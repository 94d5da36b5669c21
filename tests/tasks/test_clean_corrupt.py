"""Files of clean and corrupt prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers as tiny
from toy import word_tokenizer

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


NAMES = ("Mary", "Kate", "Anna", "Lucy", "Paul", "John", "Mark", "Jane", "Ruth", "Carl")


def prompts(unequal: int) -> dict[str, Any]:
    """Ten prompts; the first ones have shorter corrupted prompts."""
    short = {"corrupt": "Then, Zoe went to the garden. Noah gave a lamp to"}
    return {
        "prompts": [
            {
                "clean": f"Then, {name} and Tom went to the garden. Tom gave a lamp to",
                "corrupt": "Then, Zoe and Max went to the garden. Noah gave a lamp to",
                "answers": [f" {name}"],
                "wrong_answers": [" Tom"],
            }
            | (short if number < unequal else {})
            for number, name in enumerate(NAMES)
        ]
    }


def words() -> Any:
    """One token for each word, so that another name has as many."""
    texts = [p[field] for p in prompts(1)["prompts"] for field in ("clean", "corrupt")]
    return word_tokenizer(tuple(sorted({word for text in texts for word in text.split()})))


def test_unequal_corrupted_prompts_are_left_out_with_a_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make_task(write(tmp_path, prompts(0)), words())
    kept = [example.id for example in whole]
    caplog.clear()
    task = make_task(write(tmp_path, prompts(2)), words())
    assert [example.id for example in task] == kept[2:]
    assert task.parameters["left_out"] == 2
    (message,) = caplog.messages
    assert message.startswith("headcount: 2 of the 10 examples of prompts are left out, because ")
    require_corrupted(encode(task, words()))
    # The others stay in their split.
    both = [[e.id for e in some.split("test") if e.id in kept[2:]] for some in (whole, task)]
    assert both[0] == both[1]


def test_above_a_fifth_nothing_is_left_out_and_ablations_refuse(tmp_path: Path) -> None:
    task = make_task(write(tmp_path, prompts(3)), words())
    assert len(task) == 10
    assert "left_out" not in task.parameters
    with pytest.raises(HeadcountError, match=r"has 11 tokens and its prompt 13: .*up to 20%"):
        require_corrupted(encode(task, words()))


def test_lines_with_unequal_corrupted_prompts_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    lines = [
        {"prompt": p["clean"], "target": p["answers"][0], "corrupted": p["corrupt"]}
        for p in prompts(1)["prompts"]
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    task = make_task(file, words())
    assert (len(task), task.parameters["left_out"]) == (9, 1)


def with_equal(tmp_path: Path, equal: int, unequal: int, *, lines: bool) -> str:
    """A file in which the last `equal` corrupted prompts are the prompts."""
    records = prompts(unequal)["prompts"]
    for record in records[len(records) - equal :]:
        record["corrupt"] = record["clean"]
    if not lines:
        return write(tmp_path, {"prompts": records})
    file = tmp_path / "mine.jsonl"
    renamed = [
        {"prompt": p["clean"], "target": p["answers"][0], "corrupted": p["corrupt"]}
        for p in records
    ]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in renamed))
    return str(file)


@pytest.mark.parametrize("lines", [True, False])
def test_corrupted_prompts_that_are_the_prompts_are_left_out_with_the_same_count(
    tmp_path: Path, lines: bool, caplog: pytest.LogCaptureFixture
) -> None:
    whole = make_task(with_equal(tmp_path, 0, 0, lines=lines), words())
    file = with_equal(tmp_path, 1, 1, lines=lines)
    task = make_task(file, words())
    assert [e.id for e in task] == [e.id for e in whole][1:-1]
    assert task.parameters["left_out"] == 2
    assert "2 of the 10 examples of" in caplog.messages[-1]
    require_corrupted(encode(task, words()))
    assert {e.id for e in task.split("test")} <= {e.id for e in whole.split("test")}
    # A smaller part of the file counts its own lines only.
    assert (
        "left_out"
        not in make_task(with_equal(tmp_path, 1, 0, lines=lines), words(), n=9).parameters
    )


@pytest.mark.parametrize("lines", [True, False])
@pytest.mark.parametrize(("equal", "unequal"), [(3, 0), (1, 2)])
def test_above_a_fifth_the_first_that_is_the_prompt_is_named(
    tmp_path: Path, lines: bool, equal: int, unequal: int
) -> None:
    file = with_equal(tmp_path, equal, unequal, lines=lines)
    with pytest.raises(HeadcountError) as refused:
        make_task(file, words())
    place = f"line {11 - equal}: the example" if lines else f"prompt {11 - equal}"
    assert str(refused.value).startswith(f"{file}, {place} has a corrupted prompt that is equal")


@pytest.mark.parametrize("lines", [True, False])
def test_a_file_of_cogqa_gets_a_hint(tmp_path: Path, lines: bool) -> None:
    record = {"question": "Who?", "answer": "he", "generated": []}
    path = write(tmp_path, f"{json.dumps(record)}\n" * 2 if lines else [record])
    with pytest.raises(HeadcountError) as refused:
        make_task(path, tiny.byte_level())
    assert f"--task cogqa --set path={path}" in str(refused.value)
