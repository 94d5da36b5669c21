"""Grading: problems are asked under a condition, and the answers are graded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.write.writing import Sampled, Writing
from headcount.errors import HeadcountError
from headcount.lab import Lab
from headcount.metrics import TextMetric, Written
from headcount.metrics.chance import Chance
from headcount.models.model import Model
from headcount.report.curve_study import value_rows
from headcount.stats import Interval, accuracy_interval, paired_difference, wilson
from headcount.studies.description import columns
from headcount.studies.token_insertion.activations import ActivationRedistribution
from headcount.studies.token_insertion.config import Config, task_name
from headcount.tasks import TASKS, Task, encode, task_factory
from headcount.tasks.inserts import LENGTHS, PLACES, Insert
from headcount.tasks.task import Tokenizer

NOTHING = Insert(length=0, place="none")


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
    settings = {key: value for key, value in (config.task_settings or {}).items() if key in own}
    return task_factory(name, **({"path": spec} if name != spec else {}) | settings)


def problems(model: Model, spec: str, config: Config) -> tuple[Task, list[str]]:
    """The problems of a task that fit into the model with the longest insert; notes on others."""
    task = problem_factory(spec, config)(model.tokenizer)
    if task.until != "boxed" or len(task.examples[0].pieces) != 2:
        raise HeadcountError(
            f'The task "{task.name}" has no problems whose answer is in a box: choose '
            "word-problems, math-500 or a file of problems."
        )
    notes = []
    limit = model.context_limit
    if limit is not None:
        room = limit + 1 - task.max_new_tokens - config.longest  # the last token is never input
        fits = {e.example.id for e in encode(task, model.tokenizer) if len(e.prompt) <= room}
        if not fits:
            raise HeadcountError(
                f"No problem of {task.name} fits into the {limit} tokens that {model.name} can "
                f"read, with {config.longest} inserted and {task.max_new_tokens} new tokens: ask "
                "for fewer inserted or new tokens."
            )
        if len(fits) < len(task):
            notes.append(
                f"{len(task) - len(fits)} of {len(task)} problems of {task.name} are left out, "
                f"because prompt, insert and answer do not fit into {limit} tokens."
            )
            task = replace(task, examples=tuple(e for e in task.examples if e.id in fits))
    return task.subset(config.n) if 0 < config.n < len(task) else task, notes


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
        sets, config = HeadSets.of(self.gates[None], self.model.layout), self.config
        return [
            Writing(
                self.model,
                self.task,
                sets,
                split="all",
                sampled=Sampled(config.temperature, config.top_p, seed),
                redistribution=self.condition.redistribution,
            )
            for seed in range(config.runs)
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


@dataclass(frozen=True, eq=False)
class Outcome:
    """The grades of one model on one task: by series, and of the sweep."""

    model: str
    task: str
    metric: str
    clusters: Int[np.ndarray, "problems"]
    graded: Mapping[str, Graded]
    swept: Sequence[Graded] = ()
    sweep: str = ""  # what varies in `swept`: length or position
    chance: Chance | None = None  # on this task, unless heads are off

    @property
    def at_chance(self) -> str:
        """One sentence if the answers without an insert are not clearly better than chance."""
        whole = self.accuracy(self.graded["w/o"])
        return "" if self.chance is None else self.chance.sentence(whole, "accuracy")

    def accuracy(self, graded: Graded) -> Interval:
        """The share of right answers."""
        return accuracy_interval(graded.right, clusters=self.clusters)

    def difference(self, series: str) -> Interval:
        """The accuracy under a condition minus that without an insert, paired by problem.

        If no grade changes, the resamples have no spread. The interval then comes from Wilson's
        bound for 0 changes in n problems.
        """
        with_it, without = self.graded[series].right, self.graded["w/o"].right
        interval = paired_difference(with_it, without, clusters=self.clusters)
        if interval.known and interval.high - interval.low < 1e-12:
            value, most = interval.value, wilson(0, interval.n).high
            return Interval(value, value - most, value + most, interval.n)
        return interval

    def rows(self) -> list[dict[str, Any]]:
        """The tidy table: accuracies, differences to no insert, and the sweep."""
        rows = [self._row(graded, self.accuracy(graded)) for graded in self.graded.values()]
        for series, graded in self.graded.items():
            if series != "w/o":
                row = self._row(graded, self.difference(series))
                rows.append(row | {"series": f"{series} minus w/o", "truncated": 0})
        for graded in self.swept:
            rows.append(self._row(graded, self.accuracy(graded)) | {"series": self._swept(graded)})
        return rows

    def values(self) -> list[dict[str, Any]]:
        """The grade of every problem; the column "draw" is the run."""
        facts = {"model": self.model, "task": self.task, "metric": self.metric}
        named = [*self.graded.items(), *((self._swept(graded), graded) for graded in self.swept)]
        rows = []
        for series, graded in named:
            facts["place"] = graded.insert.place
            raw = {(series, graded.insert.length): graded.right}
            rows += value_rows(raw, self.clusters, **facts)
        return rows

    def _swept(self, graded: Graded) -> str:
        return f"{graded.condition.series}, by {self.sweep}"

    def _row(self, graded: Graded, interval: Interval) -> dict[str, Any]:
        seeds, problems = graded.right.shape
        return {
            "model": self.model,
            "task": self.task,
            "series": graded.condition.series,
            "metric": self.metric,
            "count": graded.insert.length,
            "place": graded.insert.place,
            **columns(interval),
            "n": problems,
            "seeds": seeds,
            "truncated": graded.truncated,
        }
