"""Syntax: six small operations on words and sentences.

    agreement   I walk to the market. What does the farmer do? → The farmer walks to the market.
    tense       Put into the past tense: Today I open the box. → Yesterday I opened the box.
    plural      What is the plural of city? → cities
    pronoun     Who did the queen teach, if nobody else? → The queen taught herself.
    question    Turn this sentence into a question: The doctor is late. → Is the doctor late?
    negation    Make this sentence negative: The driver was late. → The driver was not late.

The skills follow the published study (which takes them from BIG-Bench); every item is our own. No
phrase comes twice in a form; the subjects go round.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from headcount.tasks.items import Item, tables
from headcount.tasks.roles.pool import role_factory
from headcount.tasks.word_forms import irregular, past, plural

Parts = Iterator[tuple[str, str, str]]  # content, question, answer
REGULAR_PLURALS = 110  # nouns of the list, beside all the irregular ones
VERBS_PER_PERSON = 6


def items() -> list[Item]:
    """All items, form after form."""
    forms = {
        "agreement": _agreement,
        "tense": _tense,
        "plural": _plural,
        "pronoun": _pronoun,
        "question": _question,
        "negation": _negation,
    }
    return [
        Item(question, answer, form, f"{form}/{content}")
        for form, parts in forms.items()
        for content, question, answer in parts()
    ]


syntax = role_factory(
    "syntax",
    items,
    max_new_tokens=24,
    summary="Syntax: agreement, tense, plural, pronoun, question and negation, behind one solved "
    "item.",
)


def _agreement() -> Parts:
    people = cycle(tables("syntax").words("people"))
    for number, (phrase, person) in enumerate(
        zip(tables("syntax").phrases("phrases"), people, strict=False)
    ):
        verb, _, rest = phrase.partition(" ")
        if number % 2:
            subject, do = plural(person), "do"
        else:
            subject, do, verb = person, "does", third_person(verb)
        yield phrase, f"I {phrase}. What {do} the {subject} do?", f"The {subject} {verb} {rest}."


def _tense() -> Parts:
    for phrase in tables("syntax").phrases("phrases"):
        verb, _, rest = phrase.partition(" ")
        question = f"Put into the past tense: Today I {phrase}."
        yield phrase, question, f"Yesterday I {past_tense(verb)} {rest}."


def _plural() -> Parts:
    nouns = tables("word_forms").words("nouns")[:REGULAR_PLURALS]
    for word, answer in ({noun: plural(noun) for noun in nouns} | irregular("plurals")).items():
        yield word, f"What is the plural of {word}?", answer


def _pronoun() -> Parts:
    data = tables("syntax")
    verbs = data.words("done to")
    pronouns = ("himself", "herself", "themselves")
    people = [(person, pronoun) for pronoun in pronouns for person in data.words(pronoun)]
    for number, (person, pronoun) in enumerate(people):
        for turn in range(VERBS_PER_PERSON):  # verbs 0, 3, 6, …; further on for each next person
            verb = verbs[(number + 3 * turn) % len(verbs)]
            question = f"Who did the {person} {verb}, if nobody else?"
            yield f"{person}/{verb}", question, f"The {person} {past_tense(verb)} {pronoun}."


def _question() -> Parts:
    people = cycle(tables("syntax").words("people"))
    for predicate, person in zip(tables("syntax").phrases("predicates"), people, strict=False):
        verb, _, rest = predicate.partition(" ")
        question = f"Turn this sentence into a question: The {person} {predicate}."
        yield predicate, question, f"{verb.capitalize()} the {person} {rest}?"


def _negation() -> Parts:
    people = cycle(tables("syntax").words("people")[::-1])
    for predicate, person in zip(tables("syntax").phrases("predicates"), people, strict=False):
        verb, _, rest = predicate.partition(" ")
        question = f"Make this sentence negative: The {person} {predicate}."
        denied = "cannot" if verb == "can" else f"{verb} not"
        yield predicate, question, f"The {person} {denied} {rest}."


def third_person(verb: str) -> str:
    """The verb as it follows he or she.

    >>> third_person("walk"), third_person("wash"), third_person("go"), third_person("carry")
    ('walks', 'washes', 'goes', 'carries')
    """
    if verb.endswith("o"):
        return verb + "es"
    return plural(verb)  # verbs take their s by the rule of nouns


def past_tense(verb: str) -> str:
    """The past tense of a verb, regular or not.

    >>> past_tense("walk"), past_tense("go"), past_tense("hurt")
    ('walked', 'went', 'hurt')
    """
    if verb == "hurt":
        return verb
    return irregular("pasts").get(verb) or past(verb)
