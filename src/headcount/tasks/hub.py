"""Tasks from data sets of the Hugging Face hub, through the `datasets` library.

    make_task("hub", tokenizer, path="openai/gsm8k", config="main", split="test",
              prompt="Question: {question}\\nAnswer:", target=" {answer}", n=200)

Prompt, target and content are patterns that each row's columns fill in; {column} is all that they
can say. The licence of the data is that of their authors: see the data set's page.
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.tasks.task import Bos, Example, Task, Tokenizer


def hub(
    tokenizer: Tokenizer | None = None,
    *,
    path: str = "",
    config: str = "",
    split: str = "test",
    revision: str = "",
    prompt: str = "Question: {question}\nAnswer:",
    target: str = " {answer}",
    foils: str = "",
    content: str = "",
    n: int = 0,
    max_new_tokens: int = 16,
    bos: Bos = "auto",
    chat: bool = False,
) -> Task:
    """Rows of a data set of the Hugging Face hub, or of a local folder that `datasets` reads.

    `foils` names a column that holds a list of wrong answers, which fill {answer} of the target's
    pattern; `n` rows are taken from the start, 0 means all.
    """
    if not path:
        raise HeadcountError("Name the data set: path=OWNER/NAME.")
    rows = _load(path, config, split, revision)
    columns = list(rows.column_names)
    names = [name for pattern in (prompt, target, content) for name in _names(pattern)]
    for name in (*names, foils) if foils else names:
        if name not in columns:
            raise unknown(f"column in {path} with the name", name, columns)
    if not 0 <= n <= len(rows):
        raise HeadcountError(f"{path} has {len(rows)} rows in {split}, not {n}: ask for fewer.")
    examples = []
    for number in range(n or len(rows)):
        row = rows[number]
        right = fill(target, row)
        filled: list[str] = []
        if foils and (names := _names(target)):
            filled = [fill(target, {**row, names[-1]: wrong}) for wrong in row[foils]]
        example = Example(
            id=str(number),
            prompt=fill(prompt, row),
            target=right,
            foils=tuple(text for text in filled if text != right),
            content=fill(content, row),
        )
        if problem := example.problem():
            raise HeadcountError(f"{path}, row {number}: the example {problem}.")
        examples.append(example)
    name = path.rstrip("/").rsplit("/", 1)[-1]
    return Task(name, 1, tuple(examples), bos=bos, chat=chat, max_new_tokens=max_new_tokens)


def fill(pattern: str, row: Mapping[str, Any]) -> str:
    r"""A pattern with {column} replaced; {{ and }} are braces.

    >>> fill("Question: {question}\nAnswer:", {"question": "2 + 2?"})
    'Question: 2 + 2?\nAnswer:'
    """
    # Not str.format itself, whose patterns could reach into Python's objects.
    parts = []
    for text, name, _, _ in string.Formatter().parse(pattern):
        parts.append(text)
        if name is not None:
            parts.append(str(row[name]))
    return "".join(parts)


def _names(pattern: str) -> list[str]:
    try:
        return [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
    except ValueError as error:
        raise HeadcountError(
            f'The pattern "{pattern}" cannot be read ({error}): write columns as {{column}}.'
        ) from error


def _load(path: str, config: str, split: str, revision: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise HeadcountError(
            "Data sets of the hub need the datasets library: run pip install 'headcount[hub]', or "
            "bring the rows as a JSON Lines file."
        ) from error
    try:
        return datasets.load_dataset(path, config or None, split=split, revision=revision or None)
    except Exception as error:  # it raises what its many parts raise
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise HeadcountError(
            f"Cannot load the data set {path} ({reason[0]}): check its name, config and split, and "
            "the network."
        ) from error
