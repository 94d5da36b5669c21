"""Tasks from data sets of the Hugging Face hub, through the `datasets` library.

    make_task("hub", tokenizer, path="openai/gsm8k", config="main", split="test",
              prompt="Question: {question}\\nAnswer:", target=" {answer}", n=200)

Prompt, target and content are patterns: {column} is replaced by that column of each row, and no
other formatting is understood. The data keep their authors' licence: see the data set's page.
"""

from __future__ import annotations

import importlib.util
import re
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.tasks.json_files import Record, records
from headcount.tasks.task import Bos, Example, Task, Tokenizer, how_many, of_task


@dataclass(frozen=True)
class HubSettings:
    """Which rows of which data set are used, and how they become examples.

    `foils` names a column that lists wrong answers; each fills the last {column} of the target's
    pattern. The first `n` rows are used, 0 means all.
    """

    path: str = ""
    config: str = ""
    split: str = "test"
    revision: str = ""
    prompt: str = "Question: {question}\nAnswer:"
    target: str = " {answer}"
    foils: str = ""
    content: str = ""
    n: int = 0
    max_new_tokens: int = 16
    bos: Bos = "auto"
    chat: bool = False


def hub(tokenizer: Tokenizer | None = None, *, settings: HubSettings) -> Task:
    """Rows of a data set of the Hugging Face hub, or of a local folder that `datasets` reads."""
    path, prompt, target, foils = settings.path, settings.prompt, settings.target, settings.foils
    if not path:
        raise HeadcountError("Name the data set: path=OWNER/NAME.")
    rows = load_rows(path, settings.config, settings.split, settings.revision)
    answers = _names(target)
    for name in (*_names(prompt), *answers, *_names(settings.content), *([foils] if foils else [])):
        if name not in rows.column_names:
            raise unknown(f"column in {path} with the name", name, rows.column_names)
    examples = []
    for number in range(how_many(settings.n, len(rows), path, f"rows in {settings.split}")):
        row = rows[number]
        right = fill(target, row)
        filled = (
            [fill(target, {**row, answers[-1]: wrong}) for wrong in row[foils]]
            if foils and answers
            else []
        )
        example = Example(
            id=str(number),
            prompt=fill(prompt, row),
            target=right,
            foils=tuple(text for text in filled if text != right),
            content=fill(settings.content, row),
        )
        examples.append(example.checked(f"{path}, row {number}: the example"))
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return Task(name, 1, tuple(examples), **of_task(settings))


def fill(pattern: str, row: Mapping[str, Any]) -> str:
    r"""Replace each {column} of a pattern by the row's value; {{ and }} stand for braces.

    >>> fill("Question: {question}\nAnswer:", {"question": "2 + 2?"})
    'Question: 2 + 2?\nAnswer:'
    """
    # A pattern of str.format could read attributes of Python objects ({answer.__class__}).
    parts = string.Formatter().parse(pattern)
    return "".join(text + ("" if name is None else str(row[name])) for text, name, _, _ in parts)


def _names(pattern: str) -> list[str]:
    try:
        return [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
    except ValueError as error:
        raise HeadcountError(
            f'The pattern "{pattern}" cannot be read ({error}): write columns as {{column}}.'
        ) from error


def on_hub(path: str) -> bool:
    """Whether a path names a data set of the hub (OWNER/NAME), and no file.

    >>> on_hub("openai/gsm8k"), on_hub("data/gsm8k.jsonl"), on_hub("gsm8k"), on_hub("a/b/c")
    (True, False, False, False)
    """
    named = re.fullmatch(r"[A-Za-z0-9][\w.-]*/[\w.-]+", path) is not None
    return named and not path.endswith((".json", ".jsonl", ".txt")) and not Path(path).exists()


def rows_of(
    path: str,
    what: str,
    *,
    config: str = "",
    split: str = "train",
    revision: str = "",
    ids: bool = True,
) -> Iterator[tuple[str, Record]]:
    """Each record of a file, or each row of a data set of the hub, and where it stands."""
    if not on_hub(path):
        yield from records(path, what, ids=ids)
        return
    for number, row in enumerate(load_rows(path, config, split, revision)):
        yield f"{path}, row {number} of {split}", row


def require_datasets() -> None:
    """Refuse a data set of the hub without the library that loads it."""
    try:
        found = importlib.util.find_spec("datasets") is not None
    except ValueError:  # a module that is in memory alone
        found = True
    if not found:
        raise HeadcountError(
            "Data sets of the hub need the datasets library: run pip install 'headcount[hub]', or "
            "give a JSON Lines file of the rows (path=FILE)."
        )


def load_rows(path: str, config: str, split: str, revision: str) -> Any:
    """The rows of one split of a data set of the hub."""
    require_datasets()
    import datasets

    try:
        return datasets.load_dataset(path, config or None, split=split, revision=revision or None)
    except Exception as error:  # the library lets errors of many other libraries through
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        advice = "check its name, config and split, and the network"
        if re.search("gated|authenticated|401|403", reason, re.IGNORECASE):
            advice = "request access on its page, then sign in with hf auth login"
        raise HeadcountError(
            f"Cannot load the data set {path} ({reason}): {advice}, or give a file of its rows."
        ) from error
