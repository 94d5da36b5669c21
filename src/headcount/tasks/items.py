"""Items, which become prompts, and the data files under `data/` that they are made from.

A data file is a text with comments (#), sections ([name]) and lines. An indented line continues the
one above. What a section's lines are is said by how they are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Item:
    """A question and its one short answer, before they become a prompt.

    question    all that is asked, with the facts that it is about; no "Question:" in front
    answer      without a space in front
    template    the form of the question: items of one form differ in their words only
    content     what it is about, apart from what may be swapped, such as a person's name: no two
                items of a task share it
    foils       wrong answers of its own; if empty, answers of other items of the form serve

    >>> Item("What is the capital of France?", "Paris", "capital", "France").answer
    'Paris'
    """

    question: str
    answer: str
    template: str
    content: str
    foils: tuple[str, ...] = ()


class Tables:
    """The sections of a data file.

    >>> tables = Tables("[capital]\\nRome: Italy\\n[continent]\\nAfrica: Kenya;\\n  Mali")
    >>> tables.rows("continent"), tables.words("capital")
    ({'Africa': ('Kenya', 'Mali')}, ('Rome:', 'Italy'))
    """

    def __init__(self, text: str) -> None:
        self._sections: dict[str, list[str]] = {}
        for line in text.splitlines():
            bare = line.strip()
            if not bare or bare[0] == "#":
                continue
            if bare[0] == "[" and bare[-1] == "]":
                lines = self._sections[bare[1:-1]] = []
            elif line[0].isspace():
                lines[-1] += f" {bare}"
            else:
                lines.append(bare)

    def __iter__(self) -> Iterator[str]:
        return iter(self._sections)

    def lines(self, section: str) -> tuple[str, ...]:
        """Each line is a text, such as a template."""
        return tuple(self._sections[section])

    def words(self, section: str) -> tuple[str, ...]:
        """All are words, with white space between."""
        return tuple(" ".join(self._sections[section]).split())

    def phrases(self, section: str) -> tuple[str, ...]:
        """All are phrases, with ; between."""
        return _phrases(" ".join(self._sections[section]))

    def rows(self, section: str) -> dict[str, tuple[str, ...]]:
        """Each line is `answer: clue; clue; …`."""
        return {answer: _phrases(clues) for answer, clues in self.pairs(section).items()}

    def pairs(self, section: str) -> dict[str, str]:
        """Each line is `name: text`; no name comes twice."""
        pairs: dict[str, str] = {}
        for line in self._sections[section]:
            name, text = line.split(": ", 1)
            if name in pairs:
                raise ValueError(f"{name} comes twice in the section {section}")
            pairs[name] = text
        return pairs


@cache
def tables(name: str) -> Tables:
    """The data file of this name."""
    path = files("headcount.tasks") / "data" / f"{name}.txt"
    return Tables(path.read_text(encoding="utf-8"))


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(";"))
