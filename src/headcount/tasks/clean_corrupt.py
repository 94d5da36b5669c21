"""Tasks in the JSON layout that circuit-finding projects share.

    {"prompts": [{"clean": "The war lasted from 1742 to 17", "corrupt": "The war lasted …",
                  "answers": ["43", "44"], "wrong_answers": ["41", "42"]}, …]}

clean           text right before the answer; needed
corrupt         its twin; needed
answers         right answers, as they continue the prompt, with their leading space; the first is
                the target of metrics that have one
wrong_answers   the foils

What else a file or a prompt holds is not read. There are no templates in this layout, so each
prompt is a cluster of its own, and means are over all positions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.tasks.json_files import document
from headcount.tasks.task import Bos, Example, Task, Tokenizer


def clean_corrupt(
    tokenizer: Tokenizer | None = None,
    *,
    path: str = "",
    n: int = 0,
    bos: Bos = "auto",
) -> Task:
    """Clean and corrupt prompts with right and wrong answers, from a JSON file.

    `n` takes so many of its first prompts, 0 all. The tokenizer is not needed here: the file's
    texts are for any.
    """
    if not path:
        raise HeadcountError("Name the JSON file that holds the prompts: path=FILE.")
    if n < 0:
        raise HeadcountError(f"Take at least one prompt of {path}, or 0 for all, not {n}.")
    records = _prompts(Path(path))
    if n > len(records):
        raise HeadcountError(f"{path} has {len(records)} prompts, not {n}.")
    chosen = records[:n] if n else records
    examples = [_example(record, number, path) for number, record in enumerate(chosen, 1)]
    return Task(Path(path).stem, 1, tuple(examples), bos=bos)


def _prompts(path: Path) -> list[Any]:
    data = document(path)
    prompts = data.get("prompts") if isinstance(data, dict) else None
    if not isinstance(prompts, list):
        raise HeadcountError(
            f'{path} has no list "prompts": the layout is {{"prompts": [{{"clean": …, "corrupt": …,'
            ' "answers": […], "wrong_answers": […]}]}.'
        )
    if not prompts:
        raise HeadcountError(f"{path} has no prompts: give it at least one.")
    return prompts


def _example(record: Any, number: int, path: str) -> Example:
    where = f"{path}, prompt {number}"
    if not isinstance(record, dict):
        raise HeadcountError(f"{where} is not a JSON object such as {{...}}.")
    texts = {}
    for name in ("clean", "corrupt"):
        if not isinstance(record.get(name), str):
            raise HeadcountError(f'{where}: the field "{name}" must hold a text in quotes.')
        texts[name] = record[name]
    lists = {}
    for name in ("answers", "wrong_answers"):
        listed = record.get(name)
        if not (isinstance(listed, list) and listed and all(isinstance(t, str) for t in listed)):
            raise HeadcountError(
                f'{where}: the field "{name}" must be a list of one or more texts in quotes.'
            )
        lists[name] = tuple(dict.fromkeys(listed))  # each once
    target, *also = lists["answers"]
    example = Example(
        id=f"prompt-{number}",
        prompt=texts["clean"],
        target=target,
        foils=lists["wrong_answers"],
        corrupted=texts["corrupt"],
        also=tuple(also),
    )
    if problem := example.problem():
        raise HeadcountError(f"{where} {problem}.")
    return example
