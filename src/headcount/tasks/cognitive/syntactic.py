"""Syntactic Understanding: which form does a word take?

    What is the past tense of walk?     →  walked
    What is the plural of city?         →  cities

Two forms of question. Regular words are listed alone and get their ending by rule; irregular ones
stand beside their answer. Words with two accepted forms (learn, penny) or without a form of their
own (cut, sheep) are left out. Comparatives ("What is the comparative form of big?") were tried as a
third form: the bundled model often gives the word back as it is (.45 to .77 correct, by the shots
in front). All items are our own.
"""

from __future__ import annotations

import re
from functools import cache

from headcount.tasks.items import Item, tables

QUESTIONS = {
    "past": "What is the past tense of {word}?",
    "plural": "What is the plural of {word}?",
}


def items() -> list[Item]:
    """All items, form after form."""
    data = tables("word_forms")
    forms = {
        "past": {word: past(word) for word in data.words("verbs")} | irregular("pasts"),
        "plural": {word: plural(word) for word in data.words("nouns")} | irregular("plurals"),
    }
    return [
        Item(QUESTIONS[form].format(word=word), answer, form, f"{form}/{word}")
        for form, answers in forms.items()
        for word, answer in answers.items()
    ]


@cache
def irregular(section: str) -> dict[str, str]:
    """Irregular words with their "pasts" or "plurals".

    >>> irregular("plurals")["mouse"]
    'mice'
    """
    pairs = (phrase.split() for phrase in tables("word_forms").phrases(section))
    return {pair[0]: pair[1] for pair in pairs}


def past(verb: str) -> str:
    """The past tense of a regular verb.

    >>> past("walk"), past("move"), past("carry"), past("stop")
    ('walked', 'moved', 'carried', 'stopped')
    """
    if verb.endswith("e"):
        return verb + "d"
    if re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb):  # one short vowel: stop, hug
        return verb + verb[-1] + "ed"
    return re.sub(r"(?<=[^aeiou])y$", "i", verb) + "ed"


def plural(noun: str) -> str:
    """The plural of a regular noun.

    >>> plural("book"), plural("box"), plural("church"), plural("city"), plural("day")
    ('books', 'boxes', 'churches', 'cities', 'days')
    """
    if re.search(r"(s|x|z|ch|sh)$", noun):
        return noun + "es"
    return re.sub(r"(?<=[^aeiou])y$", "ie", noun) + "s"
