"""CogQA (Ma et al., 2025): sub-questions of larger questions, each of which needs one skill.

The data are not ours and do not come with headcount. A file is a JSON list of records, or has one
record per line:

    {"question": …, "answer": …, "generated": [{"subquestion": …, "answer": …,
     "cognitive_skill": "Retrieval"}, …]}

A sub-question is asked alone, with the earlier ones and their right answers as context. In the form
"plain" it has the look of our own tasks. In the form "json" the prompt has the parts of the
published one and asks for the answer as [{"answer": "…"}]; its words are our own†. A text file
brings other words, with {question}, {known} and {asked} in their places.

† The published code asks so too, but its words are not ours to copy.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.tasks.few_shot import shape
from headcount.tasks.hub import fill, rows_of
from headcount.tasks.json_files import opened, text_of
from headcount.tasks.task import Bos, Example, Task, Tokenizer, how_many, of_task

Context = Literal["all", "retrieval", "none"]
PLAIN, JSON = "plain", "json"
NOTHING = "Nothing is known so far."
WORDS = """\
You reason with care. You get a question, what is known about it so far, and one step of the way to
its answer. Take this step alone.

<question>
{question}
</question>

<known>
{known}
</known>

<step>
{asked}
</step>

- Use what is known so far.
- Answer briefly, with facts, and without an explanation or code.
- Write nothing after the closing bracket.

Answer in this form and no other:
[
    {{"answer": "<your answer>"}}
]

Your answer:
"""


@dataclass(frozen=True)
class CogqaSettings:
    """Which sub-questions are asked, and how.

    path     a file, or a data set of the hub (OWNER/NAME)
    test     a second file, whose questions make the test split; without it, contents are split
    n        the first n sub-questions of each file; 0 takes all
    context  what is known: "all" earlier sub-questions with their answers; with "retrieval" only
             those of the skill Retrieval, as in the published code; with "none" no sub-question
    form     "plain", "json", or a text file with {question}, {known} and {asked}
    """

    path: str = ""
    test: str = ""
    n: int = 0
    context: Context = "all"
    form: str = PLAIN
    max_new_tokens: int = 128
    bos: Bos = "auto"
    chat: bool = False


@dataclass(frozen=True)
class SkillSettings(CogqaSettings):
    """`skill` is the cognitive skill whose sub-questions are asked; without it, those of all."""

    skill: str = ""


def cogqa(tokenizer: Tokenizer | None = None, *, settings: SkillSettings) -> Task:
    """Sub-questions of one cognitive skill, from a file in the published CogQA layout."""
    return cogqa_task(settings, settings.skill)


def cogqa_task(settings: CogqaSettings, skill: str) -> Task:
    """The sub-questions of a skill, or of all, as a task; those of a question share its content."""
    if settings.context not in get_args(Context):
        raise unknown("context", settings.context, get_args(Context))
    words = _words(settings.form)
    examples = _examples(settings.path, skill, settings, words)
    further: dict[str, Any] = of_task(settings)
    if settings.test:
        tested = _examples(settings.test, skill, settings, words, "test-")
        further["test_contents"] = frozenset(example.content for example in tested)
        examples += tested
    if words:
        further |= {"stop": (), "until": "json"}
    name = f"cogqa-{_plain(skill)}" if skill else "cogqa"
    return Task(name, 1, tuple(examples), **further)


def _words(form: str) -> str:
    """The prompt with {question}, {known} and {asked}; empty for the form "plain"."""
    if form in (PLAIN, JSON):
        return WORDS if form == JSON else ""
    if not form.endswith(".txt"):
        raise unknown("form", form, (PLAIN, JSON, "FILE.txt"))
    with opened(Path(form)) as file:
        return file.read().decode("utf-8", "replace")


def _examples(
    path: str, skill: str, settings: CogqaSettings, words: str, prefix: str = ""
) -> list[Example]:
    examples: list[Example] = []
    skills: dict[str, None] = {}
    for where, question, number, step, before in _steps(path):
        skills[step["cognitive_skill"]] = None
        if not skill or _plain(step["cognitive_skill"]) == _plain(skill):
            known = [one for one in before if _is_known(one, settings.context)]
            example = Example(
                id=f"{prefix}{number}",
                prompt=_prompt(question, known, step, words),
                target=_target(step["answer"], words),
                template=step["cognitive_skill"],
                content=question,
            )
            examples.append(example.checked(where))
    if not examples:
        raise unknown(f"sub-question in {path} of the skill", skill, skills)
    return examples[: how_many(settings.n, len(examples), path, "sub-questions of this skill")]


Step = dict[str, str]


def _steps(path: str) -> Iterator[tuple[str, str, str, Step, list[Step]]]:
    """Each sub-question: where it stands, its question and number, itself, and the earlier ones."""
    rows = rows_of(path, "CogQA records", ids=False)
    for number, (where, record) in enumerate(rows, start=1):
        question, steps = record.get("question"), record.get("generated")
        if not isinstance(question, str) or not isinstance(steps, list):
            raise HeadcountError(
                f'{where}: a record needs a text "question" and a list "generated".'
            )
        before: list[Step] = []
        for place, fields in enumerate(steps, start=1):
            here = f"{where}, sub-question {place}"
            given = fields if isinstance(fields, dict) else {}
            names = ("subquestion", "answer", "cognitive_skill")
            step = {name: text_of(given, name, here, number=True) for name in names}
            step["place"] = str(place)
            yield here, question.strip(), f"{number}.{place}", step, list(before)
            before.append(step)


def _is_known(step: Step, context: Context) -> bool:
    return context == "all" or (
        context == "retrieval" and _plain(step["cognitive_skill"]) == "retrieval"
    )


def _prompt(question: str, known: list[Step], step: Step, words: str) -> str:
    if not words:
        front = "".join(shape(one["subquestion"], one["answer"]) for one in known)
        return f"{question}\n\n{front}{shape(step['subquestion'])}"
    lines = [f"Q{o['place']}: {o['subquestion']}\nA{o['place']}: {o['answer']}" for o in known]
    told = "\n".join(lines) or NOTHING
    return fill(words, {"question": question, "known": told, "asked": step["subquestion"]})


def _target(answer: str, words: str) -> str:
    """The right answer as it continues the prompt."""
    return json.dumps([{"answer": answer}], ensure_ascii=False) if words else f" {answer}"


def _plain(skill: str) -> str:
    """The name of a skill in one spelling: "Knowledge Recall" and "knowledge_recall" are equal."""
    return "-".join(skill.replace("_", " ").replace("-", " ").casefold().split())
