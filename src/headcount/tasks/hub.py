"""Tasks from data sets of the Hugging Face hub, through the `datasets` library.

    make_task("hub", tokenizer, path="openai/gsm8k", config="main", split="test",
              prompt="Question: {question}\\nAnswer:", target=" {answer}", n=200)

Prompt, target and content are patterns that each row's columns fill in; {column} is all that they
can say. The licence of the data is that of their authors: see the data set's page.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.tasks.task import Bos, Example, Task, Tokenizer, how_many, of_task


@dataclass(frozen=True)
class HubSettings:
    """Which rows of which data set, and how they become examples.

    `foils` names a column that holds a list of wrong answers, which fill {answer} of the target's
    pattern; `n` rows are taken from the start, 0 means all.
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
    rows = _load(settings)
    asked = _names(target)
    for name in (*_names(prompt), *asked, *_names(settings.content), *([foils] if foils else [])):
        if name not in rows.column_names:
            raise unknown(f"column in {path} with the name", name, rows.column_names)
    examples = []
    for number in range(how_many(settings.n, len(rows), path, f"rows in {settings.split}")):
        row = rows[number]
        right = fill(target, row)
        filled = (
            [fill(target, {**row, asked[-1]: wrong}) for wrong in row[foils]]
            if foils and asked
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
    r"""A pattern with {column} replaced; {{ and }} are braces.

    >>> fill("Question: {question}\nAnswer:", {"question": "2 + 2?"})
    'Question: 2 + 2?\nAnswer:'
    """
    # Not str.format itself, whose patterns could reach into Python's objects.
    parts = string.Formatter().parse(pattern)
    return "".join(text + ("" if name is None else str(row[name])) for text, name, _, _ in parts)


def _names(pattern: str) -> list[str]:
    try:
        return [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
    except ValueError as error:
        raise HeadcountError(
            f'The pattern "{pattern}" cannot be read ({error}): write columns as {{column}}.'
        ) from error


def _load(asked: HubSettings) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise HeadcountError(
            "Data sets of the hub need the datasets library: run pip install 'headcount[hub]', or "
            "bring the rows as a JSON Lines file."
        ) from error
    try:
        return datasets.load_dataset(
            asked.path, asked.config or None, split=asked.split, revision=asked.revision or None
        )
    except Exception as error:  # it raises what its many parts raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise HeadcountError(
            f"Cannot load the data set {asked.path} ({reason[0]}): check its name, config and "
            "split, and the network."
        ) from error
