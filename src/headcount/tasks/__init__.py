"""What models are asked: examples, tasks, their token ids, and one file per task family.

A task is made by name for the tokenizer at hand, or read from a file (JSON Lines, or the JSON
layout of clean and corrupt prompts):

    make_task("ioi", tokenizer, n=100)
    make_task("my/questions.jsonl", tokenizer)
    make_task("my/prompts.json", tokenizer)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import Registry
from headcount.tasks.clean_corrupt import clean_corrupt
from headcount.tasks.cognitive import FUNCTIONS
from headcount.tasks.cogqa import cogqa
from headcount.tasks.docstring import docstring
from headcount.tasks.encoding import (
    Encoded,
    continuation_ids,
    encode,
    require_foils,
    require_single_token,
    require_twin,
)
from headcount.tasks.greater_than import greater_than
from headcount.tasks.hub import hub
from headcount.tasks.ioi import ioi, ioi_long
from headcount.tasks.json_files import check_readable
from headcount.tasks.jsonl import jsonl
from headcount.tasks.maths import math_500, problems, word_problems
from headcount.tasks.roles import arithmetic, common_sense, commonsense_qa, gsm8k, syntax
from headcount.tasks.task import Example, Task, Tokenizer

__all__ = [
    "FUNCTIONS",
    "TASKS",
    "Encoded",
    "Example",
    "Task",
    "continuation_ids",
    "encode",
    "make_task",
    "require_foils",
    "require_single_token",
    "require_twin",
    "task_factory",
]

TASKS: Registry[Task] = Registry("task")
"""Task factories: each takes the tokenizer, and its settings by keyword."""

TASKS.register("ioi", "IOI")(ioi)
TASKS.register("ioi-long", "IOI Long")(ioi_long)
TASKS.register("greater-than", "Greater Than")(greater_than)
TASKS.register("docstring", "Docstring")(docstring)
for _function in FUNCTIONS.values():
    TASKS.register(_function.key, _function.name)(_function.factory)
TASKS.register("syntax", "Syntax")(syntax)
TASKS.register("common-sense", "Common Sense")(common_sense)
TASKS.register("arithmetic", "Math")(arithmetic)
TASKS.register("commonsense-qa", "CommonsenseQA")(commonsense_qa)
TASKS.register("gsm8k", "GSM8K")(gsm8k)
TASKS.register("word-problems", "Word problems")(word_problems)
TASKS.register("math-500", "Math-500")(math_500)
TASKS.register("problems", "Problems from a file")(problems)
TASKS.register("jsonl", "JSON Lines")(jsonl)
TASKS.register("circuit", "Clean and corrupt prompts")(clean_corrupt)
TASKS.register("hub", "Hugging Face data set")(hub)
TASKS.register("cogqa", "CogQA")(cogqa)


def make_task(spec: str | os.PathLike[str] | Task, tokenizer: Tokenizer, **settings: Any) -> Task:
    """Make a task from its name, from the path of a file, or pass a ready one through.

    All settings of the factory, chosen or default, are kept in the task's `parameters`.

    >>> from headcount import load_model, make_task
    >>> task = make_task("ioi", load_model("smollm2-135m").tokenizer, n=100)
    >>> len(task.part("ranking")) + len(task.part("test"))
    100
    """
    if isinstance(spec, Task):
        if settings:
            raise HeadcountError(
                f'The task "{spec.name}" is already made: settings ({", ".join(settings)}) go with '
                "the name of a task."
            )
        return spec
    return task_factory(spec, **settings)(tokenizer)


def task_factory(spec: str | os.PathLike[str], **settings: Any) -> Callable[[Tokenizer], Task]:
    """What makes a task for a tokenizer; refuses names, settings and files that are not there."""
    key = os.fspath(spec)
    if key not in TASKS.entries and key.endswith(".json"):
        key, settings = "circuit", {"path": key, **settings}
    elif key not in TASKS.entries and (key.endswith(".jsonl") or os.path.basename(key) != key):
        key, settings = "jsonl", {"path": key, **settings}
    entry = TASKS[key]
    parameters = entry.bind(**settings)
    if parameters.get("path") and key != "hub":
        check_readable(Path(parameters["path"]))
    return lambda tokenizer: replace(entry.function(tokenizer, **parameters), parameters=parameters)
