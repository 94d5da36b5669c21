"""What models are asked: examples, tasks, their token ids, and one file per task family.

A task is made by name for the tokenizer at hand, or read from a file (JSON Lines, or the JSON
layout of clean and corrupt prompts):

    make_task("ioi", tokenizer, n=100)
    make_task("my/questions.jsonl", tokenizer)
    make_task("my/prompts.json", tokenizer)
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import Registry
from headcount.tasks.cognitive import FUNCTIONS
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
from headcount.tasks.hub import HubSettings, hub
from headcount.tasks.ioi import ioi, ioi_long
from headcount.tasks.maths.problem_files import (
    Math500Settings,
    ProblemFileSettings,
    math_500,
    problems,
)
from headcount.tasks.maths.problems import WordProblemSettings, word_problems
from headcount.tasks.own_files import clean_corrupt, jsonl
from headcount.tasks.question_files import (
    CommonsenseQASettings,
    Gsm8kSettings,
    cogqa,
    commonsense_qa,
    gsm8k,
)
from headcount.tasks.roles import (
    ArithmeticSettings,
    CommonSenseSettings,
    SyntaxSettings,
    arithmetic,
    common_sense,
    syntax,
)
from headcount.tasks.task import Example, Task, Tokenizer
from headcount.tasks.template_tasks import TemplateSettings

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
]

TASKS: Registry[Task] = Registry("task")
"""Task factories: each takes the tokenizer, and its settings by keyword or as one config."""

TASKS.register("ioi", "IOI", TemplateSettings)(ioi)
TASKS.register("ioi-long", "IOI Long", TemplateSettings)(ioi_long)
TASKS.register("greater-than", "Greater Than", TemplateSettings)(greater_than)
TASKS.register("docstring", "Docstring", TemplateSettings)(docstring)
for _function in FUNCTIONS.values():
    TASKS.register(_function.key, _function.name)(_function.factory)
TASKS.register("syntax", "Syntax", SyntaxSettings)(syntax)
TASKS.register("common-sense", "Common Sense", CommonSenseSettings)(common_sense)
TASKS.register("arithmetic", "Math", ArithmeticSettings)(arithmetic)
TASKS.register("commonsense-qa", "CommonsenseQA", CommonsenseQASettings)(commonsense_qa)
TASKS.register("gsm8k", "GSM8K", Gsm8kSettings)(gsm8k)
TASKS.register("word-problems", "Word problems", WordProblemSettings)(word_problems)
TASKS.register("math-500", "Math-500", Math500Settings)(math_500)
TASKS.register("problems", "Problems from a file", ProblemFileSettings)(problems)
TASKS.register("jsonl", "JSON Lines")(jsonl)
TASKS.register("circuit", "Clean and corrupt prompts")(clean_corrupt)
TASKS.register("hub", "Hugging Face data set", HubSettings)(hub)
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
    key = os.fspath(spec)
    if key not in TASKS.entries and key.endswith(".json"):
        key, settings = "circuit", {"path": key, **settings}
    elif key not in TASKS.entries and (key.endswith(".jsonl") or os.path.basename(key) != key):
        key, settings = "jsonl", {"path": key, **settings}
    entry = TASKS[key]
    parameters = entry.bind(**settings)
    task = entry.function(tokenizer, **entry.arguments(parameters))
    return replace(task, parameters=parameters)
