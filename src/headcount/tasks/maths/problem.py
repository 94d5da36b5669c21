r"""From problems to a task: the prompt in two pieces, the target in a box.

    Please reason step by step and put your final answer within \boxed{}.     the instruction
    What is 7 * 8?                                                            the problem
        →  \boxed{56}

The two are joined as token ids, with nothing between them, as published; inserts go between. With
solved problems in front, the second piece is

    \n\nProblem: …\nAnswer: … \boxed{…}.\n\nProblem: …\nAnswer:
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError
from headcount.system.files import digest
from headcount.tasks.few_shot import task_of
from headcount.tasks.task import Example, Task

INSTRUCTION = r"Please reason step by step and put your final answer within \boxed{}."
NEXT = "\n\nProblem:"


@dataclass(frozen=True)
class Problem:
    """A problem, its answer, a worked solution that ends in the box, and where it comes from."""

    text: str
    answer: str
    solution: str = ""
    template: str = ""
    content: str = ""


def problem_task(
    name: str,
    asked: Sequence[tuple[Problem, Sequence[Problem]]],
    *,
    instruction: str = INSTRUCTION,
    **settings: Any,
) -> Task:
    """The task of problems, each with the solved ones that stand in front of it.

    `settings` are those of `task_of`.
    """
    if not instruction.strip():
        raise HeadcountError("The instruction must be a text: inserts stand behind it.")
    examples = []
    for problem, solved in asked:
        body = shape(problem, solved) if solved else problem.text
        content = problem.content or problem.text
        key = digest(f"{problem.template}\0{content}")[:12]  # a problem keeps it beside any others
        examples.append(
            Example(
                id=f"{name}-{key}",
                prompt=instruction + body,
                target=rf" \boxed{{{problem.answer}}}",
                template=problem.template,
                content=content,
                pieces=(instruction, body),
            )
        )
    return task_of(name, examples, stop=(NEXT,), until="boxed", **settings)


def shape(problem: Problem, solved: Sequence[Problem]) -> str:
    """A problem behind solved ones, from the line break after the instruction on."""
    front = "".join(f"{NEXT} {one.text}\nAnswer: {one.solution}" for one in solved)
    return f"{front}{NEXT} {problem.text}\nAnswer:"
