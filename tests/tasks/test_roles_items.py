"""The items of Syntax, Common Sense and Math: distinct, right, and enough of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from math import prod

import pytest

from headcount.tasks.items import Item, tables
from headcount.tasks.roles.items import (
    arithmetic_items,
    common_sense_items,
    problem_kinds,
    syntax_items,
    too_near,
)
from headcount.tasks.word_forms import irregular, past, third_person

Bank = Callable[[], list[Item]]
BANKS: dict[str, Bank] = {
    "syntax": syntax_items,
    "common sense": common_sense_items,
    "arithmetic": arithmetic_items,
}
every_bank = pytest.mark.parametrize("bank", BANKS.values(), ids=BANKS)


def of_form(form: str) -> list[Item]:
    found = [item for item in syntax_items() if item.template == form]
    assert len(found) >= 120
    return found


@every_bank
def test_there_are_enough_items_and_no_content_comes_twice(bank: Bank) -> None:
    items = bank()
    assert len(items) >= 700
    for field in ("content", "question"):
        assert Counter(getattr(item, field) for item in items).most_common(1)[0][1] == 1
    assert bank() == items


@every_bank
def test_texts_are_clean(bank: Bank) -> None:
    for item in bank():
        for text in (item.question, item.answer, item.content, *item.foils):
            assert text == text.strip() != ""
            assert "  " not in text
            assert not set(text) & set("{}\n|_")
        assert item.question[-1] in "?."
        assert len(item.question) <= 180
        assert not re.search(r"\b[Aa] [aeio]|\b[Aa]n [^aeiou]", item.question)


@every_bank
def test_foils_are_other_answers(bank: Bank) -> None:
    for item in bank():
        assert item.answer not in item.foils
        assert len(set(item.foils)) == len(item.foils)


@every_bank
def test_no_answer_is_too_common(bank: Bank) -> None:
    items = bank()
    assert Counter(item.answer for item in items).most_common(1)[0][1] <= 0.03 * len(items)


def test_syntax_has_the_six_forms() -> None:
    forms = Counter(item.template for item in syntax_items())
    assert list(forms) == ["agreement", "tense", "plural", "pronoun", "question", "negation"]
    assert max(forms.values()) <= 1.25 * min(forms.values())


def test_agreement() -> None:
    numbers = Counter[bool]()
    for item in of_form("agreement"):
        match = re.fullmatch(r"I (\S+) (.+)\. What (does|do) the (\w+) do\?", item.question)
        assert match
        verb, rest, do, subject = match.groups()
        numbers[subject.endswith("s")] += 1
        assert (do == "do") == subject.endswith("s")
        verb = verb if do == "do" else third_person(verb)
        assert item.answer == f"The {subject} {verb} {rest}."
    assert min(numbers.values()) >= 60


def test_tense() -> None:
    for item in of_form("tense"):
        match = re.search(r"Today I (\w+) (.+)\.", item.question)
        assert match
        verb, rest = match.groups()
        assert item.answer == f"Yesterday I {past(verb)} {rest}."
        assert past(verb) != verb


def test_regular_pasts_follow_the_rules_of_spelling() -> None:
    doubled = {"stop", "plan", "drop", "chat", "grab", "wrap"}
    for item in of_form("tense"):
        verb, written = item.content.split("/")[1].split()[0], item.answer.split()[2]
        if not written.endswith("ed") or verb in ("feed",):  # irregular
            continue
        ending = "d" if verb.endswith("e") else "ed"
        stem = verb + verb[-1] if verb in doubled else re.sub("([^aeiou])y$", r"\1i", verb)
        assert written == stem + ending


def test_plural() -> None:
    for item in of_form("plural"):
        word = item.question.removeprefix("What is the plural of ").rstrip("?")
        if word not in irregular("plurals"):
            assert item.answer.endswith("s")
            assert item.answer.startswith(word[:-1])


def test_pronoun() -> None:
    pronouns = Counter(item.answer.split()[-1] for item in of_form("pronoun"))
    assert set(pronouns) == {"himself.", "herself.", "themselves."}
    assert len(set(pronouns.values())) == 1
    for item in of_form("pronoun"):
        match = re.fullmatch(r"Who did the (\w+) (\w+), if nobody else\?", item.question)
        assert match
        assert item.answer.startswith(f"The {match[1]} {past(match[2])} ")


def test_question_and_negation() -> None:
    for item in of_form("question"):
        subject, verb, rest = item.question.split(": The ")[1].rstrip(".").split(" ", 2)
        assert item.answer == f"{verb.capitalize()} the {subject} {rest}?"
    for item in of_form("negation"):
        sentence = item.question.split(": ")[1]
        assert item.answer.replace("cannot ", "can ").replace(" not ", " ") == sentence
        assert len(re.findall(r"\bnot\b|\bcannot\b", item.answer)) == 1


def test_common_sense_has_four_wrong_options_each() -> None:
    for item in common_sense_items():
        assert len(item.foils) == 4
        assert not too_near(item.template, item.answer) & set(item.foils)
        assert not re.search(rf"\b{item.answer}\b", item.question), item


def test_the_tables_of_common_sense_fit_together() -> None:
    data = tables("common_sense")
    for form in data.pairs("questions"):
        groups = [answer for line in data.lines(f"alike {form}") for answer in line.split("; ")]
        assert len(set(groups)) == len(groups)
        assert set(groups) <= set(data.rows(form))


def test_every_step_of_a_solution_is_right() -> None:
    for item in arithmetic_items():
        steps = re.findall(r"(\d+) ([-+x/]) (\d+) = (\d+)", item.answer)
        assert 1 <= len(steps) <= 2
        known = set(re.findall(r"\d+", item.question))
        for left, sign, right, result in steps:
            assert {left, right} <= known
            a, b = int(left), int(right)
            assert {"+": a + b, "-": a - b, "x": a * b, "/": a / b}[sign] == int(result)
            known.add(result)
        assert item.answer.endswith(f" The answer is {steps[-1][3]}.")
        assert len(re.findall(r"\.(?: |$)", item.answer)) == len(steps) + 1


FINAL: dict[str, Callable[..., float]] = {
    "buy": lambda a, b: a + b,
    "give": lambda a, b: a - b,
    "boxes": lambda a, b: a * b,
    "share": lambda a, b: a / b,
    "price": lambda a, b: a * b,
    "change": lambda a, b: a - b,
    "days": lambda a, b: a * b,
    "difference": lambda a, b: a - b,
    "pack": lambda a, b: a / b,
    "save": lambda a, b: b / a,
    "buy-and-give": lambda a, b, c: a + b - c,
    "lose-and-find": lambda a, b, c: a - b + c,
    "boxes-and-more": lambda a, b, c: prod((a, b)) + c,
    "boxes-and-less": lambda a, b, c: prod((a, b)) - c,
    "price-and-change": lambda a, b, c: a - prod((b, c)),
    "times": lambda a, b: a + a * b,
    "more-than": lambda a, b: a + a + b,
    "two-buyers": lambda a, b, c: a - b - c,
    "earn-and-share": lambda a, b, c: (a + b) / c,
    "three-days": lambda a, b, c: a + b + c,
}


def test_answers_of_arithmetic_by_a_formula() -> None:
    assert {kind.key for kind in problem_kinds()} == set(FINAL)
    for item in arithmetic_items():
        numbers = [int(number) for number in re.findall(r"\d+", item.question)]
        result = FINAL[item.template](*numbers)
        assert result > 1
        assert item.answer.endswith(f" {result:g}.")
        assert item.content.split("/")[-len(numbers) :] == [str(number) for number in numbers]


def test_numbers_make_the_content_of_arithmetic() -> None:
    without_names = Counter(
        (item.template, *re.findall(r"\d+", item.question)) for item in arithmetic_items()
    )
    assert without_names.most_common(1)[0][1] == 1
