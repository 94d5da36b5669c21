"""Knowledge Recall: a fact that the question does not tell.

    What is the capital of France?  →  Paris

The forms are kinds of facts: capitals, continents, chemical symbols, authors, where a famous person
comes from, where a sight is. Facts that sources disagree on are left out, and so are capitals that
the name of the country gives away or that are spelt in several ways. The bundled model fails
at currencies and at the capitals of American states.

All items are our own; the facts are common knowledge.
"""

from __future__ import annotations

from headcount.tasks.items import Item, tables


def items() -> list[Item]:
    """One item for each fact, form by form."""
    data = tables("knowledge")
    return [
        Item(question.format(subject=subject), answer, form, f"{form}/{subject}")
        for form, question in data.pairs("questions").items()
        for answer, subjects in data.rows(form).items()
        for subject in subjects
    ]
