"""Semantic Understanding: what does a word mean?

    What kind of thing is an apple?     →  fruit
    A violin is a kind of what?         →  instrument

Two forms of question about the kind that a thing belongs to, each with its own things. There is no
kind "animal" beside bird, fish, insect and dog, so that one answer is right. All items are our own.

Opposites ("What is the opposite of hot?") were tried with the bundled model and dropped: .52
correct alone, .40 beside the kinds; it often gives the word back as it is.
"""

from __future__ import annotations

from itertools import cycle

from headcount.tasks.items import Item, tables


def items() -> list[Item]:
    """All items, kind after kind; the forms take turns."""
    data = tables("semantic")
    things = [
        (kind, thing, f"{_article(thing)} {thing}" if section == "counted" else thing)
        for section in ("counted", "uncounted")
        for kind, members in data.rows(section).items()
        for thing in members
    ]
    questions = cycle(data.pairs("questions").items())
    return [
        Item(_sentence(question.format(thing=phrase)), kind, form, thing)
        for (kind, thing, phrase), (form, question) in zip(things, questions, strict=False)
    ]


def _article(noun: str) -> str:
    return "an" if noun[0] in "aeiou" and not noun.startswith(("eu", "uk", "un")) else "a"


def _sentence(text: str) -> str:
    return text[0].upper() + text[1:]
