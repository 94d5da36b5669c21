"""Common Sense: short questions about everyday things; the answer's words are the target.

    What do you use to cut paper?           →  scissors
    Who puts out fires?                     →  firefighter
    What kind of thing is a robin?          →  bird

Each question has four wrong options: answers of other questions of its form, apart from those that
could be right as well. All items are our own.
"""

from __future__ import annotations

from headcount.system.files import digest
from headcount.tasks.items import Item, tables
from headcount.tasks.roles.pool import pool_task, shuffled
from headcount.tasks.task import Bos, Task, Tokenizer

WRONG = 4


def common_sense(
    tokenizer: Tokenizer,
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
    all_items = items()
    return pool_task(
        "common-sense",
        all_items,
        tokenizer,
        n=n,
        shots=shots,
        seed=seed,
        same_form=same_form,
        options={item: shuffled(item) for item in all_items} if letters else None,
        max_new_tokens=max_new_tokens,
        bos=bos,
    )


def items() -> list[Item]:
    """All items, form after form."""
    found = []
    for form, question in tables("common_sense").pairs("questions").items():
        rows = tables("common_sense").rows(form)
        for answer, clues in rows.items():
            alike = too_near(form, answer)
            others = [other for other in rows if other not in alike]
            for clue in clues:
                wrong = sorted(others, key=lambda other: digest(f"{form}\0{clue}\0{other}"))[:WRONG]
                content = f"{form}/{clue}"
                found.append(Item(question.format(clue=clue), answer, form, content, tuple(wrong)))
    return found


def too_near(form: str, answer: str) -> set[str]:
    """The answers of a form that could be right where this one is, itself among them.

    >>> sorted(too_near("colour", "blue"))
    ['blue', 'green']
    """
    groups = [line.split("; ") for line in tables("common_sense").lines(f"alike {form}")]
    return {answer}.union(*(group for group in groups if answer in group))
