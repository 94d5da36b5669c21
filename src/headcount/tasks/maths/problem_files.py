r"""Problems from files in the layout of MATH or of GSM8K, and MATH-500 from the hub.

    {"problem": "Simplify $\\sqrt{242}$.", "answer": "11\\sqrt2", "subject": …, "level": …}
    {"question": "Anna has 3 pens and buys 4. …", "answer": "3 + 4 = <<3+4=7>>7\\n#### 7"}

The data (Hendrycks et al., 2021; Cobbe et al., 2021) are not ours and do not come with headcount.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from headcount.errors import HeadcountError
from headcount.tasks.hub import HubSettings, hub
from headcount.tasks.json_files import Record, records, text_of
from headcount.tasks.maths.problems import Problem, ProblemSettings, problem_task, solved_problems
from headcount.tasks.task import Task, Tokenizer

HUB = HubSettings(
    "HuggingFaceH4/MATH-500", prompt="{problem}", target="{answer}", content="{subject}"
)


@dataclass(frozen=True)
class ProblemFileSettings(ProblemSettings):
    """`shots` solved word problems of ours show what is asked for: small models need them."""

    path: str = ""


@dataclass(frozen=True)
class Math500Settings(ProblemFileSettings):
    """A `path` is that of a local file; without one the `revision` of the hub is read."""

    revision: str = ""


def problems(tokenizer: Tokenizer, settings: ProblemFileSettings) -> Task:
    """Problems with answers, from a file in the layout of MATH-500 or of GSM8K."""
    name = Path(settings.path).stem or "problems"
    return _behind_ours(name, read_problems(settings.path), settings)


def math_500(tokenizer: Tokenizer, settings: Math500Settings) -> Task:
    """The 500 problems of MATH-500: from a local file, or from the Hugging Face hub."""
    if settings.path:
        return _behind_ours("math-500", read_problems(settings.path), settings)
    rows = hub(settings=replace(HUB, revision=settings.revision))
    asked = [Problem(row.prompt, row.target.strip(), template=row.content) for row in rows]
    return _behind_ours("math-500", asked, settings)


def _behind_ours(name: str, asked: list[Problem], settings: ProblemSettings) -> Task:
    """The task of the problems, all behind the same solved ones of ours."""
    solved = solved_problems(name, settings.shots)
    return problem_task(name, [(problem, solved) for problem in asked], settings)


def read_problems(path: str) -> list[Problem]:
    """The problems of a file; one that comes again counts once."""
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
    r"""The answer of a record: all of the field, or what stands behind #### at its end.

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
        raise HeadcountError(f"{where}: the solution has no final answer behind ####.")
    return text
