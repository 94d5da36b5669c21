from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from headcount.tasks.cognitive.items import FACTS, inference, knowledge, mathematics, retrieval
from headcount.tasks.items import Item, tables

Bank = Callable[[], list[Item]]
BANKS: dict[str, Bank] = {
    "retrieval": retrieval,
    "knowledge": knowledge,
    "mathematics": mathematics,
    "inference": inference,
}
every_bank = pytest.mark.parametrize("bank", BANKS.values(), ids=BANKS)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def holds(text: str, part: str) -> bool:
    """Whether the words of `part` stand in the text, one after another."""
    return f" {' '.join(words(part))} " in f" {' '.join(words(text))} "


@every_bank
def test_there_are_enough_items_and_no_content_comes_twice(bank: Bank) -> None:
    items = bank()
    assert len(items) >= 440
    for field in ("content", "question"):
        assert Counter(getattr(item, field) for item in items).most_common(1)[0][1] == 1


@every_bank
def test_answers_are_short(bank: Bank) -> None:
    for item in bank():
        assert 1 <= len(item.answer.split()) <= 3
        assert len(item.answer) <= 24
        assert item.answer == item.answer.strip()


@every_bank
def test_questions_are_short_and_clean(bank: Bank) -> None:
    for item in bank():
        assert item.question.endswith(("?", " ="))
        assert len(item.question) <= 180
        assert "  " not in item.question
        assert not set(item.question) & set("{}\n")
        assert item.template
        assert item.content


@every_bank
def test_no_answer_is_too_common(bank: Bank) -> None:
    items = bank()
    assert Counter(item.answer for item in items).most_common(1)[0][1] <= 0.1 * len(items)


@every_bank
def test_every_form_has_several_answers(bank: Bank) -> None:
    answers: dict[str, set[str]] = {}
    for item in bank():
        answers.setdefault(item.template, set()).add(item.answer)
    assert len(answers) >= 3
    assert all(len(found) >= 5 for found in answers.values())


@every_bank
def test_the_items_are_always_the_same(bank: Bank) -> None:
    assert bank() == bank()


@every_bank
def test_foils_are_wrong(bank: Bank) -> None:
    for item in bank():
        assert item.answer not in item.foils
        assert len(set(item.foils)) == len(item.foils)


def test_retrieval_tells_the_answer_and_the_foils() -> None:
    for item in retrieval():
        *passage, _ = re.split(r"(?<=\.) ", item.question)
        assert len(passage) == FACTS == len(item.foils) + 1
        for value in (item.answer, *item.foils):
            assert any(holds(fact, value) for fact in passage)


def test_retrieval_asks_about_one_person() -> None:
    for item in retrieval():
        name = words(item.question)[0]
        assert words(item.question).count(name) == FACTS + 1


def test_retrieval_asks_about_every_place_in_the_passage() -> None:
    places = Counter(
        next(i for i, fact in enumerate(item.question.split(". ")) if holds(fact, item.answer))
        for item in retrieval()
    )
    assert set(places) == set(range(FACTS))
    assert min(places.values()) >= 0.2 * sum(places.values())


def test_values_of_retrieval_belong_to_one_attribute() -> None:
    data = tables("retrieval")
    values = Counter(
        value for attribute in data.pairs("facts") for value in data.phrases(attribute)
    )
    assert values.most_common(1)[0][1] == 1
    assert data.pairs("facts").keys() == data.pairs("questions").keys()


def test_retrieval_writes_the_right_article() -> None:
    text = " ".join(item.question for item in retrieval())
    assert not re.search(r"\ba [aeio]|\ban [^aeiou]", text)


@pytest.mark.parametrize("name", ["knowledge", "mathematics", "inference"])
def test_the_question_does_not_tell_the_answer(name: str) -> None:
    for item in BANKS[name]():
        assert not holds(item.question, item.answer), item


def test_results_of_mathematics() -> None:
    for item in mathematics():
        left, sign, right = item.content.split()
        assert sign == "*"
        assert item.question == f"{item.content} ="
        assert item.answer == str(int(left) * int(right))


def test_no_expression_comes_again_with_its_numbers_swapped() -> None:
    contents = {item.content for item in mathematics()}
    for content in contents:
        left, sign, right = content.split()
        assert left == right or f"{right} {sign} {left}" not in contents
