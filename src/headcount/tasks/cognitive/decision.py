"""Decision-making: what is the best place to go to?

    Where should Anna go to buy bread?                  →  bakery
    Peter wants to see lions. Where should Peter go?    →  zoo

Two forms of question, each with its own wishes. No wish comes twice; the names go round and are no
part of the content. Shops for one kind of goods (shoe store, toy store) are one answer, store, and
places with two spellings (theatre) are left out. All items are our own.

Two other forms were tried with the bundled model and dropped: the thing to use ("Peter wants to
draw a straight line. What should Peter use?", .37 to .47 correct) and the person to call ("Laura
has a toothache. Who should Laura call?", .33 to .47).
"""

from __future__ import annotations

from itertools import cycle

from headcount.tasks.items import Item, tables


def items() -> list[Item]:
    """All items, place after place; the forms take turns."""
    data = tables("decision")
    questions, names = cycle(data.pairs("questions").items()), cycle(data.words("names"))
    return [
        Item(question.format(name=name, wish=wish), place, form, wish)
        for place, wishes in data.rows("places").items()
        for wish, (form, question), name in zip(wishes, questions, names, strict=False)
    ]
