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

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError, did_you_mean
from headcount.tasks.task import Bos, Example, Task, quoted

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

FIELDS = ("prompt", "target", "foils", "also", "corrupted", "template", "content", "id")
MAX_LINE = 1_000_000  # bytes: far above any prompt, far below what would fill the memory


def jsonl(
    tokenizer: PreTrainedTokenizerBase | None = None,
    *,
    path: str = "",
    bos: Bos = "auto",
    chat: bool = False,
) -> Task:
    """Your own examples, from a JSON Lines file.

    The tokenizer is not needed here: the file's texts are for any.
    """
    if not path:
        raise HeadcountError("Name the JSON Lines file that holds the task: path=FILE.")
    examples: list[Example] = []
    first_line: dict[str, int] = {}  # of each id
    for number, line in lines_of(Path(path)):
        where = f"{path}, line {number}"
        example = _example(line, where, number)
        if example.id in first_line:
            raise HeadcountError(
                f"{where}: the id {quoted(example.id)} is taken by line {first_line[example.id]}; "
                "give each example its own."
            )
        first_line[example.id] = number
        examples.append(example)
    if not examples:
        raise HeadcountError(f"{path} has no examples: write one JSON object per line.")
    return Task(Path(path).stem, 1, tuple(examples), bos=bos, chat=chat)


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a file that are not empty, with their numbers from 1."""
    try:
        with path.open("rb") as file:
            number = 0
            while data := file.readline(MAX_LINE + 1):
                number += 1
                if len(data) > MAX_LINE:
                    raise HeadcountError(
                        f"{path}, line {number}: the line is longer than {MAX_LINE:,} bytes; write "
                        "one short example per line."
                    )
                try:
                    # Editors on Windows put a byte order mark at the start of a file.
                    text = data.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError as error:
                    raise HeadcountError(
                        f"{path}, line {number}: the text is not UTF-8 (byte {error.start + 1} of "
                        "the line); save the file as UTF-8."
                    ) from error
                if text:
                    yield number, text
    except OSError as error:
        raise HeadcountError(
            f"Cannot read the task file {path}: {error.strerror or error}."
        ) from error


def _example(line: str, where: str, number: int) -> Example:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else type(error).__name__
        raise HeadcountError(f"{where}: the line is not JSON ({reason}).") from error
    if not isinstance(record, dict):
        raise HeadcountError(f"{where}: the line is not a JSON object such as {{...}}.")
    for name in record:
        if name not in FIELDS:
            raise HeadcountError(
                f"{where}: there is no field {quoted(name)} (known: {', '.join(FIELDS)})."
                f"{did_you_mean(name, FIELDS)}"
            )
    for name in ("prompt", "target"):
        if name not in record:
            raise HeadcountError(f'{where}: the field "{name}" is missing.')
    identifier = record.get("id", f"line-{number}")
    if type(identifier) is int:
        identifier = str(identifier)
    lists = {}
    for name in ("foils", "also"):
        if not isinstance(record.get(name), list | None):
            raise HeadcountError(f'{where}: the field "{name}" must be a list of texts.')
        lists[name] = tuple(_text(one, name, where) for one in record.get(name) or ())
    example = Example(
        id=_text(identifier, "id", where),
        prompt=_text(record["prompt"], "prompt", where),
        target=_text(record["target"], "target", where),
        foils=lists["foils"],
        corrupted=None
        if record.get("corrupted") is None
        else _text(record["corrupted"], "corrupted", where),
        template=_text(record.get("template") or "", "template", where),
        content=_text(record.get("content") or "", "content", where),
        also=lists["also"],
    )
    if problem := example.problem():
        raise HeadcountError(f"{where}: the example {problem}.")
    return example


def _text(value: Any, name: str, where: str) -> str:
    if not isinstance(value, str):
        kind = "texts" if name in ("foils", "also") else "a text"
        raise HeadcountError(f'{where}: the field "{name}" must hold {kind} in quotes.')
    return value
