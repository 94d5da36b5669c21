"""Word problems from a local file in the layout of GSM8K: one JSON object per line.

    {"question": "Anna has 3 pens and buys 4. How many …?",
     "answer": "She has 3 + 4 = <<3+4=7>>7 pens.\\n#### 7"}

The target is the whole solution. The marks of the calculator (<<3+4=7>>) are removed, and the last
line is put into words ("The answer is 7."), which is our choice and not part of the published
study. The data (Cobbe et al., 2021) are not ours and do not come with headcount.
"""

from __future__ import annotations

import re
from typing import Literal

from headcount.errors import HeadcountError, unknown
from headcount.tasks.items import Item
from headcount.tasks.json_files import records, text_of
from headcount.tasks.roles.pool import pool_task
from headcount.tasks.task import Bos, Task, Tokenizer

Ending = Literal["words", "marks", "none"]
ENDINGS: dict[Ending, str] = {"words": "The answer is {}.", "marks": "#### {}", "none": ""}


def gsm8k(
    tokenizer: Tokenizer,
    *,
    path: str = "",
    n: int = 0,
    ending: Ending = "words",
    shots: int = 1,
    seed: int = 0,
    max_new_tokens: int = 256,
    bos: Bos = "auto",
) -> Task:
    """Word problems with whole solutions, from a local file in the layout of GSM8K.

    The last line, "#### 7", becomes "The answer is 7."; with `ending` "marks" it stays as it is,
    with "none" it is left out.
    """
    if ending not in ENDINGS:
        raise unknown("ending", ending, ENDINGS)
    items: dict[Item, None] = {}
    for where, record in records(path, "GSM8K records"):
        question = " ".join(text_of(record, "question", where).split())
        answer = solution(text_of(record, "answer", where), ending)
        if not answer:
            raise HeadcountError(f'{where}: the field "answer" holds no solution.')
        items[Item(question, answer, "", question)] = None
    return pool_task(
        "gsm8k",
        list(items),
        tokenizer,
        n=n,
        shots=shots,
        seed=seed,
        stop=("\n\n",),
        max_new_tokens=max_new_tokens,
        bos=bos,
    )


def solution(answer: str, ending: Ending = "words") -> str:
    r"""The solution as a target, without the marks of the calculator.

    >>> solution("3 + 4 = <<3+4=7>>7 pens.\n#### 7")
    '3 + 4 = 7 pens.\nThe answer is 7.'
    """
    lines = []
    for line in re.sub(r"<<[^<>]*>>", "", answer).splitlines():
        text = " ".join(line.split())
        if final := re.fullmatch(r"#### ?(.+)", text):
            text = ENDINGS[ending].format(final[1])
        lines.append(text)
    return "\n".join(filter(None, lines))
