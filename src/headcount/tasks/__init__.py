"""Tasks: what models are asked. Examples, their token ids, and one file per family of tasks.

A task is made by its name for a tokenizer, or read from a file (JSON Lines of examples or of pairs
of sentences, or the JSON layout of clean and corrupt prompts):

    make_task("ioi", model, n=100)
    make_task("my/questions.jsonl", model)
    make_task("my/prompts.json", model)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headcount.errors import HeadcountError
from headcount.registry import Factory, Registry, check_made
from headcount.tasks import hub, own_files, roles
from headcount.tasks import question_files as questions
from headcount.tasks import template_tasks as templates
from headcount.tasks.cognitive import FUNCTIONS
from headcount.tasks.cogqa import SkillSettings, cogqa
from headcount.tasks.encoding import (
    Encoded,
    encode,
    no_corrupted,
    no_foil,
    require_corrupted,
    require_foils,
)
from headcount.tasks.json_files import opened
from headcount.tasks.lm_eval_docs import LmEvalSettings, lm_eval_docs
from headcount.tasks.maths import problems
from headcount.tasks.needle import NeedleSettings, needle
from headcount.tasks.skills import SKILL_TASKS
from headcount.tasks.task import Example, Task, Tokenizer

__all__ = [
    "FUNCTIONS",
    "TASKS",
    "Encoded",
    "Example",
    "Task",
    "check_file",
    "encode",
    "make_task",
    "require_corrupted",
    "require_foils",
    "task_factory",
]

TASKS: Registry[Factory[Task]] = Registry("task", Factory)
"""Task factories: each takes the tokenizer, and its settings by keyword or as one config."""

_OURS: tuple[tuple[str, str, Callable[..., Task], type | None], ...] = (
    ("ioi", "IOI", templates.ioi, templates.TemplateSettings),
    ("ioi-long", "IOI Long", templates.ioi_long, templates.TemplateSettings),
    ("greater-than", "Greater Than", templates.greater_than, templates.TemplateSettings),
    ("docstring", "Docstring", templates.docstring, templates.TemplateSettings),
    *((skill.key, skill.name, skill.factory, skill.settings) for skill in FUNCTIONS.values()),
    ("syntax", "Syntax", roles.syntax, roles.SyntaxSettings),
    ("common-sense", "Common Sense", roles.common_sense, roles.CommonSenseSettings),
    ("arithmetic", "Math", roles.arithmetic, roles.ArithmeticSettings),
    ("commonsense-qa", "CommonsenseQA", questions.commonsense_qa, questions.CommonsenseQASettings),
    ("gsm8k", "GSM8K", questions.gsm8k, questions.Gsm8kSettings),
    ("openmath", "OpenMathInstruct-2", questions.openmath, questions.OpenMathSettings),
    ("big-bench", "BIG-bench", questions.big_bench, questions.BigBenchSettings),
    ("word-problems", "Word problems", problems.word_problems, problems.WordProblemSettings),
    ("math-500", "MATH-500", problems.math_500, problems.Math500Settings),
    ("needle", "Needle in a haystack", needle, NeedleSettings),
    ("problems", "Problems from a file", problems.problems, problems.ProblemFileSettings),
    ("jsonl", "JSON Lines", own_files.jsonl, None),
    ("circuit", "Clean and corrupt prompts", own_files.clean_corrupt, None),
    ("hub", "Hugging Face data set", hub.hub, hub.HubSettings),
    ("lm-eval", "Benchmark of lm-eval", lm_eval_docs, LmEvalSettings),
    ("cogqa", "CogQA", cogqa, SkillSettings),
    *SKILL_TASKS,
)
for _key, _name, _factory, _config in _OURS:
    TASKS.register(_key, _name, config=_config)(_factory)


def make_task(spec: str | os.PathLike[str] | Task, model: Any, **settings: Any) -> Task:
    """Make a task from its name or from the path of a file; a ready task is passed through.

    `model` is the model that will be asked, or its tokenizer: tasks fit their words to its tokens.
    All settings of the task, chosen or default, are kept in its `parameters`.

    >>> from headcount import load_model, make_task
    >>> task = make_task("ioi", load_model("smollm2-135m-q4"), n=100)
    >>> len(task.split("ranking")) + len(task.split("test"))
    100
    """
    if isinstance(spec, Task):
        if settings:
            raise HeadcountError(
                f'The task "{spec.name}" is already made: settings ({", ".join(settings)}) can '
                "be given only together with the name of a task."
            )
        return spec
    tokenizer = getattr(model, "tokenizer", model)
    if not callable(getattr(tokenizer, "encode", None)):
        raise HeadcountError(
            f"A task is made for a model or a tokenizer, not for a {type(model).__name__}."
        )
    return task_factory(spec, **settings)(tokenizer)


def task_factory(spec: str | os.PathLike[str], **settings: Any) -> Callable[[Tokenizer], Task]:
    """A function that makes the task; unknown names and settings and missing files are refused."""
    entry, parameters = _bound(spec, settings)
    key = entry.key
    for name in ("path", "test"):  # refuse a missing file before a model is loaded
        if path := parameters.get(name):
            _check_there(path, key)
    own = entry.arguments(parameters)

    def make(tokenizer: Tokenizer) -> Task:
        made = check_made(f'the task "{key}"', entry.function(tokenizer, **own), Task)
        # What the factory decided for this tokenizer is recorded with the settings.
        return replace(made, parameters={**parameters, **made.parameters})

    return make


def _check_there(path: str, key: str) -> None:
    if key == "hub" or hub.on_hub(path):
        hub.require_datasets()
    elif not (key == "big-bench" and Path(path).is_dir()):
        with opened(Path(path)):
            pass


def check_file(
    spec: str | os.PathLike[str],
    settings: Mapping[str, Any],
    *,
    foils_for: str = "",
    corrupted: bool = False,
) -> None:
    """Refuse a file of examples that lacks foils for this metric, or corrupted prompts.

    It is read as it is written, before a tokenizer is known. What other tasks have is known only
    when they are made.
    """
    entry, parameters = _bound(spec, settings)
    if entry.key not in ("jsonl", "circuit"):
        return
    examples = entry.function(None, **parameters).examples
    if foils_for and not any(example.foils for example in examples):
        raise no_foil(examples[0], foils_for)
    if corrupted and all(example.corrupted is None for example in examples):
        raise no_corrupted(examples[0])


def _bound(
    spec: str | os.PathLike[str], settings: Mapping[str, Any]
) -> tuple[Factory[Task], dict[str, Any]]:
    """The factory of a name or of a file, and all its settings; unknown ones are refused."""
    key = os.fspath(spec)
    if key.endswith(".json"):
        key, settings = "circuit", {"path": key, **settings}
    elif key.endswith(".jsonl") or os.path.basename(key) != key:
        key, settings = "jsonl", {"path": key, **settings}
    return TASKS[key], TASKS[key].bind(**settings)
