"""The published CogQA layout: questions broken into sub-questions, one cognitive skill each.

    {"question": …, "answer": …, "generated": [{"subquestion": …, "answer": …,
     "cognitive_skill": "Retrieval"}, …]}

The file is a JSON list of such records, or has one record in each line. Sub-questions are asked one
at a time, with the earlier ones and their right answers in front; all those of one question share
its content. The data are not ours and do not come with headcount.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.tasks.few_shot import shape
from headcount.tasks.json_files import values
from headcount.tasks.task import Bos, Example, Task, Tokenizer, quoted

Context = Literal["all", "retrieval", "none"]


def cogqa(
    tokenizer: Tokenizer | None = None,
    *,
    path: str = "",
    skill: str = "",
    context: Context = "all",
    max_new_tokens: int = 128,
    bos: Bos = "auto",
) -> Task:
    """Sub-questions of one cognitive skill, from a file in the published CogQA layout.

    In front of a sub-question stand all earlier ones, with their right answers; with `context`
    "retrieval" only those of that skill, as in the published code; with "none" nothing.
    """
    if not path:
        raise HeadcountError("Name the file that holds the CogQA records: path=FILE.")
    if context not in get_args(Context):
        raise unknown("context", context, get_args(Context))
    examples: list[Example] = []
    skills: dict[str, None] = {}
    for number, (which, record) in enumerate(values(Path(path)), start=1):
        where = f"{path}, {which}"
        question, steps = _checked(record, where)
        before: list[str] = []
        for step, (asked, answer, its) in enumerate(steps, start=1):
            skills[its] = None
            if not skill or _plain(its) == _plain(skill):
                example = Example(
                    id=f"{number}.{step}",
                    prompt=f"{question}\n\n{''.join(before)}{shape(asked)}",
                    target=f" {answer}",
                    template=its,
                    content=question,
                )
                if problem := example.problem():
                    raise HeadcountError(f"{where}: sub-question {step} {problem}.")
                examples.append(example)
            if context == "all" or (context == "retrieval" and _plain(its) == "retrieval"):
                before.append(shape(asked, answer))
    if not examples:
        raise unknown(f"sub-question in {path} of the skill", skill, skills)
    name = f"cogqa-{_plain(skill)}" if skill else "cogqa"
    return Task(name, 1, tuple(examples), bos=bos, max_new_tokens=max_new_tokens)


def _plain(skill: str) -> str:
    """A skill's name however it is written: "Knowledge Recall", "knowledge_recall"."""
    return "-".join(skill.replace("_", " ").replace("-", " ").casefold().split())


def _checked(record: Any, where: str) -> tuple[str, list[tuple[str, str, str]]]:
    """The question and its steps, or what is wrong with them."""
    if not isinstance(record, dict):
        raise HeadcountError(f"{where}: a record is a JSON object such as {{...}}.")
    steps = record.get("generated")
    if not isinstance(record.get("question"), str) or not isinstance(steps, list):
        raise HeadcountError(f'{where}: a record needs a text "question" and a list "generated".')
    checked = []
    for number, step in enumerate(steps, start=1):
        texts = []
        for name in ("subquestion", "answer", "cognitive_skill"):
            value = step.get(name) if isinstance(step, dict) else None
            if isinstance(value, int | float) and not isinstance(value, bool):
                value = str(value)
            if not isinstance(value, str) or not value.strip():
                raise HeadcountError(
                    f"{where}: sub-question {number} has no text in the field {quoted(name)}."
                )
            texts.append(value.strip())
        checked.append((texts[0], texts[1], texts[2]))
    return record["question"].strip(), checked
