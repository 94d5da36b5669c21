"""Inference: one step from what is told to what must then be so.

    Anna is visiting Cairo this week. Which country is Anna in?  →  Egypt

One fact about a person, and a question whose answer follows from it and from what everyone knows:
the country of a town, the nationality of someone from a country, the language of a country, the job
of someone who does something for a living. The person is drawn once for each content.

All items are our own; the facts are common knowledge. Towns whose name is as well known from
another country are left out, and so are countries with several usual names. The bundled model
mostly fails to tell the state of an American town, and chains of two rules leave it at chance.
"""

from __future__ import annotations

import random

from headcount.tasks.items import Item, tables


def items() -> list[Item]:
    """One item for each fact, form by form."""
    data, names = tables("inference"), tables("ioi").words("names")

    def name(form: str, subject: str) -> str:
        return random.Random(f"inference {form} {subject}").choice(names)

    return [
        Item(
            question.format(name=name(form, subject), subject=subject),
            answer,
            form,
            f"{form}/{subject}",
        )
        for form, question in data.pairs("questions").items()
        for answer, subjects in data.rows(form).items()
        for subject in subjects
    ]
