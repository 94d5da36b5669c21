r"""Our own problems with one number as the answer, at levels that small models partly solve.

    products    7 * 8, 70 * 8, 37 * 10          in symbols
    one-step    Anna has 12 pens and buys 5 more. How many pens does Anna have?
    two-step    Anna has 12 pens, buys 5 more and then gives away 3. How many pens are left?

The worked solution of each ends in its box, and those of some problems that are never asked may
stand in front (`shots`). The items are those of the tasks `math` and `arithmetic`.
"""

from __future__ import annotations

import re
from typing import Literal, get_args

from headcount.errors import unknown
from headcount.tasks.cognitive.items import mathematics
from headcount.tasks.few_shot import check_shots
from headcount.tasks.items import Item
from headcount.tasks.maths.problem import INSTRUCTION, Problem, problem_task
from headcount.tasks.roles.arithmetic import items as worded_items
from headcount.tasks.roles.pool import MAX_SHOTS, draw, example_pool
from headcount.tasks.task import Bos, Task, Tokenizer

Level = Literal["all", "products", "one-step", "two-step"]


def word_problems(
    tokenizer: Tokenizer,
    *,
    n: int = 0,
    level: Level = "all",
    shots: int = 2,
    same_form: bool = True,
    seed: int = 0,
    instruction: str = INSTRUCTION,
    max_new_tokens: int = 128,
    bos: Bos = "auto",
    chat: bool = False,
) -> Task:
    """Our own word problems and products, with the answer in a box.

    `shots` solved problems stand behind the instruction, of the problem's own form with
    `same_form`; 0 asks as published, which the bundled model does not answer.
    """
    if level not in get_args(Level):
        raise unknown("level", level, get_args(Level))
    check_shots("word-problems", shots, MAX_SHOTS)
    by_level = _items()
    items = [item for key, some in by_level.items() if level in ("all", key) for item in some]
    pool = example_pool(items)
    shown = {item.content for item in pool}
    asked = [
        (
            as_problem(item),
            [as_problem(one) for one in draw(item, pool, shots, seed=seed, same_form=same_form)],
        )
        for item in items
        if item.content not in shown
    ]
    return problem_task(
        "word-problems",
        asked,
        n=n,
        instruction=instruction,
        max_new_tokens=max_new_tokens,
        bos=bos,
        chat=chat,
    )


def as_problem(item: Item) -> Problem:
    """An item as a problem whose solution ends in the box."""
    steps, _, final = item.answer.rpartition(" The answer is ")
    answer = final.rstrip(".")
    question = item.question
    if not steps:  # an expression such as "7 * 8 ="
        expression = question.removesuffix("=").strip()
        question, steps = f"What is {expression}?", f"{expression} = {answer}."
    solution = rf"{steps} The final answer is \boxed{{{answer}}}."
    return Problem(question, answer, solution, item.template, item.content)


def solved_problems(name: str, shots: int) -> list[Problem]:
    """Solved problems of ours, each of another form, to stand in front of those of task `name`."""
    by_form = {item.template: item for item in reversed(example_pool(_items()["two-step"]))}
    check_shots(name, shots, min(MAX_SHOTS, len(by_form)))
    return [as_problem(by_form[form]) for form in sorted(by_form)[:shots]]


def _items() -> dict[str, list[Item]]:
    worded = worded_items()
    steps = {item: len(re.findall(" = ", item.answer)) for item in worded}
    return {
        "products": mathematics(),
        "one-step": [item for item in worded if steps[item] == 1],
        "two-step": [item for item in worded if steps[item] == 2],
    }
