from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_tokenizers as tiny

from headcount.errors import HeadcountError
from headcount.tasks import encode, make_task
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
        (b'{"prompt": "x", ', "the line is not JSON (a mistake at column 16)"),
        (b"[" * 100_000, "the line is not JSON (it is nested too deeply)"),
        (b'{"id": ' + b"1" * 5000 + b"}", "the line is not JSON (it holds a number of thousands"),
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


def test_the_first_n_lines(file: Path) -> None:
    path = write(file, *({**FRANCE, "prompt": f"{number}?"} for number in range(5)))
    assert [example.prompt for example in jsonl(path=path, n=2)] == ["0?", "1?"]
    assert len(jsonl(path=path)) == 5
    with pytest.raises(HeadcountError, match=r"has 5 examples, not 6: ask for 1 to 5"):
        jsonl(path=path, n=6)


PAIR = {"sentence_good": "The cats sleep.", "sentence_bad": "The cats sleeps."}


def test_pairs_of_sentences(file: Path) -> None:
    more = {"sentence_good": "It rains.", "sentence_bad": "It rain.", "UID": "verb", "pairID": "7"}
    first, second = jsonl(path=write(file, PAIR, more))
    assert (first.prompt, first.target, first.foils) == (
        "",
        "The cats sleep.",
        ("The cats sleeps.",),
    )
    assert (first.id, first.template, first.whole_text) == ("line-1", "", True)
    assert (second.id, second.template) == ("line-2", "verb")
    assert first.content_id != second.content_id


@pytest.mark.parametrize(
    ("record", "words"),
    [
        ({"sentence_good": "It rains."}, 'the field "sentence_bad" is missing'),
        ({"sentence_bad": "It rains."}, 'the field "sentence_good" is missing'),
        ({**PAIR, "sentence_bad": 3}, 'the field "sentence_bad" must hold a text'),
        ({**PAIR, "sentence_good": ""}, "the pair of sentences has an empty target"),
        ({**PAIR, "sentence_bad": ""}, "has an empty foil"),
        ({**PAIR, "sentence_bad": PAIR["sentence_good"]}, "which is its target"),
        ({**PAIR, "sentence_bad": "\ud800"}, "not valid Unicode"),
    ],
)
def test_bad_pairs_are_a_sentence(file: Path, record: Any, words: str) -> None:
    with pytest.raises(HeadcountError) as error:
        jsonl(path=write(file, PAIR, record))
    assert str(error.value).startswith(f"{file}, line 2: ")
    assert words in str(error.value)


def test_sentences_and_prompts_do_not_mix(file: Path) -> None:
    with pytest.raises(HeadcountError, match="both whole texts and prompts"):
        jsonl(path=write(file, PAIR, FRANCE))
    with pytest.raises(HeadcountError, match="no messages of a chat"):
        jsonl(path=write(file, PAIR), chat=True)


@pytest.mark.parametrize("has", [True, False])
def test_the_bos_rule_of_sentences_is_recorded(file: Path, has: bool) -> None:
    tokenizer = tiny.byte_level()
    if not has:
        tokenizer.bos_token = None
    task = make_task(write(file, PAIR), tokenizer)
    assert task.bos == task.parameters["bos"] == ("always" if has else "never")
    (one,) = encode(task, tokenizer)
    good, bad = (tuple(tokenizer.encode(PAIR[f"sentence_{kind}"])) for kind in ("good", "bad"))
    if has:
        assert (one.prompt, one.target, one.foils) == ((tokenizer.bos_token_id,), good, (bad,))
    else:
        # The first token of each sentence is read, and not scored.
        assert (one.prompt, one.target, one.foils) == (good[:1], good[1:], (bad,))
        with pytest.raises(HeadcountError, match="asks for a BOS token and the tokenizer has none"):
            encode(make_task(str(file), tokenizer, bos="always"), tokenizer)
    (same,) = encode(replace(task, bos="auto"), tokenizer)
    assert same == one
    short = make_task(write(file, {"sentence_good": "a", "sentence_bad": "b"}), tokenizer)
    if has:
        assert encode(short, tokenizer)
    else:
        with pytest.raises(HeadcountError, match=r"has 1 token, so that no token of it can be"):
            encode(short, tokenizer)


def test_a_file_of_cogqa_is_recognised(file: Path) -> None:
    record = {"question": "Who?", "generated": [{"subquestion": "Where?"}]}
    with pytest.raises(HeadcountError, match=r"this is a record of CogQA; .* --task cogqa --set"):
        jsonl(path=write(file, record))
