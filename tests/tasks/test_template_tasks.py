"""The tasks of heads-kept: aligned corrupted prompts for every tokenizer, or a sentence."""

from __future__ import annotations

import random
from functools import partial

import pytest
import tiny_tokenizers as tiny
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from headcount.errors import HeadcountError
from headcount.tasks import encode, make_task, require_corrupted, require_foils
from headcount.tasks.items import tables
from headcount.tasks.template_tasks import long_templates

NAMES = ("ioi-long", "greater-than", "docstring")
YEARS = [f"{century}{year:02d}" for century in range(11, 19) for year in range(100)]
WORDS = dict.fromkeys(
    (
        *tables("greater_than").words("nouns"),
        *tables("docstring").words("words"),
        *tables("docstring").words("names"),
    )
)
TEXTS = [
    *tiny.SENTENCES,
    *(f" {word}" for word in WORDS for _ in range(9)),
    *(template.replace("{", "").replace("}", "") for template in long_templates()),
    *(line.replace(r"\n", "\n") for line in tables("docstring").lines("templates")),
]


def trained(digits: str, extra: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    """A byte-level tokenizer that knows our words and cuts digits by this pattern."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(digits), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=4000,
        special_tokens=tiny.SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*TEXTS, *extra], trainer)
    return tiny.wrap(tokenizer, bos=digits == r"\d")


@pytest.fixture(scope="module")
def kinds() -> dict[str, PreTrainedTokenizerFast]:
    return {
        "one digit": trained(r"\d"),  # SmolLM2, Qwen
        "two digits": trained(r"\d\d", tuple(f"the year {year}" for year in YEARS)),  # GPT-2, here
        "three digits": trained(r"\d{1,3}", tuple(YEARS)),  # Llama 3
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["one digit", "two digits", "three digits"])
def test_corrupted_prompts_are_aligned_for_every_tokenizer(
    name: str, kind: str, kinds: dict[str, PreTrainedTokenizerFast]
) -> None:
    task = make_task(name, kinds[kind], n=500)
    encoded = encode(task, kinds[kind])
    require_corrupted(encoded)
    require_foils(encoded, "this test")
    assert len({example.prompt for example in task}) == 500
    assert len({example.cluster for example in task}) == 500
    sizes = [len(task.split("ranking")), len(task.split("test"))]
    assert min(sizes) > 0.3 * len(task)
    assert all(len(one.target) == 1 for one in encoded)
    if name == "ioi-long":
        assert all(40 <= len(one.prompt) <= 100 for one in encoded)


@pytest.mark.parametrize("name", NAMES)
def test_seeds_and_lengths(name: str, kinds: dict[str, PreTrainedTokenizerFast]) -> None:
    make, tokenizer = partial(make_task, name), kinds["one digit"]
    random.seed(1)
    first = make(tokenizer, n=20, seed=3)
    random.seed(2)
    assert make(tokenizer, n=20, seed=3) == first
    assert make(tokenizer, n=20, seed=4).examples != first.examples
    assert make(tokenizer, n=30, seed=3).examples[:20] == first.examples
    for n in (0, -1, 10**6):
        with pytest.raises(HeadcountError, match=rf"from 1 to \d+ different examples, not {n}"):
            make(tokenizer, n=n)


def test_the_form_of_years_is_that_of_the_tokenizer(
    kinds: dict[str, PreTrainedTokenizerFast],
) -> None:
    def start_of(prompt: str | None) -> int:
        return int((prompt or "").split("the year ")[1][2:4])

    others = []
    for example in make_task("greater-than", kinds["two digits"], n=60):
        start = start_of(example.prompt)
        assert {int(answer) for answer in (example.target, *example.also)} == {
            *range(start + 1, 100)
        }
        assert {int(foil) for foil in example.foils} == {*range(start + 1)}
        assert example.target == f"{start + 1:02d}"
        others.append(start_of(example.corrupted) - start)
    # Corrupted prompts start in other years at random, earlier and later ones: with one and the
    # same early year in all, a mean over them would itself say an early year.
    assert 0 not in others
    assert min(others) < -20
    assert max(others) > 20
    for example in make_task("greater-than", kinds["one digit"], n=60):
        decade, year = map(int, example.prompt.split("the year ")[1][2:4])
        right = {int(answer) for answer in (example.target, *example.also)}
        wrong = {int(foil) for foil in example.foils}
        assert right | wrong == {*range(10)}  # every digit is right or wrong, the start's as well
        for digit in range(10):  # and right if and only if every year that it begins is later
            later = {10 * digit + last > 10 * decade + year for last in range(10)}
            assert later == {digit in right}
        assert example.target == str(decade + 1)
        century = example.content.split("/")[1]
        assert example.corrupted is not None
        assert f"the year {century}" in example.corrupted
        assert start_of(example.corrupted) // 10 != decade  # it has another answer
        assert example.prompt.endswith(f"the year {century}")


def test_the_next_argument_is_the_answer(kinds: dict[str, PreTrainedTokenizerFast]) -> None:
    for example in make_task("docstring", kinds["one digit"], n=60):
        signature = example.prompt.split("(")[1].split(")")[0].split(", ")[1:]
        documented = [part.split(":")[0] for part in example.prompt.split(":param ")[1:]]
        assert documented == signature[: len(documented)]
        assert example.target == f" {signature[len(documented)]}"
        assert {*example.foils} == {f" {name}" for name in signature} - {example.target}
        corrupted = example.corrupted or ""
        fresh = corrupted.split("(")[1].split(")")[0].split(", ")[1:]
        described = [part.split(":")[0] for part in corrupted.split(":param ")[1:]]
        assert not {*signature} & {*fresh, *described}
        assert not {*fresh} & {*described}


def test_the_long_prompts_are_whole() -> None:
    passages = tables("ioi").lines("passages")
    assert all(2 <= passage.count(". ") + 1 <= 4 for passage in passages)
    templates = long_templates()
    assert len(set(templates)) == len(passages)
    for part in (*tables("ioi").lines("openings"), *tables("ioi").lines("closings")):
        assert any(part in template for template in templates)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("greater-than", "neither years as two tokens .* choose another task"),
        (
            "docstring",
            "argument names are single tokens for this tokenizer, and the task",
        ),
        ("ioi-long", "no long prompt has 40 to 100 tokens"),
    ],
)
def test_a_tokenizer_without_aligned_corrupted_prompts_is_refused(name: str, words: str) -> None:
    inner = Tokenizer(models.WordLevel({"<unk>": 0, "the": 1}, unk_token="<unk>"))
    inner.pre_tokenizer = (
        pre_tokenizers.Split(Regex(r"."), "isolated")
        if name == "ioi-long"
        else pre_tokenizers.Whitespace()
    )
    with pytest.raises(HeadcountError, match=words):
        make_task(name, PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>"), n=4)
