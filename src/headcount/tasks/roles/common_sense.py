"""Common Sense: short questions about everyday things; the answer's words are the target.

    What do you use to cut paper?           →  scissors
    Who puts out fires?                     →  firefighter
    What kind of thing is a robin?          →  bird

Each question has four wrong options: answers of other questions of its form, apart from those that
could be right as well. The bundled model finds about a third of the words and, by letter, no more
than chance. All items are our own.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from headcount.tasks.cognitive.item import Item
from headcount.tasks.roles.everyday import ALIKE, FACTS, QUESTIONS
from headcount.tasks.roles.prompt import build, shuffled
from headcount.tasks.task import Bos, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

WRONG = 4


def common_sense(
    tokenizer: PreTrainedTokenizerBase,
    *,
    n: int = 0,
    letters: bool = False,
    shots: int = 1,
    seed: int = 0,
    same_form: bool = True,
    max_new_tokens: int = 16,
    bos: Bos = "auto",
) -> Task:
    """Common Sense: short questions about everyday things, behind one solved item.

    The target is the answer's words; with `letters` the options are listed and it is a letter.
    """
    found = items()
    return build(
        "common-sense",
        found,
        tokenizer,
        n=n,
        shots=shots,
        seed=seed,
        same_form=same_form,
        options={item: shuffled(item) for item in found} if letters else None,
        max_new_tokens=max_new_tokens,
        bos=bos,
    )


def items() -> list[Item]:
    """All items, form after form."""
    found = []
    for form, table in FACTS.items():
        rows = parsed(table)
        for answer, clues in rows.items():
            alike = too_near(form, answer)
            others = [other for other in rows if other not in alike]
            for clue in clues:
                wrong = sorted(others, key=lambda other: _turn(form, clue, other))
                question = QUESTIONS[form].format(clue=clue)
                found.append(Item(question, answer, form, f"{form}/{clue}", tuple(wrong[:WRONG])))
    return found


def parsed(table: str) -> dict[str, list[str]]:
    """The rows of a table, `answer: clue; clue | answer: …`; a clue may run on over lines.

    >>> parsed("dog: barks; wags its tail | cat: meows")
    {'dog': ['barks', 'wags its tail'], 'cat': ['meows']}
    """
    rows = {}
    for row in table.split("|"):
        answer, _, clues = " ".join(row.split()).partition(": ")
        rows[answer] = [clue.strip() for clue in clues.split(";")]
    return rows


def too_near(form: str, answer: str) -> set[str]:
    """The answers of a form that could be right where this one is, itself among them.

    >>> sorted(too_near("colour", "blue"))
    ['blue', 'green']
    """
    groups = [group.split(", ") for group in " ".join(ALIKE[form].split()).split("; ")]
    return {answer}.union(*(group for group in groups if answer in group))


def _turn(*parts: str) -> bytes:
    return hashlib.sha256("\0".join(parts).encode()).digest()
