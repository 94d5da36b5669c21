"""Questions of published data sets, from local files in the published layouts.

The data are not ours and do not come with headcount. A file is a JSON list of records, or has one
record per line. GSM8K (Cobbe et al., 2021):

    {"question": "Anna has 3 pens and buys 4. How many …?",
     "answer": "She has 3 + 4 = <<3+4=7>>7 pens.\\n#### 7"}

CommonsenseQA (Talmor et al., 2019), in any of its common layouts:

    {"id": …, "question": {"stem": …, "choices": [{"label": "A", "text": …}, …]}, "answerKey": "A"}
    {"id": …, "question": …, "choices": {"label": ["A", …], "text": [..., …]}, "answerKey": "A"}
    {"input": "question\\na: option\\nb: option\\n…", "output": "a"}

CogQA breaks questions into sub-questions, each of which needs one cognitive skill:

    {"question": …, "answer": …, "generated": [{"subquestion": …, "answer": …,
     "cognitive_skill": "Retrieval"}, …]}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

from headcount.errors import HeadcountError, unknown
from headcount.tasks.few_shot import shape
from headcount.tasks.items import Item
from headcount.tasks.json_files import Record, records, text_of
from headcount.tasks.roles import PoolSettings, pool_task
from headcount.tasks.task import Bos, Example, Task, Tokenizer, how_many, quoted

Ending = Literal["words", "marks", "none"]
ENDINGS: dict[Ending, str] = {"words": "The answer is {}.", "marks": "#### {}", "none": ""}
Context = Literal["all", "retrieval", "none"]


@dataclass(frozen=True)
class Gsm8kSettings(PoolSettings):
    """`ending` says what the last line, "#### 7", becomes: words, the same marks, or nothing."""

    path: str = ""
    ending: Ending = "words"
    max_new_tokens: int = 256


def gsm8k(tokenizer: Tokenizer, settings: Gsm8kSettings) -> Task:
    """Word problems with whole solutions, from a local file in the layout of GSM8K.

    The target is the whole solution. The calculator annotations (<<3+4=7>>) are removed, and the
    last line becomes a sentence ("The answer is 7."): our choice, not the published study's.
    """
    if settings.ending not in ENDINGS:
        raise unknown("ending", settings.ending, ENDINGS)
    items: dict[Item, None] = {}
    for where, record in records(settings.path, "GSM8K records"):
        question = " ".join(text_of(record, "question", where).split())
        answer = solution(text_of(record, "answer", where), settings.ending)
        if not answer:
            raise HeadcountError(f'{where}: the field "answer" holds no solution.')
        items[Item(question, answer, "", question)] = None
    return pool_task("gsm8k", list(items), tokenizer, settings, stop=("\n\n",))


def solution(answer: str, ending: Ending = "words") -> str:
    r"""The solution as a target, without the calculator annotations.

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


@dataclass(frozen=True)
class CommonsenseQASettings(PoolSettings):
    """The target is the text of the answer; with `letters`, the letter of a listed option."""

    path: str = ""
    letters: bool = False


def commonsense_qa(tokenizer: Tokenizer, settings: CommonsenseQASettings) -> Task:
    """CommonsenseQA from a local file, with one solved item in front of each question.

    An option that a record gives twice (a few records do) is listed once.
    """
    options: dict[Item, tuple[str, ...]] = {}
    for where, record in records(settings.path, "CommonsenseQA records"):
        question, choices, key = _choices(record, where)
        right = [text for label, text in choices if label.casefold() == key.casefold()]
        if len(right) != 1:
            raise HeadcountError(
                f"{where}: the answer {quoted(key)} names {len(right)} of the options; name one."
            )
        listed = tuple(dict.fromkeys(text for _, text in choices))
        wrong = tuple(text for text in listed if text != right[0])
        if not wrong:
            raise HeadcountError(f"{where}: give at least one wrong option besides the answer.")
        options.setdefault(Item(question, right[0], "", question, wrong), listed)
    chosen = options if settings.letters else None
    return pool_task("commonsense-qa", list(options), tokenizer, settings, options=chosen)


def _choices(record: Record, where: str) -> tuple[str, list[tuple[str, str]], str]:
    """The question, the label and text of each option, and the label of the right option."""
    if "input" in record:
        question, *lines = text_of(record, "input", where).splitlines()
        matches = [re.fullmatch(r"\s*(\w)\s*[:.)]\s*(.+)", line) for line in lines]
        if not lines or None in matches:
            raise HeadcountError(
                f'{where}: write the question in the first line of the field "input", and an '
                'option such as "a: chair" in each further line.'
            )
        options = [(match[1], match[2].strip()) for match in matches if match]
        return question.strip(), options, text_of(record, "output", where)
    fields = record.get("question")
    if isinstance(fields, dict):
        question, choices = text_of(fields, "stem", where), fields.get("choices")
    else:
        question, choices = text_of(record, "question", where), record.get("choices")
    if isinstance(choices, dict):
        labels, texts = choices.get("label"), choices.get("text")
        if not (isinstance(labels, list) and isinstance(texts, list) and len(labels) == len(texts)):
            raise HeadcountError(f"{where}: the choices need as many labels as texts.")
        choices = [{"label": label, "text": t} for label, t in zip(labels, texts, strict=True)]
    if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
        raise HeadcountError(f'{where}: the field "choices" must list objects with label and text.')
    options = [
        (
            text_of(choice, "label", f"{where}, a choice"),
            text_of(choice, "text", f"{where}, a choice"),
        )
        for choice in choices
    ]
    if not str(record.get("answerKey") or "").strip():
        raise HeadcountError(
            f'{where}: the field "answerKey" is missing or empty; take a file that comes with the '
            "answers."
        )
    return question, options, text_of(record, "answerKey", where)


def cogqa(
    tokenizer: Tokenizer | None = None,
    *,
    path: str = "",
    skill: str = "",
    n: int = 0,
    context: Context = "all",
    max_new_tokens: int = 128,
    bos: Bos = "auto",
) -> Task:
    """Sub-questions of one cognitive skill, from a file in the published CogQA layout.

    The first `n` sub-questions of the skill are used, 0 means all. Sub-questions are asked one at a
    time; those of one question share its content. With `context`
    "all", the earlier sub-questions and their right answers stand in front; with "retrieval" only
    those of the skill Retrieval, as in the published code; with "none" no sub-question.
    """
    if context not in get_args(Context):
        raise unknown("context", context, get_args(Context))
    examples: list[Example] = []
    skills: dict[str, None] = {}
    for number, (where, record) in enumerate(records(path, "CogQA records", ids=False), start=1):
        question, steps = record.get("question"), record.get("generated")
        if not isinstance(question, str) or not isinstance(steps, list):
            raise HeadcountError(
                f'{where}: a record needs a text "question" and a list "generated".'
            )
        before = f"{question.strip()}\n\n"
        for step, fields in enumerate(steps, start=1):
            here = f"{where}, sub-question {step}"
            asked, answer, needed = (
                text_of(fields if isinstance(fields, dict) else {}, name, here, number=True)
                for name in ("subquestion", "answer", "cognitive_skill")
            )
            skills[needed] = None
            if not skill or _plain(needed) == _plain(skill):
                example = Example(
                    id=f"{number}.{step}",
                    prompt=before + shape(asked),
                    target=f" {answer}",
                    template=needed,
                    content=question.strip(),
                )
                examples.append(example.checked(here))
            if context == "all" or (context == "retrieval" and _plain(needed) == "retrieval"):
                before += shape(asked, answer)
    if not examples:
        raise unknown(f"sub-question in {path} of the skill", skill, skills)
    name = f"cogqa-{_plain(skill)}" if skill else "cogqa"
    kept = tuple(examples[: how_many(n, len(examples), path, "sub-questions of this skill")])
    return Task(name, 1, kept, bos=bos, max_new_tokens=max_new_tokens)


def _plain(skill: str) -> str:
    """The name of a skill in one spelling: "Knowledge Recall" and "knowledge_recall" are equal."""
    return "-".join(skill.replace("_", " ").replace("-", " ").casefold().split())
