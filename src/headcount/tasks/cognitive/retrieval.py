"""Retrieval: which of the facts just told is asked for?

    Anna lives in Rome. Anna works as a nurse. Anna bought a lamp. What is Anna's job?  →  nurse

Three facts about one person, in any order, and a question about one of them. The forms are the ten
attributes (job, town, pet, …); the content is the attribute and its value, and the person and the
other facts are drawn once for each content. The values of the other facts are the foils.

All items are our own. The bundled model wants an example of nearly every attribute (ten shots).
Fewer shots, or four facts instead of three, cost it some accuracy, and so do facts that all say
"Anna's job is …"; facts about several people are too hard for it.
"""

from __future__ import annotations

import random
from functools import cache

from headcount.tasks.items import Item, tables

FACTS = 3  # in each question


def items() -> list[Item]:
    """One item for each attribute and value."""
    values = {name: tables("retrieval").phrases(name) for name in _pairs("facts")}
    return [_item(attribute, value, values) for attribute in values for value in values[attribute]]


def _item(attribute: str, value: str, values: dict[str, tuple[str, ...]]) -> Item:
    rng = random.Random(f"retrieval {attribute} {value}")
    name = rng.choice(tables("ioi").words("names"))
    others = rng.sample([other for other in values if other != attribute], FACTS - 1)
    told = {attribute: value} | {other: rng.choice(values[other]) for other in others}
    passage = [_fact(name, key, told[key]) for key in rng.sample(list(told), FACTS)]
    return Item(
        question=" ".join([*passage, _pairs("questions")[attribute].format(name=name)]),
        answer=value,
        template=attribute,
        content=f"{attribute}/{value}",
        foils=tuple(told[other] for other in others),
    )


def _fact(name: str, attribute: str, value: str) -> str:
    fact = _pairs("facts")[attribute]
    if value[0] in "aeiou" and value != "ukulele":
        fact = fact.replace(" a {value}", " an {value}")
    return fact.format(name=name, value=value)


@cache
def _pairs(section: str) -> dict[str, str]:
    return tables("retrieval").pairs(section)
