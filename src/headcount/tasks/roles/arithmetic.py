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
from typing import TYPE_CHECKING

from headcount.tasks.cognitive.item import Item
from headcount.tasks.roles.prompt import build
from headcount.tasks.task import Bos, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PER_KIND = 42
MOST = 150  # no result is larger

# `kind (column of things; range of a, of b, of c) question → steps`. Numbers are drawn until every
# step comes out whole and above 1.
KINDS = """
    buy (things; 3-60, 2-30)
    {name} has {a} {thing}. {she} buys {b} more {thing}. How many {thing} does {name} have?
    → {name} has {a} + {b} = {x} {thing}.

    give (things; 10-90, 2-60)
    {name} has {a} {thing} and gives {b} of them away. How many {thing} are left?
    → {name} has {a} - {b} = {x} {thing} left.

    boxes (boxes; 2-9, 3-12)
    There are {a} {box} with {b} {thing} each. How many {thing} are there?
    → There are {a} x {b} = {x} {thing}.

    share (things; 4-99, 2-9)
    {name} shares {a} {thing} equally among {b} friends. How many {thing} does each friend get?
    → Each friend gets {a} / {b} = {x} {thing}.

    price (goods; 2-12, 2-9)
    One {thing} costs {a} dollars. How much do {b} of them cost?
    → They cost {a} x {b} = {x} dollars.

    change (goods; 20-50, 2-40)
    {name} has {a} dollars and buys a {thing} for {b} dollars. How much money is left?
    → {name} has {a} - {b} = {x} dollars left.

    days (things; 2-15, 2-10)
    {name} finds {a} {thing} every day. How many {thing} does {name} find in {b} days?
    → {name} finds {a} x {b} = {x} {thing}.

    difference (things; 10-90, 2-60)
    {name} has {a} {thing} and a friend has {b}. How many more {thing} does {name} have?
    → {name} has {a} - {b} = {x} more {thing}.

    pack (boxes; 4-99, 2-9)
    {name} puts {a} {thing} into {box}, {b} in each. How many {box} does {name} fill?
    → {name} fills {a} / {b} = {x} {box}.

    save (goods; 2-9, 10-99)
    {name} saves {a} dollars a week and needs {b} dollars for a {thing}. How many weeks does it
    take?
    → It takes {b} / {a} = {x} weeks.

    buy-and-give (things; 12-60, 2-30, 2-12)
    {name} has {a} {thing}, buys {b} more and then gives away {c}. How many {thing} are left?
    → First there are {a} + {b} = {x} {thing}. Then {x} - {c} = {y} {thing} are left.

    lose-and-find (things; 20-60, 2-30, 2-12)
    {name} has {a} {thing}, loses {b} and then finds {c}. How many {thing} does {name} have?
    → First {a} - {b} = {x} {thing} are left. Then {name} has {x} + {c} = {y} {thing}.

    boxes-and-more (boxes; 2-9, 3-12, 2-20)
    There are {a} {box} with {b} {thing} each, and {c} more {thing}. How many {thing} are there?
    → The {box} hold {a} x {b} = {x} {thing}. In all there are {x} + {c} = {y} {thing}.

    boxes-and-less (boxes; 3-9, 5-12, 2-14)
    There are {a} {box} with {b} {thing} each. {name} takes {c} {thing} away. How many {thing} are
    left?
    → There are {a} x {b} = {x} {thing}. Then {x} - {c} = {y} {thing} are left.

    price-and-change (goods; 50-99, 2-9, 2-11)
    {name} has {a} dollars and buys {b} {thing}s for {c} dollars each. How much money is left?
    → The {thing}s cost {b} x {c} = {x} dollars. {name} has {a} - {x} = {y} dollars left.

    times (things; 2-20, 2-6)
    {name} has {a} {thing}. A friend has {b} times as many. How many {thing} do they have together?
    → The friend has {a} x {b} = {x} {thing}. Together they have {a} + {x} = {y} {thing}.

    more-than (things; 3-40, 2-20)
    {name} has {a} {thing}. A friend has {b} more than that. How many {thing} do they have together?
    → The friend has {a} + {b} = {x} {thing}. Together they have {a} + {x} = {y} {thing}.

    two-buyers (things; 30-99, 2-40, 2-40)
    A shop has {a} {thing}. One customer buys {b} and another buys {c}. How many {thing} are left?
    → The customers buy {b} + {c} = {x} {thing}. The shop has {a} - {x} = {y} {thing} left.

    earn-and-share (goods; 3-40, 3-40, 2-6)
    {name} sells a {thing} for {a} dollars and another for {b} dollars, and shares the money equally
    among {c} children. How much does each child get?
    → The money is {a} + {b} = {x} dollars. Each child gets {x} / {c} = {y} dollars.

    three-days (things; 5-40, 5-40, 5-40)
    {name} sells {a} {thing} on Monday, {b} on Tuesday and {c} on Wednesday. How many {thing} is
    that?
    → The first two days make {a} + {b} = {x} {thing}. All three make {x} + {c} = {y} {thing}.
"""
COLUMNS = {
    "things": "pens apples books stamps coins marbles eggs cards shells buttons stickers roses",
    "goods": "notebook cup ticket lamp hat ball toy shirt poster plant mug clock",
    "boxes": """
        boxes/pencils bags/oranges baskets/pears shelves/books packs/cards trays/eggs jars/olives
        crates/bottles vases/flowers cages/birds drawers/socks tins/biscuits
    """,
}
PEOPLE = """
    Anna/She Peter/He Laura/She Daniel/He Emma/She James/He Lucy/She Robert/He Julia/She Simon/He
    Helen/She Paul/He Maria/She
"""


@dataclass(frozen=True)
class Kind:
    """A kind of problem; question and steps have places for names, things and numbers."""

    key: str
    column: str
    ranges: tuple[range, ...]
    question: str
    steps: str


def arithmetic(
    tokenizer: PreTrainedTokenizerBase,
    *,
    n: int = 0,
    shots: int = 1,
    seed: int = 0,
    same_form: bool = True,
    max_new_tokens: int = 64,
    bos: Bos = "auto",
) -> Task:
    """Math: word problems whose target is a whole worked solution, behind one solved item."""
    return build(
        "arithmetic",
        items(),
        tokenizer,
        n=n,
        shots=shots,
        seed=seed,
        same_form=same_form,
        max_new_tokens=max_new_tokens,
        bos=bos,
    )


def items() -> list[Item]:
    """All items, kind after kind."""
    return [item for kind in kinds() for item in _of_kind(kind)]


def kinds() -> list[Kind]:
    """The table of kinds, read."""
    found = []
    for block in KINDS.strip().split("\n\n"):
        head, _, rest = block.strip().partition("\n")
        key, column, limits = re.split(r" \(|; ", head.strip(" )"))
        bounds = [limit.split("-") for limit in limits.split(", ")]
        ranges = tuple(range(int(low), int(high) + 1) for low, high in bounds)
        question, steps = " ".join(rest.split()).split(" → ")
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
    things, people = COLUMNS[kind.column].split(), PEOPLE.split()
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
