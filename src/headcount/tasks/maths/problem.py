r"""From problems to a task: the prompt in two pieces, the target in a box.

    Please reason step by step and put your final answer within \boxed{}.     the instruction
    What is 7 * 8?                                                            the problem
        →  \boxed{56}

The two are joined as token ids, with nothing between them, as published; inserts go between. With
solved problems in front, the second piece is

    \n\nProblem: …\nAnswer: … \boxed{…}.\n\nProblem: …\nAnswer:
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.errors import HeadcountError
from headcount.tasks.task import Bos, Example, Task

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
    id: str = ""


def problem_task(
    name: str,
    asked: Sequence[Problem],
    *,
    solved: Sequence[Sequence[Problem]] | None = None,
    n: int = 0,
    instruction: str = INSTRUCTION,
    max_new_tokens: int = 128,
    bos: Bos = "auto",
    chat: bool = False,
    version: int = 1,
) -> Task:
    """The task of `n` problems (0: all); `solved` are those that stand in front of each."""
    if not 0 <= n <= len(asked):
        raise HeadcountError(f"The task {name} has {len(asked)} problems, not {n}: ask for fewer.")
    if not instruction.strip():
        raise HeadcountError("The instruction must be a text: inserts stand behind it.")
    examples = []
    for place, problem in enumerate(asked):
        front = solved[place] if solved else ()
        body = shape(problem, front) if front else problem.text
        examples.append(
            Example(
                id=problem.id or _name(name, problem),
                prompt=instruction + body,
                target=rf" \boxed{{{problem.answer}}}",
                template=problem.template,
                content=problem.content or problem.text,
                pieces=(instruction, body),
            )
        )
    task = Task(
        name,
        version,
        tuple(examples),
        bos=bos,
        chat=chat,
        stop=(NEXT,),
        max_new_tokens=max_new_tokens,
        until="boxed",
    )
    return task.subset(n) if n else task


def shape(problem: Problem, solved: Sequence[Problem]) -> str:
    """A problem behind solved ones, from the line break after the instruction on."""
    front = "".join(f"{NEXT} {one.text}\nAnswer: {one.solution}" for one in solved)
    return f"{front}{NEXT} {problem.text}\nAnswer:"


def _name(name: str, problem: Problem) -> str:
    """An id by content, so that a problem keeps its own when others are added."""
    text = f"{problem.template}\0{problem.content or problem.text}"
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
