r"""Tasks of maths problems: our own, which small models partly solve, and those of files.

A prompt has two pieces, and the target is a box:

    Please reason step by step and put your final answer within \boxed{}.     the instruction
    What is 7 * 8?                                                            the problem
        →  \boxed{56}

As published, the two are joined as token ids, with nothing between them; an insert can go between.
With solved problems in front, the second piece is

    \n\nProblem: …\nAnswer: … \boxed{…}.\n\nProblem: …\nAnswer:

The answer to each of our own problems is a number; the items are those of the tasks `math` and
`arithmetic`:

    products    7 * 8, 70 * 8, 37 * 10          in symbols
    one-step    Anna has 12 pens and buys 5 more. How many pens does Anna have?
    two-step    Anna has 12 pens, buys 5 more and then gives away 3. How many pens are left?

Other problems come from files in the layout of MATH (Hendrycks et al., 2021) or of GSM8K (Cobbe et
al., 2021), which are not ours and do not come with headcount. MATH-500 can also come from the hub:

    {"problem": "Simplify $\\sqrt{242}$.", "answer": "11\\sqrt2", "subject": …, "level": …}
    {"question": "Anna has 3 pens and buys 4. …", "answer": "3 + 4 = <<3+4=7>>7\\n#### 7"}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.system.files import digest, readable
from headcount.tasks.cognitive.items import mathematics
from headcount.tasks.few_shot import check_shots, task_of
from headcount.tasks.hub import HubSettings, hub, on_hub
from headcount.tasks.items import Item
from headcount.tasks.json_files import Record, records, text_of
from headcount.tasks.roles import MAX_SHOTS, behind_pool, example_pool
from headcount.tasks.roles.items import arithmetic_items
from headcount.tasks.task import Bos, Example, Task, Tokenizer, of_task

INSTRUCTION = r"Please reason step by step and put your final answer within \boxed{}."
NEXT = "\n\nProblem:"
HUB = HubSettings(
    "HuggingFaceH4/MATH-500", prompt="{problem}", target="{answer}", content="{subject}"
)
Level = Literal["all", "products", "one-step", "two-step"]


@dataclass(frozen=True)
class ProblemSettings:
    """The number of problems (0: all), of solved problems in front, and how they are asked."""

    n: int = 0
    shots: int = 0
    instruction: str = INSTRUCTION
    max_new_tokens: int = 2048
    bos: Bos = "auto"
    chat: bool = False


@dataclass(frozen=True)
class WordProblemSettings(ProblemSettings):
    """With `same_form`, the `shots` solved problems have the form of the problem.

    `shots=0` is the published prompt, which the bundled model does not answer.
    """

    level: Level = "all"
    shots: int = 2
    same_form: bool = True
    seed: int = 0
    max_new_tokens: int = 128


@dataclass(frozen=True)
class ProblemFileSettings(ProblemSettings):
    """`shots` of our solved word problems show the format; small models need them."""

    path: str = ""


@dataclass(frozen=True)
class Math500Settings(ProblemFileSettings):
    """`path` names a file, or a data set of the hub (OWNER/NAME), whose `revision` is read."""

    path: str = HUB.path
    revision: str = ""


@dataclass(frozen=True)
class Problem:
    """A problem, its answer, a worked solution that ends in the box, its template and content."""

    text: str
    answer: str
    solution: str = ""
    template: str = ""
    content: str = ""


def problem_task(
    name: str, asked: Sequence[tuple[Problem, Sequence[Problem]]], settings: ProblemSettings
) -> Task:
    """Make a task of problems; `asked` pairs each with the solved problems in front of it."""
    if not settings.instruction.strip():
        raise HeadcountError(
            "The instruction must not be empty, because inserts follow it: give it a text."
        )
    examples = []
    for problem, solved in asked:
        front = "".join(f"{NEXT} {shown.text}\nAnswer: {shown.solution}" for shown in solved)
        body = f"{front}{NEXT} {problem.text}\nAnswer:" if solved else problem.text
        content = problem.content or problem.text
        key = digest(f"{problem.template}\0{content}")[
            :12
        ]  # the same whatever other problems there are
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
    further = {"stop": (NEXT,), "until": "boxed", **of_task(settings)}
    return task_of(name, examples, n=settings.n, **further)


def word_problems(tokenizer: Tokenizer, settings: WordProblemSettings) -> Task:
    """Our own word problems and products, with the answer in a box."""
    if settings.level not in get_args(Level):
        raise unknown("level", settings.level, get_args(Level))
    check_shots("word-problems", settings.shots, MAX_SHOTS)
    levels = items_of_levels()
    items = [item for key in levels if settings.level in ("all", key) for item in levels[key]]
    shown = {item.content for item in example_pool(items)}
    asked = behind_pool(items, shown, settings.shots, settings.seed, settings.same_form)
    problems = [(as_problem(item), list(map(as_problem, solved))) for item, solved in asked]
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
    """Our own solved problems, each of another form, to show in front of the task `name`."""
    pool = example_pool(items_of_levels()["two-step"])
    by_form = {item.template: item for item in reversed(pool)}
    check_shots(name, shots, min(MAX_SHOTS, len(by_form)))
    return [as_problem(by_form[form]) for form in sorted(by_form)[:shots]]


def items_of_levels() -> dict[str, list[Item]]:
    """The items of our own problems, by level."""
    worded = arithmetic_items()
    return {
        "products": mathematics(),
        "one-step": [item for item in worded if item.answer.count(" = ") == 1],
        "two-step": [item for item in worded if item.answer.count(" = ") == 2],
    }


def problems(tokenizer: Tokenizer, settings: ProblemFileSettings) -> Task:
    """Problems with answers, from a file in the layout of MATH-500 or of GSM8K."""
    name = readable(Path(settings.path).stem) or "problems"
    return _with_our_shots(name, read_problems(settings.path), settings)


def math_500(tokenizer: Tokenizer, settings: Math500Settings) -> Task:
    """The 500 problems of MATH-500: from a local file, or from the Hugging Face hub."""
    if not on_hub(settings.path):
        return _with_our_shots("math-500", read_problems(settings.path), settings)
    rows = hub(settings=replace(HUB, path=settings.path, revision=settings.revision))
    asked = [Problem(row.prompt, row.target.strip(), template=row.content) for row in rows]
    return _with_our_shots("math-500", asked, settings)


def _with_our_shots(name: str, asked: list[Problem], settings: ProblemSettings) -> Task:
    """Make a task of problems, with the same solved problems of our own in front of each."""
    solved = solved_problems(name, settings.shots)
    return problem_task(name, [(problem, solved) for problem in asked], settings)


def read_problems(path: str) -> list[Problem]:
    """Read the problems of a file; a repeated problem is used once."""
    by_text: dict[str, Problem] = {}
    for where, record in records(path, "problem records"):
        field = next((name for name in ("problem", "question") if name in record), None)
        if field is None:
            raise HeadcountError(f'{where}: the field "problem" (or "question") is missing.')
        text = text_of(record, field, where)
        if text not in by_text:
            subject = record.get("subject", "")
            template = subject if isinstance(subject, str) else ""
            by_text[text] = Problem(text, final_answer(record, where), template=template)
    return list(by_text.values())


def final_answer(record: Record, where: str) -> str:
    r"""The answer of a record: the text after the last ####, or the whole field without one.

    >>> final_answer({"answer": "3 + 4 = <<3+4=7>>7\n#### 1,007"}, "line 1")
    '1,007'
    """
    if "answer" not in record:
        raise HeadcountError(
            f'{where}: the field "answer" is missing, and a problem without its answer cannot be '
            "graded."
        )
    text = text_of(record, "answer", where, number=True)
    marked = re.findall(r"^####[ \t]*(.+)$", text, flags=re.MULTILINE)
    if marked:
        return str(marked[-1]).strip()
    if "question" in record and "\n" in text:
        raise HeadcountError(f"{where}: the solution has no final answer after ####: add one.")
    return text
