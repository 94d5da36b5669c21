from __future__ import annotations

import random
from collections import Counter

import pytest
import tiny_tokenizers as tiny
from tiny_tokenizers import NAMES, OBJECTS, PLACES, TEMPLATES
from transformers import PreTrainedTokenizerFast

from headcount.errors import HeadcountError
from headcount.tasks import encode, make_task, require_corrupted, require_foils
from headcount.tasks.template_tasks import ORDERS, single_tokens

KINDS = {**tiny.every_kind(), "unigram": tiny.unigram(), "word level": tiny.word_level()}


def test_the_word_lists() -> None:
    assert len(TEMPLATES) >= 18
    assert len(NAMES) >= 80
    for words in (TEMPLATES, NAMES, PLACES, OBJECTS):
        assert len(set(words)) == len(words)
    assert not any(thing[0] in "aeiou" for thing in OBJECTS)  # the templates say "a"
    for template in TEMPLATES:
        for name in ("{first}", "{second}", "{giver}"):
            assert template.count(f" {name}") == template.count(name) == 1
        assert template.index("{first}") < template.index("{second}") < template.index("{giver}")
        assert template.endswith(" to")


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_aligned_for_every_tokenizer(kind: str) -> None:
    encoded = encode(make_task("ioi", KINDS[kind], n=88), KINDS[kind])
    require_corrupted(encoded)
    require_foils(encoded, "this test")
    for one in encoded:
        (answer,), ((foil,),) = one.target, one.foils  # one token each
        assert one.corrupted is not None
        assert (one.prompt.count(answer), one.prompt.count(foil)) == (1, 2)
        assert answer not in one.corrupted
        assert foil not in one.corrupted
        # Prompt and corrupted prompt differ where the three names stand, and nowhere else.
        assert sum(a != b for a, b in zip(one.prompt, one.corrupted, strict=True)) == 3


def test_the_corrupted_prompt_has_three_fresh_names() -> None:
    for example in make_task("ioi", tiny.byte_level(), n=200):
        words = {w.strip(".,") for w in example.prompt.split()} & {*NAMES}
        fresh = [w.strip(".,") for w in (example.corrupted or "").split() if w.strip(".,") in NAMES]
        assert len(words) == 2
        assert len(set(fresh)) == len(fresh) == 3
        assert words.isdisjoint(fresh)
        assert {example.target, *example.foils} == {f" {word}" for word in words}


def test_orders() -> None:
    for example in make_task("ioi", tiny.byte_level(), n=88):
        receiver, (giver,) = example.target, example.foils
        first = example.prompt.index(receiver) < example.prompt.index(giver)
        assert first == example.template.endswith("ABBA")


def test_templates_come_round_evenly_and_no_sentence_comes_twice() -> None:
    task = make_task("ioi", tiny.byte_level(), n=600)
    assert len({e.prompt for e in task}) == len({e.cluster for e in task}) == 600
    uses = Counter(e.template for e in task)
    assert len(uses) == len(TEMPLATES) * len(ORDERS)
    assert max(uses.values()) - min(uses.values()) <= 1
    assert "t03-ABBA" in uses
    assert not any(name in e.content for e in task for name in NAMES)
    sizes = [len(task.split("ranking")), len(task.split("test"))]
    assert min(sizes) > 0.4 * len(task)


def test_a_longer_task_starts_like_a_shorter_one() -> None:
    assert (
        make_task("ioi", tiny.byte_level(), n=200).examples[:50]
        == make_task("ioi", tiny.byte_level(), n=50).examples
    )


def test_the_seed_decides_and_the_global_one_does_not() -> None:
    random.seed(1)
    first = make_task("ioi", tiny.byte_level(), n=20, seed=3)
    random.seed(2)
    assert make_task("ioi", tiny.byte_level(), n=20, seed=3) == first
    assert make_task("ioi", tiny.byte_level(), n=20, seed=4).examples != first.examples


def test_names_are_those_of_the_tokenizer() -> None:
    assert [*single_tokens(tiny.word_level(12), NAMES)] == [*NAMES[:12]]
    assert len(make_task("ioi", tiny.word_level(12), n=30)) == 30
    with pytest.raises(HeadcountError, match=rf"Only 9 of our {len(NAMES)} names .* ioi needs 10"):
        make_task("ioi", tiny.word_level(9))


@pytest.mark.parametrize("n", [0, -3, 10**6])
def test_too_many_or_too_few_examples(n: int) -> None:
    with pytest.raises(HeadcountError, match=rf"from 1 to \d+ different examples, not {n}"):
        make_task("ioi", tiny.byte_level(), n=n)


class Stutter(PreTrainedTokenizerFast):
    """A tokenizer that never writes two texts with equally many tokens."""

    calls = 0

    def encode(self, text: str, **settings: object) -> list[int]:  # type: ignore[override]
        Stutter.calls += 1
        ids = super().encode(text, **settings)
        return ids if len(text) < 30 else ids + [0] * Stutter.calls


def test_names_that_merge_with_a_comma_are_refused() -> None:
    with pytest.raises(HeadcountError, match="splits a name differently in different places"):
        make_task("ioi", tiny.metaspace("always", commas=True), n=88)


def test_a_tokenizer_without_aligned_corrupted_prompts() -> None:
    tokenizer = Stutter(tokenizer_object=tiny.byte_level().backend_tokenizer)
    with pytest.raises(
        HeadcountError, match=r"no corrupted prompt as long as its prompt in .* for task ioi"
    ):
        make_task("ioi", tokenizer, n=1)
