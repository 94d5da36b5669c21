"""Tasks from JSON Lines files: one example per line, so that everyone can bring a task.

    {"prompt": "The capital of France is", "target": " Paris", "foils": [" Rome", " Madrid"]}

prompt      text right before the target; needed
target      what should follow, with its leading space; needed
foils       a list of wrong answers
also        a list of further right answers, beside the target
corrupted   the prompt's twin, for patching and for the corrupted and mean stand-ins
template    which sentence pattern the prompt fills
content     what fills it (default: the prompt); examples of one content stay in one part, and
            intervals treat those of one template and content as one cluster
id          text or a whole number, each once (default: "line-N")

Files are UTF-8; empty lines are skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.tasks.json_files import records
from headcount.tasks.task import Bos, Example, Task, Tokenizer

TEXTS = ("prompt", "target", "corrupted", "template", "content", "id")
LISTS = ("foils", "also")


def jsonl(
    tokenizer: Tokenizer | None = None,
    *,
    path: str = "",
    bos: Bos = "auto",
    chat: bool = False,
) -> Task:
    """Your own examples, from a JSON Lines file.

    The tokenizer is not needed here: the file's texts are for any.
    """
    examples = [_example(record, where) for where, record in records(path, "examples", lists=False)]
    return Task(Path(path).stem, 1, tuple(examples), bos=bos, chat=chat)


def _example(record: dict[str, Any], where: str) -> Example:
    fields: dict[str, Any] = {"id": f"line-{where.rsplit(' ', 1)[1]}"}
    for name, value in record.items():
        if name not in TEXTS + LISTS:
            raise HeadcountError(f"{where}: {unknown('field', name, TEXTS + LISTS)}")
        if value is None and name not in ("prompt", "target", "id"):
            continue
        if name == "id" and type(value) is int:
            value = str(value)
        if name in LISTS and not isinstance(value, list):
            raise HeadcountError(f'{where}: the field "{name}" must be a list of texts.')
        if not all(isinstance(text, str) for text in (value if name in LISTS else [value])):
            kind = "texts" if name in LISTS else "a text"
            raise HeadcountError(f'{where}: the field "{name}" must hold {kind} in quotes.')
        fields[name] = tuple(value) if name in LISTS else value
    for name in ("prompt", "target"):
        if name not in fields:
            raise HeadcountError(f'{where}: the field "{name}" is missing.')
    example = Example(**fields)
    if problem := example.problem():
        raise HeadcountError(f"{where}: the example {problem}.")
    return example
