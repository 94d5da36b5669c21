"""From items to prompts: a pool that is never asked, one solved item, letters, counterfactuals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tiny_tokenizers import byte_level

from headcount import HeadcountError
from headcount.tasks import Task, encode, make_task
from headcount.tasks.items import Item
from headcount.tasks.roles import (
    POOL,
    PoolSettings,
    behind_pool,
    example_pool,
    lettered,
    pool_task,
    shuffled,
)
from headcount.tasks.roles.items import arithmetic_items, common_sense_items, syntax_items

TASKS: dict[str, Callable[[], list[Item]]] = {
    "syntax": syntax_items,
    "common-sense": common_sense_items,
    "arithmetic": arithmetic_items,
}
every_task = pytest.mark.parametrize(("name", "items"), TASKS.items(), ids=TASKS)
TOWNS = [f"Town{a}{b}" for a in "abcdefgh" for b in "klmnopqr"]


def towns(items: list[Item] | None = None, **settings: Any) -> Task:
    return pool_task("towns", items or town_items(), byte_level(), PoolSettings(**settings))


def town_items(per_form: int = 64) -> list[Item]:
    """Two forms; the answers are names that the tokenizer knows as one token each."""
    return [
        Item(f"Whose town is {town}?", ("Mary", "John")[place % 2], form, f"{form}/{town}")
        for form in ("ends", "closes")
        for place, town in enumerate(TOWNS[:per_form])
    ]


def front(prompt: str) -> str:
    return prompt.rpartition("Question: ")[0]


@every_task
def test_the_parts_are_large_enough(name: str, items: Callable[[], list[Item]]) -> None:
    task = make_task(name, byte_level())
    assert len(task) == len(items()) - POOL
    assert len({example.content for example in task}) == len(task)
    assert len(task.split("ranking")) >= 300
    assert len(task.split("test")) >= 300
    forms = {example.template for example in task}
    assert {example.template for example in task.split("ranking")} == forms
    assert {example.template for example in task.split("test")} == forms


@every_task
def test_what_is_shown_is_never_asked(name: str, items: Callable[[], list[Item]]) -> None:
    pool = {
        f"Question: {item.question}\nAnswer: {item.answer}\n\n" for item in example_pool(items())
    }
    assert len(pool) == POOL
    asked = Counter[str]()
    for seed in (0, 1):
        task = make_task(name, byte_level(), seed=seed)
        fronts = Counter(front(example.prompt) for example in task)
        assert set(fronts) <= pool
        assert len(fronts) > 0.8 * POOL
        asked += fronts
        shown = "".join(pool)
        for example in task:
            question = example.prompt.rpartition("Question: ")[2]
            assert f"Question: {question} " not in shown
            assert example.prompt.endswith("\nAnswer:")
            assert example.target[0] == " " != example.target[1]
    assert set(asked) == pool


@every_task
def test_foils_and_corrupted_prompts_fit_the_tokenizer(
    name: str, items: Callable[[], list[Item]]
) -> None:
    tokenizer = byte_level()
    answers = {f"Question: {item.question}\nAnswer:": item.answer for item in items()}
    task = make_task(name, tokenizer, n=120)
    aligned = 0
    for one in encode(task, tokenizer):
        assert all(foil[0] != one.target[0] for foil in one.foils)
        if one.corrupted is not None:
            aligned += 1
            corrupted = one.example.corrupted or ""
            assert len(one.corrupted) == len(one.prompt)
            assert front(corrupted) == front(one.example.prompt)
            assert answers[corrupted[len(front(corrupted)) :]] != one.example.target[1:]
    assert aligned >= 60


def test_the_example_has_the_form_of_the_item() -> None:
    forms = {item.question: item.template for item in syntax_items()}

    def shown(task: Task) -> list[bool]:
        asked = ((e, e.prompt.split("\n")[0].removeprefix("Question: ")) for e in task)
        return [forms[question] == example.template for example, question in asked]

    assert all(shown(make_task("syntax", byte_level())))
    assert (
        0.05
        < sum(shown(any_form := make_task("syntax", byte_level(), same_form=False))) / len(any_form)
        < 0.4
    )


def test_tasks_are_always_the_same() -> None:
    task = towns()
    assert towns().examples == task.examples
    backwards = towns(town_items()[::-1])
    assert sorted(backwards, key=lambda e: e.id) == sorted(task, key=lambda e: e.id)
    other = towns(seed=1)
    assert [e.id for e in other] == [e.id for e in task]
    assert other.examples != task.examples


def test_the_pool_holds_short_items_of_every_form() -> None:
    long = [
        Item(f"In a land far away, whose town is {town}?", "Mary", "ends", f"long/{town}")
        for town in TOWNS
    ]
    pool = example_pool([*town_items(), *long])
    assert Counter(item.template for item in pool) == {"ends": 32, "closes": 32}
    assert not any(item.content.startswith("long/") for item in pool)
    assert example_pool([*long, *town_items()[::-1]]) == pool


def test_shots() -> None:
    for shots in (0, 1, 3):
        task = towns(shots=shots)
        assert all(e.prompt.count("Question: ") == shots + 1 for e in task)
    shown = {item.content for item in example_pool(town_items())}
    item, many = behind_pool(town_items(), shown, 8, 0, same_form=True)[0]
    assert len(set(many)) == 8
    assert {solved.template for solved in many} == {item.template} == {"ends"}
    few = set(sorted(shown)[:4])  # too few of one form
    assert behind_pool(town_items(), few, 4, 0, same_form=True) == behind_pool(
        town_items(), few, 4, 0, same_form=False
    )


def test_some_of_the_items() -> None:
    some = make_task("syntax", byte_level(), n=60)
    whole = make_task("syntax", byte_level())
    assert len(some) == 60
    assert set(some.examples) < set(whole.examples)
    assert Counter(example.template for example in some) == dict.fromkeys(
        ("agreement", "tense", "plural", "pronoun", "question", "negation"), 10
    )


def test_contents_of_the_pool_are_not_asked_in_other_words() -> None:
    again = [Item(item.question + "?", "Anna", "", item.content) for item in town_items()]
    task = towns([*town_items(), *again])
    shown = {item.content for item in example_pool([*town_items(), *again])}
    assert not shown & {example.content for example in task}
    assert len({example.id for example in task}) == len(task)


def test_letters() -> None:
    tokenizer = byte_level()
    words = {e.id: e for e in make_task("common-sense", tokenizer)}
    task = make_task("common-sense", tokenizer, letters=True)
    assert {e.id for e in task} == set(words)
    letters = Counter[str]()
    for example in task:
        question, *options, _ = example.prompt[len(front(example.prompt)) :].split("\n")
        assert [option[:3] for option in options] == ["A. ", "B. ", "C. ", "D. ", "E. "]
        assert f"{question}\nAnswer:" == words[example.id].prompt.split("\n\n")[-1]
        texts = {f" {option[0]}": option[2:] for option in options}
        assert texts[example.target] == words[example.id].target
        assert {example.target, *example.foils} == set(texts)
        letters[example.target] += 1
        assert example.prompt.split("\n")[6].removeprefix("Answer: ") in "ABCDE"
    assert min(letters.values()) > 0.7 * len(task) / 5
    assert {e.id for e in task.split("test")} == {
        e.id for e in make_task("common-sense", tokenizer).split("test")
    }


def test_letters_need_the_answer_among_the_options() -> None:
    item = Item("What barks?", "dog", "animal", "barks", ("cat", "cow"))
    assert sorted(shuffled(item)) == ["cat", "cow", "dog"]
    assert lettered(item, ("cat", "dog")).foils == ("A",)
    for options in (("cat", "cow"), ("dog", "dog"), ("dog", *map(str, range(10)))):
        with pytest.raises(HeadcountError, match="cannot be asked with letters"):
            lettered(item, options)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shots": 9}, "from 0 to 8 shots, not 9"),
        ({"shots": -1}, "from 0 to 8 shots"),
        ({"n": 1000}, "has 64 items, not 1000: ask for 1 to 64"),
        ({"n": -1}, "or 0 for all"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(settings: dict[str, int], words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        towns(**settings)


def test_too_few_items_for_the_split() -> None:
    with pytest.raises(HeadcountError, match=r"has 98 items and needs at least 100: 64 are set"):
        towns(town_items(49))
    task = towns(town_items(50))
    assert min(len(task.split("ranking")), len(task.split("test"))) >= 9
