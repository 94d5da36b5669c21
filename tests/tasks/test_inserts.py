"""Inserts: exact token counts, whatever the tokenizer, and original ids that stay as they are."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from real import bundled
from tiny_tokenizers import CHAT, byte_level, llama2, metaspace, unigram, word_level

from headcount import HeadcountError
from headcount.tasks import Example, Task, encode, make_task
from headcount.tasks.inserts import LENGTHS, PLACES, Insert, insert_ids, locate, with_insert

TOKENIZERS: list[Any] = [
    byte_level(),
    byte_level(bos=True),
    metaspace("always", bos=True),
    metaspace("first"),
    metaspace("never"),
    llama2(bos=True),
]


@cache
def some_task(n: int = 3, chat: bool = False) -> Task:
    """The problems do not depend on the tokenizer."""
    return make_task("word-problems", byte_level(), n=n, shots=1, chat=chat)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", ["/", "\\", "?", "he", "two words"])
def test_counts_are_exact_and_original_ids_stay(tokenizer: Any, place: Any, text: str) -> None:
    task = some_task()
    before = encode(task, tokenizer)
    for length in LENGTHS if text == "/" else (55,):
        after = encode(with_insert(task, tokenizer, Insert(text, length, place)), tokenizer)
        for old, new in zip(before, after, strict=True):
            expected = 0 if place == "none" else length
            assert len(new.prompt) == len(old.prompt) + expected
            found = locate(new, old)
            assert tuple(new.prompt[i] for i in found.original) == old.prompt
            assert len(found.span) == expected
            inserted = tuple(new.prompt[i] for i in found.span)
            if expected and place != "random":  # a run of one token may be found a place off
                assert inserted == insert_ids(tokenizer, text, length)
            assert new.target == old.target


def test_places_are_what_they_are_called() -> None:
    tokenizer = byte_level(bos=True)
    task = some_task()
    (first, *_) = encode(task, tokenizer)
    start, middle, end = first.borders
    assert start == 1  # behind BOS
    wanted = {"before": start, "between": middle, "end": end}
    for place, at in wanted.items():
        insert = Insert("/", 5, place)  # type: ignore[arg-type]
        (one, *_) = encode(with_insert(task, tokenizer, insert), tokenizer)
        assert locate(one, first).span == tuple(range(at, at + 5))


@pytest.mark.real
def test_a_point_and_a_slash_do_not_merge() -> None:
    tokenizer = bundled().tokenizer
    task = some_task()
    instruction, _ = task.examples[0].pieces
    (old, *_) = encode(task, tokenizer)
    for text in ("/", "\\", "?", "he"):
        (new, *_) = encode(with_insert(task, tokenizer, Insert(text)), tokenizer)
        found = locate(new, old)
        assert len(found.span) == 55
        written = tokenizer.decode([new.prompt[place] for place in found.span])
        assert written == " ".join([text] * 55)  # one token each
        assert new.example.prompt.startswith(f"{instruction}{written}")
    joined = tokenizer.encode(instruction + "/ /")
    assert tuple(joined) != (*old.prompt[: old.borders[1]], *insert_ids(tokenizer, "/", 2))


def test_random_places_differ_and_come_back() -> None:
    tokenizer = byte_level()
    task = some_task(12)
    before = encode(task, tokenizer)

    def spans(seed: int) -> list[int]:
        there = with_insert(task, tokenizer, Insert("/", 3, "random", seed))
        both = zip(encode(there, tokenizer), before, strict=True)
        return [locate(new, old).span[0] for new, old in both]

    assert spans(0) == spans(0)
    assert spans(0) != spans(1)
    assert len(set(spans(0))) > 4


@pytest.mark.parametrize("place", PLACES)
def test_chats_hold_the_insert(place: Any) -> None:
    tokenizer = byte_level(chat=CHAT)
    task = some_task(chat=True)
    before = encode(task, tokenizer)
    after = encode(with_insert(task, tokenizer, Insert("he", 7, place)), tokenizer)
    user, reply = tokenizer.convert_tokens_to_ids(["<|user|>", "<|reply|>"])
    for old, new in zip(before, after, strict=True):
        found = locate(new, old)
        assert len(found.span) == (0 if place == "none" else 7)
        assert new.prompt[-1] == reply
        assert all(new.prompt.index(user) < place < len(new.prompt) - 1 for place in found.span)
        written = tokenizer.apply_chat_template(
            [{"role": "user", "content": old.example.prompt}],
            add_generation_prompt=True,
            tokenize=False,
        )
        assert tokenizer.decode(old.prompt) == written


def test_what_changes_nothing_changes_no_key() -> None:
    tokenizer = byte_level()
    whole = Task("t", 1, (Example("0", "Then, Mary and John.", " Mary"),))
    parts = Task(
        "t",
        1,
        (Example("0", "Then, Mary and John.", " Mary", pieces=("Then, Mary", " and John.")),),
    )
    (one,), (other,) = encode(whole, tokenizer), encode(parts, tokenizer)
    assert one.prompt == other.prompt
    assert one.key == other.key
    assert one.borders == ()
    assert [other.borders[0], other.borders[-1]] == [0, len(other.prompt)]


def test_bad_inserts_are_a_sentence() -> None:
    tokenizer = byte_level()
    task = some_task()
    with pytest.raises(HeadcountError, match="at least one character"):
        with_insert(task, tokenizer, Insert("  "))
    with pytest.raises(HeadcountError, match=r'no place "betwen".*Did you mean'):
        Insert(place="betwen")  # type: ignore[arg-type]
    with pytest.raises(HeadcountError, match="from 0 to"):
        Insert(length=-1)
    with pytest.raises(HeadcountError, match="in two pieces"):
        with_insert(Task("t", 1, (Example("0", "a", " b"),)), tokenizer, Insert())
    with pytest.raises(HeadcountError, match="no tokens that decode to the insert"):
        insert_ids(word_level(), "/", 3)  # a sign that it does not know
    assert len(insert_ids(unigram(), "he", 9)) == 9


def test_a_prompt_that_is_not_its_own() -> None:
    tokenizer = byte_level()
    task = some_task()
    one, other, *_ = encode(task, tokenizer)
    with pytest.raises(HeadcountError, match="more than one inserted run"):
        locate(other, one)
