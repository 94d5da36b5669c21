"""Logical Reasoning: what follows from the rules that are given?

    All cats are lamps. All lamps are rings. So all cats are what?              →  rings
    If cat then lamp. If lamp then ring. Given cat, what follows in the end?    →  ring
    Cat implies lamp. Lamp implies ring. Ring implies key. What does cat imply in the end? → key
    The cat is older than the lamp. The lamp is older than the key. Which is the youngest? → key

Four forms of question, all of them chains, over everyday words whose sense does not help. The foils
are the other words of the question.

The answer is always the word that the last rule ends in. To take that word without following the
chain is right as well, and the bundled model seems to do just that. What was tried in this shape
and does not work with it (exact match, 8 to 12 shots, 10 to 60 items): the two rules in either
order (.60), a rule behind the chain that has nothing to do with it (.12), one rule out of two or
three (.35 to .50), the greatest beside the least (.17), patterns such as ABA and ABB (.07 to .63,
mostly by taking the same place each time), elimination (.05), and, beside other forms, the word
that comes twice, comes most often, or is in two lists (.25 to .55). All items are our own.
"""

from __future__ import annotations

import random

from headcount.tasks.items import Item, tables

PER_FORM = 115


def items() -> list[Item]:
    """All items, form after form; no two of a form have the same words."""
    forms = {"all": _all, "if": _if, "implies": _implies, "least": _least}
    found = []
    for form, make in forms.items():
        rng = random.Random(f"logical {form}")
        seen: set[frozenset[str]] = set()
        while len(seen) < PER_FORM:
            words, question, answer = make(rng)
            if frozenset(words) not in seen:
                seen.add(frozenset(words))
                foils = tuple(word for word in words if word != answer)
                found.append(Item(question, answer, form, f"{form}/{' '.join(words)}", foils))
    return found


def _draw(rng: random.Random, count: int) -> list[str]:
    return rng.sample(tables("logical").words("words"), count)


def _all(rng: random.Random) -> tuple[list[str], str, str]:
    a, b, c = words = [f"{word}s" for word in _draw(rng, 3)]
    return words, f"All {a} are {b}. All {b} are {c}. So all {a} are what?", c


def _if(rng: random.Random) -> tuple[list[str], str, str]:
    a, b, c = words = _draw(rng, 3)
    return words, f"If {a} then {b}. If {b} then {c}. Given {a}, what follows in the end?", c


def _implies(rng: random.Random) -> tuple[list[str], str, str]:
    a, b, c, d = words = _draw(rng, 4)
    steps = ((a, b), (b, c), (c, d))
    rules = " ".join(f"{one.capitalize()} implies {other}." for one, other in steps)
    return words, f"{rules} What does {a} imply in the end?", d


def _least(rng: random.Random) -> tuple[list[str], str, str]:
    a, b, c = words = _draw(rng, 3)
    comparatives = tables("logical").pairs("least")
    more = rng.choice(list(comparatives))
    facts = f"The {a} is {more} than the {b}. The {b} is {more} than the {c}."
    return words, f"{facts} Which is the {comparatives[more]}?", c
