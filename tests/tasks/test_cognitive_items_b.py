from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from headcount.tasks.cognitive.items import decision, logical, semantic, syntactic
from headcount.tasks.items import Item, tables
from headcount.tasks.word_forms import past, plural

FUNCTIONS: dict[str, Callable[[], list[Item]]] = {
    "semantic": semantic,
    "syntactic": syntactic,
    "logical": logical,
    "decision": decision,
}
OPEN = ("semantic", "decision")  # the answer is no word of the question
VOWELS = set("aeiou")


@pytest.fixture(params=FUNCTIONS)
def items(request: pytest.FixtureRequest) -> list[Item]:
    return FUNCTIONS[request.param]()


def test_there_are_enough_items(items: list[Item]) -> None:
    assert len(items) >= (370 if items == decision() else 440)


def test_no_content_and_no_question_comes_twice(items: list[Item]) -> None:
    assert len({item.content for item in items}) == len(items)
    assert len({item.question for item in items}) == len(items)


def test_the_order_is_always_the_same(items: list[Item], request: pytest.FixtureRequest) -> None:
    assert FUNCTIONS[request.node.callspec.params["items"]]() == items


def test_questions_and_answers_are_short(items: list[Item]) -> None:
    for item in items:
        assert 1 <= len(item.answer.split()) <= 3, item
        assert item.answer == item.answer.strip(), item
        assert len(item.answer) <= 20, item
        assert item.question.endswith("?"), item
        assert len(item.question.split()) <= 20, item
        assert "  " not in item.question, item
        assert "\n" not in item.question, item
        assert "{" not in item.question, item


def test_no_answer_is_frequent(items: list[Item]) -> None:
    ((_, most),) = Counter(item.answer for item in items).most_common(1)
    assert most <= 0.12 * len(items)


def test_every_form_has_many_items_and_several_answers(items: list[Item]) -> None:
    for form, count in Counter(item.template for item in items).items():
        assert count >= 40, form
        assert len({item.answer for item in items if item.template == form}) >= 10, form


def test_foils_are_never_the_answer(items: list[Item]) -> None:
    for item in items:
        assert item.answer not in item.foils, item
        assert len(set(item.foils)) == len(item.foils), item


@pytest.mark.parametrize("key", OPEN)
def test_the_question_does_not_hold_the_answer(key: str) -> None:
    for item in FUNCTIONS[key]():
        assert item.answer.lower() not in item.question.lower(), item


# Semantic


def test_a_word_is_of_one_kind_only() -> None:
    rows = [*tables("semantic").rows("counted").items()]
    rows += tables("semantic").rows("uncounted").items()
    things = [thing for _, row in rows for thing in row]
    assert len(set(things)) == len(things)
    assert not {kind for kind, _ in rows} & set(things)


def test_articles_go_by_sound() -> None:
    questions = {item.question for item in semantic()}
    for phrase in ("an apple", "an owl", "a pear", "a ukulele", "a eucalyptus", "iron", "tennis"):
        capital = phrase[0].upper() + phrase[1:]
        assert {f"What kind of thing is {phrase}?", f"{capital} is a kind of what?"} & questions


def test_a_question_starts_with_a_capital() -> None:
    questions = [item.question for item in semantic()]
    assert all(question[0].isupper() for question in questions)
    assert any(question.startswith("A banana is") for question in questions)


# Syntactic


def test_regular_words_follow_a_rule_written_anew() -> None:
    for verb in tables("word_forms").words("verbs"):
        assert past(verb) == _past(verb), verb
    for noun in tables("word_forms").words("nouns"):
        if noun[-1] == "y" and noun[-2] not in VOWELS:
            expected = noun[:-1] + "ies"
        elif noun[-1] in "sxz" or noun[-2:] in ("ch", "sh"):
            expected = noun + "es"
        else:
            expected = noun + "s"
        assert plural(noun) == expected, noun


def _past(word: str) -> str:
    vowels = [letter in VOWELS for letter in word]
    if word[-1] == "e":
        return word + "d"
    if word[-1] == "y" and not vowels[-2]:
        return word[:-1] + "ied"
    if len(word) >= 3 and vowels.count(True) == 1 and vowels[-2] and word[-1] not in "wxy":
        return word + word[-1] + "ed"
    return word + "ed"


@pytest.mark.parametrize(
    ("form", "pairs"),
    {
        "past": "walk walked move moved try tried play played stop stopped visit visited go went "
        "think thought ski skied open opened agree agreed show showed answer answered",
        "plural": "city cities box boxes day days church churches child children wolf wolves "
        "potato potatoes piano pianos bus buses photo photos boy boys",
    }.items(),
)
def test_some_words_by_hand(form: str, pairs: str) -> None:
    answers = {item.content: item.answer for item in syntactic()}
    words = pairs.split()
    for word, answer in zip(words[::2], words[1::2], strict=True):
        assert answers[f"{form}/{word}"] == answer


def test_irregular_words_are_irregular_and_listed_once() -> None:
    data = tables("word_forms")
    for regular, irregular, rule in (
        ("verbs", "pasts", _past),
        ("nouns", "plurals", plural),
    ):
        pairs = [phrase.split() for phrase in data.phrases(irregular)]
        words = [*data.words(regular), *(word for word, _ in pairs)]
        assert len(set(words)) == len(words)
        for word, answer in pairs:
            assert answer not in (word, rule(word))


# Logical


@pytest.mark.parametrize(
    ("form", "rule"),
    {
        "all": r"All (\w+) are (\w+)\.",
        "if": r"If (\w+) then (\w+)\.",
        "implies": r"(\w+) implies (\w+)\.",
        "least": r"The (\w+) is \w+ than the (\w+)\.",
    }.items(),
)
def test_the_answer_follows_from_the_rules(form: str, rule: str) -> None:
    found = [item for item in logical() if item.template == form]
    assert found
    for item in found:
        rules = {a.lower(): b for a, b in re.findall(rule, item.question)}
        (start,) = set(rules) - set(rules.values())
        if form != "least":
            asked = re.split(r"\. ", item.question)[-1]
            assert start in re.findall(r"\w+", asked), item
        steps = [start]
        while steps[-1] in rules:
            steps.append(rules[steps[-1]])
        assert item.answer == steps[-1], item
        assert set(item.foils) == set(steps[:-1]), item
        assert len(steps) == len(rules) + 1 == len(item.foils) + 1, item


def test_the_least_is_the_opposite_of_the_comparison() -> None:
    opposites = {
        "bigger": "smallest",
        "older": "youngest",
        "faster": "slowest",
        "heavier": "lightest",
        "stronger": "weakest",
        "taller": "shortest",
    }
    for item in logical():
        if item.template == "least":
            (more,) = set(re.findall(r"is (\w+) than", item.question))
            assert item.question.endswith(f"Which is the {opposites[more]}?")


def test_logical_words_are_distinct_and_take_an_s() -> None:
    words = tables("logical").words("words")
    assert len(set(words)) == len(words)
    assert not [word for word in words if re.search(r"(s|x|z|ch|sh|[^aeiou]y)$", word)]
    assert not set(words) & {"sheep", "fish", "wolf", "leaf", "knife", "mouse"}


# Decision


def test_decisions_name_one_person() -> None:
    names = tables("decision").words("names")
    for item in decision():
        named = [word for word in re.findall(r"\w+", item.question) if word in names]
        assert len(named) == {"where": 1, "wants": 2}[item.template], item
        assert len(set(named)) == 1, item
        assert not re.search(r"\b(he|she|his|her|him)\b", item.question), item


def test_a_need_is_no_other_need_with_another_name() -> None:
    needs = [item.content for item in decision()]
    assert len(set(needs)) == len(needs)
    assert not any(name in need for need in needs for name in tables("decision").words("names"))
    assert len(tables("decision").rows("places")) >= 40
