r"""Problems from files in the layout of MATH or of GSM8K, and MATH-500 from the hub.

    {"problem": "Simplify $\\sqrt{242}$.", "answer": "11\\sqrt2", "subject": …, "level": …}
    {"question": "Anna has 3 pens and buys 4. …", "answer": "3 + 4 = <<3+4=7>>7\\n#### 7"}

The data (Hendrycks et al., 2021; Cobbe et al., 2021) are not ours and do not come with headcount.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.hub import hub
from headcount.tasks.json_files import records, text_of
from headcount.tasks.maths.problem import INSTRUCTION, Problem, problem_task
from headcount.tasks.maths.word_problems import solved_problems
from headcount.tasks.task import Bos, Task, Tokenizer

HUB = "HuggingFaceH4/MATH-500"


def problems(
    tokenizer: Tokenizer,
    *,
    path: str = "",
    n: int = 0,
    shots: int = 0,
    instruction: str = INSTRUCTION,
    max_new_tokens: int = 2048,
    bos: Bos = "auto",
    chat: bool = False,
) -> Task:
    """Problems with answers, from a file in the layout of MATH-500 or of GSM8K.

    `shots` solved word problems of ours in front show what is asked for: small models box nothing
    without.
    """
    name = Path(path).stem or "problems"
    return _behind_ours(
        name,
        read_problems(path),
        shots,
        n=n,
        instruction=instruction,
        max_new_tokens=max_new_tokens,
        bos=bos,
        chat=chat,
    )


def math_500(
    tokenizer: Tokenizer,
    *,
    path: str = "",
    revision: str = "",
    n: int = 0,
    shots: int = 0,
    instruction: str = INSTRUCTION,
    max_new_tokens: int = 2048,
    bos: Bos = "auto",
    chat: bool = False,
) -> Task:
    """The 500 problems of MATH-500: from a local file, or from the Hugging Face hub.

    `shots` as in `problems`.
    """
    if path:
        asked = read_problems(path)
    else:
        rows = hub(
            path=HUB, revision=revision, prompt="{problem}", target="{answer}", content="{subject}"
        )
        asked = [Problem(row.prompt, row.target.strip(), template=row.content) for row in rows]
    return _behind_ours(
        "math-500",
        asked,
        shots,
        n=n,
        instruction=instruction,
        max_new_tokens=max_new_tokens,
        bos=bos,
        chat=chat,
    )


def _behind_ours(name: str, asked: list[Problem], shots: int, **settings: Any) -> Task:
    """The task of the problems, all behind the same solved ones of ours."""
    solved = solved_problems(name, shots)
    return problem_task(name, [(problem, solved) for problem in asked], **settings)


def read_problems(path: str) -> list[Problem]:
    """The problems of a file; one that comes again counts once."""
    by_text: dict[str, Problem] = {}
    for where, record in records(path, "problem records"):
        if "problem" not in record and "question" not in record:
            raise HeadcountError(f'{where}: the field "problem" (or "question") is missing.')
        field = "problem" if "problem" in record else "question"
        text = text_of(record, field, where)
        if text not in by_text:
            subject = record.get("subject", "")
            template = subject if isinstance(subject, str) else ""
            by_text[text] = Problem(text, final_answer(record, where), template=template)
    return list(by_text.values())


def final_answer(record: dict[str, Any], where: str) -> str:
    r"""The answer of a record: all of the field, or what stands behind #### at its end.

    >>> final_answer({"answer": "3 + 4 = <<3+4=7>>7\n#### 1,007"}, "line 1")
    '1,007'
    """
    if "answer" not in record:
        raise HeadcountError(
            f'{where}: the field "answer" is missing, and a problem without its answer cannot be '
            "graded."
        )
    value = record["answer"]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    text = text_of(record, "answer", where)
    marked = re.findall(r"^####[ \t]*(.+)$", text, flags=re.MULTILINE)
    if marked:
        return str(marked[-1]).strip()
    if "question" in record and "\n" in text:
        raise HeadcountError(f"{where}: the solution has no final answer behind ####.")
    return text
