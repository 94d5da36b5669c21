"""Items, which become prompts, and the data files under `data/` that items are made from.

A data file is a text with comments (#), sections ([name]) and lines. An indented line continues the
line above. The method of `Tables` that reads a section says what its lines hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files


@dataclass(frozen=True)
class Item:
    """A question and its short answer, before they become a prompt.

    question    the whole question with the facts it needs, without "Question:"
    answer      the answer, without a leading space
    template    the form of the question: items of one form differ in their words only
    content     what the question is about, without words that may be swapped, such as a person's
                name; no two items of a task share it
    foils       wrong answers; if empty, answers of other items of the same form are used

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
        """The lines of a section, such as templates."""
        return tuple(self._sections[section])

    def words(self, section: str) -> tuple[str, ...]:
        """The words of a section, which white space separates."""
        return tuple(" ".join(self._sections[section]).split())

    def phrases(self, section: str) -> tuple[str, ...]:
        """The phrases of a section, which semicolons separate."""
        return _phrases(" ".join(self._sections[section]))

    def rows(self, section: str) -> dict[str, tuple[str, ...]]:
        """Clues by answer, where each line is `answer: clue; clue; …`."""
        return {answer: _phrases(clues) for answer, clues in self.pairs(section).items()}

    def pairs(self, section: str) -> dict[str, str]:
        """Texts by name, where each line is `name: text`; a repeated name is refused."""
        pairs: dict[str, str] = {}
        for line in self._sections[section]:
            name, text = line.split(": ", 1)
            if name in pairs:
                raise ValueError(f"{name} comes twice in the section {section}")
            pairs[name] = text
        return pairs


@cache
def tables(name: str) -> Tables:
    """Read the data file of this name."""
    path = files("headcount.tasks") / "data" / f"{name}.txt"
    return Tables(path.read_text(encoding="utf-8"))


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(phrase.strip() for phrase in text.split(";"))
