"""Tasks from your own files of examples, for any tokenizer.

A JSON Lines file has one example per line; empty lines are skipped:

    {"prompt": "The capital of France is", "target": " Paris", "foils": [" Rome", " Madrid"]}

prompt      the text right before the target; required
target      the text that should follow, with its leading space; required
foils       a list of wrong answers
also        a list of further right answers, besides the target
corrupted   the corrupted prompt, for patching and for the corrupted and mean ablations
template    the name of the sentence pattern that the prompt fills
content     what fills the pattern (default: the prompt); examples of one content stay in one split,
            and intervals treat examples of one template and content as one cluster
id          a text or a whole number, different in every line (default: "line-N")

JSON files of clean and corrupt prompts have the layout that circuit-finding projects share:

    {"prompts": [{"clean": "The war lasted from 1742 to 17", "corrupt": "The war lasted …",
                  "answers": ["43", "44"], "wrong_answers": ["41", "42"]}, …]}

clean           the text right before the answer; required
corrupt         the corrupted prompt; required
answers         right answers, as they continue the prompt, with their leading space; metrics with a
                single target use the first
wrong_answers   the foils

Other fields are ignored. The layout has no templates, so each prompt is a cluster of its own, and
the mean ablation takes means over all positions.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError, unknown
from headcount.tasks.json_files import (
    Record,
    Values,
    document,
    exact_text,
    exact_texts,
    lines,
    records,
)
from headcount.tasks.task import Bos, Example, Task, Tokenizer, how_many

NEEDED = ("prompt", "target")
LISTS = ("foils", "also")
FIELDS = (*NEEDED, "corrupted", "template", "content", "id", *LISTS)


def jsonl(
    tokenizer: Tokenizer | None = None, *, path: str = "", bos: Bos = "auto", chat: bool = False
) -> Task:
    """Your own examples from a JSON Lines file."""
    examples = [_example(record, where) for where, record in records(path, "examples", lines)]
    return Task(Path(path).stem, 1, tuple(examples), bos=bos, chat=chat)


def _example(record: Record, where: str) -> Example:
    fields: dict[str, Any] = {"id": f"line-{where.rsplit(' ', 1)[1]}"}
    for name in dict.fromkeys((*record, *NEEDED)):
        value = record.get(name)
        if name not in FIELDS:
            raise HeadcountError(f"{where}: {unknown('field', name, FIELDS)}")
        if name == "id" and type(value) is int:
            fields[name] = str(value)
        elif value is not None or name in (*NEEDED, "id"):
            fields[name] = (exact_texts if name in LISTS else exact_text)(record, name, where)
    return Example(**fields).checked(f"{where}: the example")


def clean_corrupt(
    tokenizer: Tokenizer | None = None, *, path: str = "", n: int = 0, bos: Bos = "auto"
) -> Task:
    """Clean and corrupt prompts with right and wrong answers, from a JSON file.

    The first `n` prompts are used, 0 means all.
    """
    prompts = list(records(path, "prompts", _prompts, ids=False))
    examples = []
    for where, record in prompts[: how_many(n, len(prompts), path, "prompts")]:
        answers, wrong = (
            tuple(dict.fromkeys(exact_texts(record, name, where)))  # without repetitions
            for name in ("answers", "wrong_answers")
        )
        if not answers or not wrong:
            raise HeadcountError(
                f'{where}: the fields "answers" and "wrong_answers" each need at least one text.'
            )
        example = Example(
            id=where.removeprefix(f"{path}, ").replace(" ", "-"),
            prompt=exact_text(record, "clean", where),
            target=answers[0],
            foils=wrong,
            corrupted=exact_text(record, "corrupt", where),
            also=answers[1:],
        )
        examples.append(example.checked(where))
    return Task(Path(path).stem, 1, tuple(examples), bos=bos)


def _prompts(path: Path) -> Values:
    data = document(path)
    prompts = data.get("prompts") if isinstance(data, dict) else None
    if not isinstance(prompts, list):
        raise HeadcountError(
            f'{path} has no list "prompts": the layout is {{"prompts": [{{"clean": …, "corrupt": …,'
            ' "answers": […], "wrong_answers": […]}]}.'
        )
    return ((f"prompt {number}", prompt) for number, prompt in enumerate(prompts, start=1))
