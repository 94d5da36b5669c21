"""One question of a cognitive function, before it becomes a prompt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Item:
    """A question and its one short answer.

    question    all that is asked, with the facts that it is about; no "Question:" in front
    answer      without a space in front
    template    the form of the question: items of one form differ in their words only
    content     what it is about, apart from what may be swapped, such as a person's name: no two
                items of a function share it
    foils       wrong answers of its own; if empty, answers of other items of the form serve

    >>> Item("What is the capital of France?", "Paris", "capital", "France").answer
    'Paris'
    """

    question: str
    answer: str
    template: str
    content: str
    foils: tuple[str, ...] = ()
