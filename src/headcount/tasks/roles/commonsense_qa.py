"""CommonsenseQA from a local file, in any of the layouts in which it goes around.

    {"id": …, "question": {"stem": …, "choices": [{"label": "A", "text": …}, …]}, "answerKey": "A"}
    {"id": …, "question": …, "choices": {"label": ["A", …], "text": [..., …]}, "answerKey": "A"}
    {"input": "question\\na: option\\nb: option\\n…", "output": "a"}

The file is a JSON list of such records, or has one record in each line. The data (Talmor et al.,
2019) are not ours and do not come with headcount.
"""

from __future__ import annotations

import re
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.items import Item
from headcount.tasks.json_files import checked, records, text_of
from headcount.tasks.roles.pool import pool_task
from headcount.tasks.task import Bos, Task, Tokenizer, quoted

Option = tuple[str, str]  # label and text


def commonsense_qa(
    tokenizer: Tokenizer,
    *,
    path: str = "",
    n: int = 0,
    letters: bool = False,
    shots: int = 1,
    seed: int = 0,
    max_new_tokens: int = 16,
    bos: Bos = "auto",
) -> Task:
    """CommonsenseQA from a local file, behind one solved item of a pool.

    The target is the answer's words; with `letters` the options are listed and it is a letter. An
    option that the file gives twice (a few do) is listed once.
    """
    options: dict[Item, tuple[str, ...]] = {}
    for where, record in records(path, "CommonsenseQA records"):
        question, choices, key = _parts(record, where)
        item = _item(question, choices, key, where)
        options.setdefault(item, tuple(dict.fromkeys(text for _, text in choices)))
    return pool_task(
        "commonsense-qa",
        list(options),
        tokenizer,
        n=n,
        shots=shots,
        seed=seed,
        options=options if letters else None,
        max_new_tokens=max_new_tokens,
        bos=bos,
    )


def _parts(record: dict[str, Any], where: str) -> tuple[str, list[Option], str]:
    """Question, options and the label of the right one, from a record of any layout."""
    if "input" in record:
        question, *lines = text_of(record, "input", where).splitlines()
        matches = [re.fullmatch(r"\s*(\w)\s*[:.)]\s*(.+)", line) for line in lines]
        if not lines or None in matches:
            raise HeadcountError(
                f'{where}: the field "input" needs a question, and an option such as "a: chair" in '
                "each further line."
            )
        choices = [(match[1], match[2].strip()) for match in matches if match]
        return question.strip(), choices, text_of(record, "output", where)
    asked = record.get("question")
    if isinstance(asked, dict):
        question, found = text_of(asked, "stem", where), asked.get("choices")
    else:
        question, found = text_of(record, "question", where), record.get("choices")
    if isinstance(found, dict):
        labels, texts = found.get("label"), found.get("text")
        if not (isinstance(labels, list) and isinstance(texts, list) and len(labels) == len(texts)):
            raise HeadcountError(f"{where}: the choices need as many labels as texts.")
        found = [{"label": label, "text": text} for label, text in zip(labels, texts, strict=True)]
    if not isinstance(found, list) or not all(isinstance(choice, dict) for choice in found):
        raise HeadcountError(f'{where}: the field "choices" must list objects with label and text.')
    choices = [
        (
            checked(choice.get("label"), "the label of a choice", where),
            checked(choice.get("text"), "the text of a choice", where),
        )
        for choice in found
    ]
    if not str(record.get("answerKey") or "").strip():
        raise HeadcountError(
            f'{where}: the field "answerKey" is missing or empty; take a file that comes with the '
            "answers."
        )
    return question, choices, text_of(record, "answerKey", where)


def _item(question: str, choices: list[Option], key: str, where: str) -> Item:
    right = [text for label, text in choices if label.casefold() == key.casefold()]
    if len(right) != 1:
        raise HeadcountError(
            f"{where}: {quoted(key)} names {len(right)} of the options, and it must name one."
        )
    wrong = tuple(dict.fromkeys(text for _, text in choices if text != right[0]))
    if not wrong:
        raise HeadcountError(f"{where}: the options need a wrong one beside the answer.")
    return Item(question, right[0], "", question, wrong)
