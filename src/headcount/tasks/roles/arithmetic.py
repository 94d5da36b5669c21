"""Math: word problems whose target is a whole worked solution.

    Anna has 12 pens. She buys 5 more pens. How many pens does Anna have?
        →  Anna has 12 + 5 = 17 pens. The answer is 17.

Each kind of problem draws numbers for every item, and its steps are computed from them. The content
is the kind, the thing and the numbers; within a kind, no numbers come twice. The people come round
and are no part of the content. All items are our own.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass
from itertools import count

from headcount.tasks.items import Item, tables
from headcount.tasks.roles.pool import role_factory

PER_KIND = 42
MOST = 150  # no result is larger


@dataclass(frozen=True)
class Kind:
    """A kind of problem; question and steps have places for names, things and numbers."""

    key: str
    column: str
    ranges: tuple[range, ...]
    question: str
    steps: str


def items() -> list[Item]:
    """All items, kind after kind."""
    return [item for kind in kinds() for item in _of_kind(kind)]


arithmetic = role_factory(
    "arithmetic",
    items,
    max_new_tokens=64,
    summary="Math: word problems whose target is a whole worked solution, behind one solved item.",
)


def kinds() -> list[Kind]:
    """The kinds of problems, read from their data file."""
    found = []
    for line in tables("arithmetic").lines("kinds"):
        key, column, limits, question, steps = re.split(r" \(|; |\) | → ", line)
        bounds = [limit.split("-") for limit in limits.split(", ")]
        ranges = tuple(range(int(low), int(high) + 1) for low, high in bounds)
        found.append(Kind(key, column, ranges, question, steps))
    return found


def results(steps: str, numbers: dict[str, int]) -> dict[str, int] | None:
    """What the steps come to, in turn; None where one is not whole, too small or too large.

    >>> results("There are {a} x {b} = {x} eggs. Then {x} - {c} = {y}", {"a": 4, "b": 6, "c": 5})
    {'x': 24, 'y': 19}
    """
    known = dict(numbers)
    for left, sign, right, name in re.findall(r"\{(\w)\} ([-+x/]) \{(\w)\} = \{(\w)\}", steps):
        a, b = known[left], known[right]
        if sign == "/" and a % b:
            return None
        known[name] = {"+": a + b, "-": a - b, "x": a * b, "/": a // b}[sign]
        if not 2 <= known[name] <= MOST:
            return None
    return {name: value for name, value in known.items() if name not in numbers}


def _of_kind(kind: Kind) -> list[Item]:
    """Items with numbers of their own; things and people come round."""
    rng = random.Random(f"arithmetic {kind.key}")
    things, people = tables("arithmetic").words(kind.column), tables("arithmetic").words("people")
    found: dict[tuple[int, ...], Item] = {}
    turns = count(rng.randrange(100))
    while len(found) < PER_KIND:
        drawn = tuple(rng.choice(limits) for limits in kind.ranges)
        numbers = dict(zip("abc", drawn, strict=False))
        steps = results(kind.steps, numbers)
        if drawn in found or len(set(drawn)) < len(drawn) or steps is None:
            continue
        turn = next(turns)
        whole = things[turn % len(things)]
        box, _, thing = whole.rpartition("/")
        name, she = people[turn % len(people)].split("/")
        words = {"name": name, "she": she, "box": box, "thing": thing, **numbers, **steps}
        answer = f"{kind.steps.format(**words)} The answer is {[*steps.values()][-1]}."
        content = "/".join((kind.key, whole, *map(str, drawn)))
        found[drawn] = Item(kind.question.format(**words), answer, kind.key, content)
    return list(found.values())
