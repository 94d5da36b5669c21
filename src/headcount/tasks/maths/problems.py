r"""From problems to a task, and our own problems, at levels that small models partly solve.

The prompt is in two pieces, and the target in a box:

    Please reason step by step and put your final answer within \boxed{}.     the instruction
    What is 7 * 8?                                                            the problem
        →  \boxed{56}

The two are joined as token ids, with nothing between them, as published; inserts go between. With
solved problems in front, the second piece is

    \n\nProblem: …\nAnswer: … \boxed{…}.\n\nProblem: …\nAnswer:

Ours have one number as the answer; their items are those of the tasks `math` and `arithmetic`:

    products    7 * 8, 70 * 8, 37 * 10          in symbols
    one-step    Anna has 12 pens and buys 5 more. How many pens does Anna have?
    two-step    Anna has 12 pens, buys 5 more and then gives away 3. How many pens are left?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.system.files import digest
from headcount.tasks.cognitive.items import mathematics
from headcount.tasks.few_shot import check_shots, task_of
from headcount.tasks.items import Item
from headcount.tasks.roles import MAX_SHOTS, behind_pool, example_pool
from headcount.tasks.roles.items import arithmetic_items
from headcount.tasks.task import Bos, Example, Task, Tokenizer

INSTRUCTION = r"Please reason step by step and put your final answer within \boxed{}."
NEXT = "\n\nProblem:"
Level = Literal["all", "products", "one-step", "two-step"]


@dataclass(frozen=True)
class ProblemSettings:
    """How many problems are asked (0: all), behind how many solved ones, and how."""

    n: int = 0
    shots: int = 0
    instruction: str = INSTRUCTION
    max_new_tokens: int = 2048
    bos: Bos = "auto"
    chat: bool = False


@dataclass(frozen=True)
class WordProblemSettings(ProblemSettings):
    """`shots` solved problems are of the problem's own form with `same_form`.

    0 asks as published, which the bundled model does not answer.
    """

    level: Level = "all"
    shots: int = 2
    same_form: bool = True
    seed: int = 0
    max_new_tokens: int = 128


@dataclass(frozen=True)
class Problem:
    """A problem, its answer, a worked solution that ends in the box, and where it comes from."""

    text: str
    answer: str
    solution: str = ""
    template: str = ""
    content: str = ""


def problem_task(
    name: str, asked: Sequence[tuple[Problem, Sequence[Problem]]], settings: ProblemSettings
) -> Task:
    """The task of problems, each with the solved ones that stand in front of it."""
    if not settings.instruction.strip():
        raise HeadcountError("The instruction must be a text: inserts stand behind it.")
    examples = []
    for problem, solved in asked:
        front = "".join(f"{NEXT} {shown.text}\nAnswer: {shown.solution}" for shown in solved)
        body = f"{front}{NEXT} {problem.text}\nAnswer:" if solved else problem.text
        content = problem.content or problem.text
        key = digest(f"{problem.template}\0{content}")[:12]  # a problem keeps it beside any others
        examples.append(
            Example(
                id=f"{name}-{key}",
                prompt=settings.instruction + body,
                target=rf" \boxed{{{problem.answer}}}",
                template=problem.template,
                content=content,
                pieces=(settings.instruction, body),
            )
        )
    return task_of(
        name,
        examples,
        n=settings.n,
        stop=(NEXT,),
        until="boxed",
        max_new_tokens=settings.max_new_tokens,
        bos=settings.bos,
        chat=settings.chat,
    )


def word_problems(tokenizer: Tokenizer, settings: WordProblemSettings) -> Task:
    """Our own word problems and products, with the answer in a box."""
    if settings.level not in get_args(Level):
        raise unknown("level", settings.level, get_args(Level))
    check_shots("word-problems", settings.shots, MAX_SHOTS)
    levels = items_of_levels()
    items = [item for key in levels if settings.level in ("all", key) for item in levels[key]]
    shown = {item.content for item in example_pool(items)}
    asked = behind_pool(items, shown, settings.shots, settings.seed, settings.same_form)
    problems = [(as_problem(item), [as_problem(one) for one in solved]) for item, solved in asked]
    return problem_task("word-problems", problems, settings)


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
    pool = example_pool(items_of_levels()["two-step"])
    by_form = {item.template: item for item in reversed(pool)}
    check_shots(name, shots, min(MAX_SHOTS, len(by_form)))
    return [as_problem(by_form[form]) for form in sorted(by_form)[:shots]]


def items_of_levels() -> dict[str, list[Item]]:
    """The items of our problems, by level."""
    worded = arithmetic_items()
    return {
        "products": mathematics(),
        "one-step": [item for item in worded if item.answer.count(" = ") == 1],
        "two-step": [item for item in worded if item.answer.count(" = ") == 2],
    }
