"""The task `needle`: exact lengths, depths, one needle in each text, and what is refused."""

from __future__ import annotations

import re
from itertools import islice

import pytest
from planted_needle import needle_tokenizer, plant_needle
from tasks.tiny_tokenizers import every_kind

from headcount import HeadcountError, make_task
from headcount.tasks import encode
from headcount.tasks.items import tables
from headcount.tasks.needle import depth_of, sentences


@pytest.mark.parametrize("length", [100, 163, 700])
def test_prompts_are_as_long_as_asked(length: int) -> None:
    task = make_task("needle", needle_tokenizer(), length=length, n=20)
    assert {len(example.prompt) for example in encode(task, needle_tokenizer())} == {length}


def test_every_tokenizer_comes_near_and_never_beyond() -> None:
    for kind, tokenizer in every_kind().items():
        task = make_task("needle", tokenizer, length=900, n=8, depths=(0.0, 1.0))
        for encoded in encode(task, tokenizer):
            assert 890 <= len(encoded.prompt) <= 900, kind
            assert tokenizer.decode(encoded.prompt, skip_special_tokens=True).strip() == (
                encoded.example.prompt
            )


@pytest.mark.parametrize("depth", [0.0, 0.25, 0.5, 1.0])
def test_the_needle_stands_at_its_depth(depth: float) -> None:
    tokenizer = needle_tokenizer()
    task = make_task("needle", tokenizer, length=800, n=4, depths=(depth,))
    for encoded in encode(task, tokenizer):
        front, start, stop, end = encoded.borders
        needle = tokenizer.decode(encoded.prompt[start:stop])
        assert encoded.example.target in needle
        assert needle.startswith(" The ")
        assert depth_of(encoded.example.id) == depth
        question = encoded.example.prompt.rpartition("\n\n")[2]
        after = len(tokenizer.encode(f"\n\n{question}"))
        intro = len(tokenizer.encode(encoded.example.prompt.partition(":")[0] + ":"))
        room = (end - front) - (stop - start) - after - intro
        assert (start - intro) / room == pytest.approx(depth, abs=0.02)


def test_a_text_holds_one_needle_and_no_sentence_twice() -> None:
    data = tables("needle")
    values = {*data.words("first"), *data.words("second")}
    for example in make_task("needle", needle_tokenizer(), length=3000, n=12):
        text = example.prompt.partition("Text:")[2].partition("\n\n")[0]
        lines = re.findall(r"[^.]+\.", text)
        assert len(lines) == len({*lines}) > 100
        assert text.count(example.target) == 1
        assert len(values & {*re.findall(r"\w+", text)}) == 2
        assert not any(foil in text for foil in example.foils)
        assert len({example.target, *example.foils}) == 4


def test_the_haystack_is_long_enough_for_a_million_tokens() -> None:
    texts = list(islice(sentences(), 60_000))
    assert len({*texts}) == len(texts)
    words = {*tables("needle").words("first"), *tables("needle").words("second")}
    assert not words & {*re.findall(r"\w+", " ".join(texts[:5000]).lower())}


def test_needles_are_the_same_at_all_lengths_and_depths_share_a_split() -> None:
    tokenizer = needle_tokenizer()
    short, long = (make_task("needle", tokenizer, length=n, n=48) for n in (120, 500))
    assert [e.id for e in short] == [e.id for e in long]
    assert [(e.content, e.target, e.template) for e in short] == [
        (e.content, e.target, e.template) for e in long
    ]
    assert short.test_contents == long.test_contents
    halves = [short.split("ranking"), short.split("test")]
    forms = [{example.template for example in half} for half in halves]
    assert forms[0] == forms[1]
    whole = make_task("needle", tokenizer, length=120, n=80)
    assert [len({e.template for e in whole.split(s)}) for s in ("ranking", "test")] == [8, 8]  # type: ignore[arg-type]
    assert make_task("needle", tokenizer, length=120, n=48).examples == short.examples
    other = make_task("needle", tokenizer, length=500, n=48, seed=1)
    assert other.examples[0].prompt != long.examples[0].prompt
    assert other.examples[0].target == long.examples[0].target


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"length": 40}, r"of 40 tokens is too short: .* have \d+; ask for a length of at least"),
        ({"length": 0}, "from 1 to 1,000,000 tokens, not 0"),
        ({"n": 1}, "from 2 to 2,400 examples, not 1"),
        ({"depths": (0.5, 1.5)}, "different numbers from 0 to 1"),
        ({"depths": ()}, "different numbers from 0 to 1"),
        ({"depths": (0.5, 0.5)}, "different numbers from 0 to 1"),
        ({"depths": "deep"}, "different numbers from 0 to 1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        make_task("needle", needle_tokenizer(), **settings)


def test_a_needle_longer_than_the_context_is_refused_with_both_lengths() -> None:
    model = plant_needle(reads=256).model
    task = make_task("needle", model, length=300, n=2)
    with pytest.raises(HeadcountError, match=r"has 301 tokens, more than the 256 that"):
        model.encode(task)
