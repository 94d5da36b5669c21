"""Tasks from data sets of the Hugging Face hub, through the `datasets` library.

    make_task("hub", tokenizer, path="openai/gsm8k", config="main", split="test",
              prompt="Question: {question}\\nAnswer:", target=" {answer}", n=200)

Prompt, target and content are patterns: {column} is replaced by that column of each row, and no
other formatting is understood. The data keep their authors' licence: see the data set's page.
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
    rows = _load(settings)
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


def _load(settings: HubSettings) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise HeadcountError(
            "Data sets of the hub need the datasets library: run pip install 'headcount[hub]', or "
            "bring the rows as a JSON Lines file."
        ) from error
    try:
        return datasets.load_dataset(
            settings.path,
            settings.config or None,
            split=settings.split,
            revision=settings.revision or None,
        )
    except Exception as error:  # the library lets errors of many other libraries through
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise HeadcountError(
            f"Cannot load the data set {settings.path} ({reason[0]}): check its name, config and "
            "split, and the network."
        ) from error
