"""Items of the eight cognitive functions; comments in the data files tell what else was tried.

Retrieval       Anna lives in Rome. Anna works as a nurse. Anna bought a lamp. What is Anna's job?
Knowledge       What is the capital of France?
Semantic        What kind of thing is an apple? A violin is a kind of what?
Syntactic       What is the past tense of walk? What is the plural of city?
Math            70 * 8 =
Inference       Anna is visiting Cairo this week. Which country is Anna in?
Logical         All cats are lamps. All lamps are rings. So all cats are what?
Decision        Where should Anna go to buy bread?
"""

from __future__ import annotations

import random
from itertools import cycle, pairwise

from headcount.tasks.items import Item, tables
from headcount.tasks.word_forms import irregular, past, plural

FACTS = 3  # facts in a question of Retrieval
DIGITS = range(2, 10)
PER_LOGICAL_FORM = 115


def retrieval() -> list[Item]:
    """Find one of three facts about a person: one item for each attribute and value.

    The forms are the ten attributes (job, town, pet, …). The person and the other two facts are
    drawn once for each content; the values of the other facts are the foils.
    """
    data, names = tables("retrieval"), tables("ioi").words("names")
    facts, questions = data.pairs("facts"), data.pairs("questions")
    values = {attribute: data.phrases(attribute) for attribute in facts}

    def fact(name: str, attribute: str, value: str) -> str:
        pattern = facts[attribute]
        if value[0] in "aeiou" and value != "ukulele":
            pattern = pattern.replace(" a {value}", " an {value}")
        return pattern.format(name=name, value=value)

    def item(attribute: str, value: str) -> Item:
        rng = random.Random(f"retrieval {attribute} {value}")
        name = rng.choice(names)
        others = rng.sample([other for other in values if other != attribute], FACTS - 1)
        told = {attribute: value} | {other: rng.choice(values[other]) for other in others}
        passage = [fact(name, key, told[key]) for key in rng.sample(list(told), FACTS)]
        question = " ".join([*passage, questions[attribute].format(name=name)])
        foils = tuple(told[other] for other in others)
        return Item(question, value, attribute, f"{attribute}/{value}", foils)

    return [item(attribute, value) for attribute in values for value in values[attribute]]


def knowledge() -> list[Item]:
    """Recall a fact that the question does not state: one item for each fact, form by form.

    The forms are kinds of facts: capitals, continents, chemical symbols, authors, where a famous
    person comes from, where a sight is.
    """
    return _facts("knowledge")


def inference() -> list[Item]:
    """Infer something in one step from a stated fact: one item for each fact, form by form.

    The answer follows from the fact and from common knowledge: the country of a town, the
    nationality of someone from a country, the language of a country, the job of someone who does
    something for a living. The person is drawn once for each content.
    """
    return _facts("inference")


def _facts(function: str) -> list[Item]:
    names = tables("ioi").words("names")
    items = []
    for form, question in tables(function).pairs("questions").items():
        for answer, subjects in tables(function).rows(form).items():
            for subject in subjects:
                name = random.Random(f"{function} {form} {subject}").choice(names)
                asked = question.format(name=name, subject=subject)
                items.append(Item(asked, answer, form, f"{form}/{subject}"))
    return items


def semantic() -> list[Item]:
    """What kind of thing does a word name? One item for each thing; the forms alternate."""
    data = tables("semantic")
    things = [
        (kind, thing, f"{_article(thing)} {thing}" if section == "counted" else thing)
        for section in ("counted", "uncounted")
        for kind, members in data.rows(section).items()
        for thing in members
    ]
    items = []
    for (kind, thing, phrase), (form, question) in zip(
        things, cycle(data.pairs("questions").items()), strict=False
    ):
        asked = question.format(thing=phrase)
        items.append(Item(asked[0].upper() + asked[1:], kind, form, thing))
    return items


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" and not noun.startswith(("eu", "uk", "un")) else "a"


def syntactic() -> list[Item]:
    """Which form does a word take? Past tenses, then plurals; the regular words come first."""
    data = tables("word_forms")
    pasts = {word: past(word) for word in data.words("verbs")} | irregular("pasts")
    plurals = {word: plural(word) for word in data.words("nouns")} | irregular("plurals")
    return [
        Item(f"What is the {name} of {word}?", answer, form, f"{form}/{word}")
        for form, name, forms in (("past", "past tense", pasts), ("plural", "plural", plurals))
        for word, answer in forms.items()
    ]


def mathematics() -> list[Item]:
    """What is the value of a short expression? One item for each expression, form by form.

    All expressions are products: of two digits, of a round number and a digit, of any number and 10
    or 100. No product occurs again with its factors swapped. Sums are too hard for the bundled
    model, even "70 + 8" in a task of sums alone; so are quotients, and products of two round
    numbers, where it loses count of the zeros. It answers "What is 70 * 8?" slightly worse than
    "70 * 8 =".
    """
    numbers = [number for number in (*range(11, 100), *range(101, 1000, 13)) if number % 10]
    products = [("digit * digit", left, right) for right in DIGITS for left in range(right, 10)]
    for name, unit in (("tens", 10), ("hundreds", 100), ("thousands", 1000)):
        products += [(f"{name} * digit", unit * left, right) for left in DIGITS for right in DIGITS]
    products += [("number * 10", number, 10) for number in numbers]
    products += [("number * 100", number, 100) for number in numbers if number < 100]
    return [
        Item(f"{left} * {right} =", str(left * right), form, f"{left} * {right}")
        for form, left, right in products
    ]


def logical() -> list[Item]:
    """What follows from the given rules? Chains of everyday words, form by form.

    The meaning of the words does not help. The foils are the other words of the question, and no
    two questions of a form have the same words. The answer is always the last word of the last
    rule, so a model can also find it without following the chain; the bundled model seems to do so.
    """
    data = tables("logical")
    least, questions = data.pairs("least"), data.pairs("questions")
    items = []
    for form, rule in data.pairs("rules").items():
        rng = random.Random(f"logical {form}")
        seen: set[frozenset[str]] = set()
        while len(seen) < PER_LOGICAL_FORM:
            chain = rng.sample(data.words("words"), 4 if form == "implies" else 3)
            chain = [f"{word}s" for word in chain] if form == "all" else chain
            more = rng.choice(list(least)) if form == "least" else ""
            if frozenset(chain) in seen:
                continue
            seen.add(frozenset(chain))
            told = [rule.format(a=a, A=a.capitalize(), b=b, more=more) for a, b in pairwise(chain)]
            told.append(questions[form].format(first=chain[0], least=least.get(more)))
            content = f"{form}/{' '.join(chain)}"
            items.append(Item(" ".join(told), chain[-1], form, content, tuple(chain[:-1])))
    return items


def decision() -> list[Item]:
    """What is the best place to go to? Place by place; the forms alternate.

    The names repeat in turn and are not part of the content.
    """
    data = tables("decision")
    questions, names = cycle(data.pairs("questions").items()), cycle(data.words("names"))
    return [
        Item(question.format(name=name, wish=wish), place, form, wish)
        for place, wishes in data.rows("places").items()
        for wish, (form, question), name in zip(wishes, questions, names, strict=False)
    ]
