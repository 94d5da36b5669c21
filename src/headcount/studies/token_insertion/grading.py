"""Grading: problems are asked under a condition, and the answers are graded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.write.settings import own_sampling
from headcount.engine.write.writing import Sampled, Writing
from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.metrics import TextMetric, Written
from headcount.models.model import Model
from headcount.registry import settings_of
from headcount.studies.token_insertion.activations import ActivationRedistribution
from headcount.studies.token_insertion.config import Config, task_name
from headcount.tasks import TASKS, Task, encode, task_factory
from headcount.tasks.inserts import LENGTHS, PLACES, Insert
from headcount.tasks.json_files import records
from headcount.tasks.task import Tokenizer

NOTHING = Insert(length=0, place="none")
MATH_500 = "math-500"


@dataclass(frozen=True)
class Condition:
    """How problems are asked: with which insert, and whether activations are redistributed."""

    series: str
    insert: Insert = NOTHING
    redistribution: ActivationRedistribution | None = None


def conditions(config: Config) -> list[Condition]:
    """The conditions of the figure: no insert, each of the two inserts, and redistribution."""
    shown = [Condition("w/o"), *(Condition(*pair) for pair in config.inserts().items())]
    if config.redistribution:
        variant: Any = config.redistribution  # an unknown variant is refused there
        redistribution = ActivationRedistribution(variant, config.arm_c, config.arm_p1)
        shown.append(Condition("ARM", NOTHING, redistribution))
    return shown


def swept_conditions(config: Config) -> list[Condition]:
    """The conditions of the sweep: both inserts with every length, or at every place."""
    varied: dict[str, list[dict[str, Any]]] = {
        "length": [{"length": length} for length in LENGTHS],
        "position": [{"place": place} for place in PLACES],
    }
    return [
        Condition(series, replace(insert, **change))
        for series, insert in config.inserts().items()
        for change in varied.get(config.sweep, ())
    ]


def problem_factory(spec: str, config: Config) -> Callable[[Tokenizer], Task]:
    """What makes a task of problems for a tokenizer; refuses what does not exist."""
    name = task_name(spec)
    own = TASKS[name].defaults()
    given = settings_of(config.task_settings, spec)
    settings = {key: value for key, value in given.items() if key in own}
    return task_factory(name, **({"path": spec} if name != spec else {}) | settings)


def task_label(spec: str) -> str:
    """What titles call a task: its registered name, or that of well-known problems in a file.

    >>> task_label("word-problems"), task_label("math-500")
    ('word problems', 'MATH-500')
    """
    name = task_name(spec)
    label = TASKS[MATH_500 if name != spec and _is_math_500(spec) else name].name
    return label.lower() if label[1:].islower() else label


def _is_math_500(path: str) -> bool:
    """Whether the records of a file have the layout of MATH-500, and are not more than 500."""
    known = [record for _, record in records(path, "problem records")]
    return len(known) <= 500 and all(
        {"problem", "subject", "level"} <= record.keys()
        and str(record.get("unique_id", "")).startswith("test/")
        for record in known
    )


def problems(model: Model, spec: str, config: Config) -> tuple[Task, list[str]]:
    """The problems of a task that are asked, and notes on those that are left out."""
    task = problem_factory(spec, config)(model.tokenizer)
    if task.until != "boxed" or len(task.examples[0].pieces) != 2:
        raise HeadcountError(
            f'The task "{task.name}" has no problems whose answer is in a box: choose '
            "word-problems, math-500 or a file of problems."
        )
    task, notes = _fitting(model, task, config)
    if config.leave_out:
        if config.leave_out >= len(task):
            raise HeadcountError(
                f"{task.name} has {len(task)} problems: leave out fewer than that, not "
                f"{config.leave_out}."
            )
        former = {example.id for example in task.subset(config.leave_out)}
        task = replace(task, examples=tuple(e for e in task.examples if e.id not in former))
        notes.append(
            f"{task.name}: the {len(former)} problems that --n {len(former)} takes are left out; "
            f"{len(task)} others remain."
        )
    return task.subset(config.n) if 0 < config.n < len(task) else task, notes


def _fitting(model: Model, task: Task, config: Config) -> tuple[Task, list[str]]:
    """The problems that fit into the model with the longest insert, and a note on the others."""
    limit = model.context_limit
    if limit is None:
        return task, []
    room = limit + 1 - task.max_new_tokens - config.longest  # the last token is never input
    fits = {e.example.id for e in encode(task, model.tokenizer) if len(e.prompt) <= room}
    if not fits:
        raise HeadcountError(
            f"No problem of {task.name} fits into the {limit} tokens that {model.name} can "
            f"read, with {config.longest} inserted and {task.max_new_tokens} new tokens: ask "
            "for fewer inserted or new tokens."
        )
    if len(fits) == len(task):
        return task, []
    note = (
        f"{len(task) - len(fits)} of {len(task)} problems of {task.name} are left out, "
        f"because prompt, insert and answer do not fit into {limit} tokens."
    )
    return replace(task, examples=tuple(e for e in task.examples if e.id in fits)), [note]


def sampled_runs(model: Model, config: Config) -> list[Sampled]:
    """How each run draws tokens; there is one if decoding is greedy, as runs would be equal."""
    how = Sampled(config.temperature, config.top_p)
    if config.decoding == "model":
        how, _ = own_sampling(model)
    return [replace(how, seed=seed) for seed in range(config.seeds if how.temperature else 1)]


def decoding_note(model: Model) -> str:
    """How a model's own generation settings decode, as a sentence."""
    how, lacking = own_sampling(model)
    if not how.temperature:
        return f"{model.name} decodes greedily, as its own settings say."
    but = f" Its {' and '.join(lacking)} is not used." if lacking else ""
    return (
        f"{model.name} draws tokens by its own settings: temperature {how.temperature:g}, top_p "
        f"{how.top_p:g}.{but}"
    )


@dataclass(frozen=True, eq=False)
class Graded:
    """The grade of each run and problem of a condition, and the number of texts cut off."""

    condition: Condition
    right: Float[np.ndarray, "seeds problems"]
    truncated: int

    @property
    def insert(self) -> Insert:
        """The insert; all empty inserts are `NOTHING`."""
        return NOTHING if self.condition.insert.empty else self.condition.insert


@dataclass(frozen=True, eq=False)
class GradeRequest:
    """A request for the grades of a model's answers under a condition, once for each run."""

    model: Model
    task: Task
    condition: Condition
    gates: Float[np.ndarray, "heads"]
    metric: TextMetric
    config: Config

    @cached_property
    def writings(self) -> list[Writing]:
        """What is written: one `Writing` for each run."""
        sets = HeadSets.of(self.gates[None], self.model.layout)
        return [
            Writing(
                self.model,
                self.task,
                sets,
                split="all",
                sampled=sampled,
                redistribution=self.condition.redistribution,
            )
            for sampled in sampled_runs(self.model, self.config)
        ]

    def count(self, counter: Counter) -> None:
        """Count the texts that will be written."""
        for writing in self.writings:
            counter.writing(writing)

    def result(self, lab: Lab) -> Graded:
        """Let the model answer, and grade the answers."""
        right, truncated = [], 0
        for writing in self.writings:
            answers = lab.write(writing)
            texts = answers.of(0)
            right.append(self.metric.score(Written.of(self.task, texts, texts)))
            truncated += int((answers.finished == 0).sum())
        return Graded(self.condition, np.stack(right), truncated)
