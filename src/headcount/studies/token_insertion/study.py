"""Study `token-insertion`: the effect of meaningless and meaningful tokens in a prompt.

After "Meaningless Tokens, Meaningful Gains" (Shi et al., arXiv 2510.01032), Figure 10. Each problem
is asked three times: unchanged, with 55 tokens of "/" after the instruction, and with 55 of "he".
The answers are graded; on some of the prompts, attention and activations are read.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.errors import HeadcountError, counted
from headcount.heads import Head
from headcount.metrics.chance import chance_of
from headcount.models.model import Model
from headcount.report.estimates import plain_facts
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import (
    Description,
    Results,
    StudyRequest,
    text_metric,
)
from headcount.studies.token_insertion.config import PRESETS, Config
from headcount.studies.token_insertion.estimates import estimate
from headcount.studies.token_insertion.figure import draw, profile_facts
from headcount.studies.token_insertion.grading import (
    NOTHING,
    Condition,
    Graded,
    GradeRequest,
    conditions,
    decoding_note,
    problem_factory,
    problems,
    sampled_runs,
    swept_conditions,
    task_label,
)
from headcount.studies.token_insertion.internals import Internals, InternalsRequest, change_rows
from headcount.studies.token_insertion.panels import COLUMNS, PROBLEMS, PROMPTS, SHARED
from headcount.tasks import Task
from headcount.tasks.inserts import with_insert
from headcount.value_table import ValueTable

PLACED = {  # in captions
    "before": "before the instruction",
    "between": "between instruction and problem",
    "end": "after the problem",
    "random": "at a random place of each prompt",
    "none": "at no place",
}


def describe(models: Sequence[Model], config: Config) -> Description:
    """All problems under all conditions; on the first task also the internals, and the sweep."""
    study = _TokenInsertion(models, config)
    requests = study.requests()
    sayings: dict[Hashable, str] = {
        (number, Condition("w/o")): f"{model.name}, {task.name}: "
        f"{counted(len(task), 'problem')}, {counted(len(sampled_runs(model, config)), 'run')} each"
        for number, (model, task) in enumerate(study.rounds)
    }
    return Description(requests, study.conclude, sayings=sayings)


def check(config: Config) -> None:
    """Refuse tasks and metrics that do not exist."""
    text_metric(config.accuracy, "maths").require()
    for spec in config.tasks:
        problem_factory(spec, config)


class _TokenInsertion:
    """The study: its requests for each model and task, and its conclusions.

    A model's first task makes the figure and the claims, and its internals are read. The sweep is
    measured for the first model on the first task only.
    """

    def __init__(self, models: Sequence[Model], config: Config) -> None:
        self.models, self.config = models, config
        self.metric = text_metric(config.accuracy, "maths")
        self.conditions, self.swept = conditions(config), swept_conditions(config)
        self.rounds: list[tuple[Model, Task]] = []
        self.left_out: list[str] = []
        for model in models:
            if config.layer >= (layers := len(model.layout.counts)):
                raise HeadcountError(
                    f"There is no layer {config.layer}: {model.name} has attention layers 0 to "
                    f"{layers - 1}."
                )
            model.layout.number(Head(config.layer, max(config.head, 0)))  # refuses others
            for spec in config.tasks:
                task, notes = problems(model, spec, config)
                self.rounds.append((model, task))
                self.left_out += notes
        for (name, task_name), times in Tally((m.name, t.name) for m, t in self.rounds).items():
            if times > 1:
                raise HeadcountError(
                    f"{name} would be asked {task_name} {times} times under one name: give models "
                    "and files of problems different names."
                )

    def requests(self) -> dict[Hashable, StudyRequest]:
        """Grades under each condition, the internals, and grades of the sweep, in this order."""
        config = self.config
        requests: dict[Hashable, StudyRequest] = {}
        for number, (model, task) in enumerate(self.rounds):
            named = [model.layout.parse(head) for head in config.heads]
            gates = model.layout.gates(keep=named) if config.keep else model.layout.gates(off=named)

            for condition in self.conditions:
                requests[number, condition] = self._grading(model, task, condition, gates)
            if config.prompts and number in self.firsts:
                inserts = {s: insert for s, insert in config.inserts().items() if not insert.empty}
                where = config.layer, config.head
                requests[number, "internals"] = InternalsRequest(
                    model, self._read(task), inserts, *where, gates, config.sinks
                )
            for condition in self.swept if number == 0 else ():
                requests[number, condition] = self._grading(model, task, condition, gates)
        return requests

    def _grading(
        self, model: Model, task: Task, condition: Condition, gates: Float[np.ndarray, "heads"]
    ) -> GradeRequest:
        changed = with_insert(task, model.tokenizer, condition.insert)
        return GradeRequest(model, changed, condition, gates, self.metric, self.config)

    @property
    def firsts(self) -> range:
        """The numbers of the rounds with a model's first task."""
        return range(0, len(self.rounds), len(self.config.tasks))

    def _read(self, task: Task) -> Task:
        """The problems of a task whose prompts are read."""
        return task.subset(min(self.config.prompts, len(task)))

    def conclude(self, results: Results) -> Study:
        """Make estimates and figures from the values and facts of the results."""
        graded = [*self._graded(results)]
        internals: dict[int, Internals] = {
            n: results[n, "internals"] for n in self.firsts if (n, "internals") in results
        }
        values = self._values(graded, internals)
        facts = plain_facts(self._facts(graded, internals))
        found = estimate(values, facts)
        models = {model.name: model.facts for model in self.models}
        figures, captions = draw(values, facts, found, models)
        heads: list[dict[str, Any]] = []
        for number, inside in internals.items():
            task = self.rounds[number][1]
            heads += change_rows(inside, task.name, self._read(task).clusters)
        notes = [*found.notes, *self.left_out, *_cut_off(facts["truncated"])]
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {', '.join(models)}",
            rows=found.rows,
            claims=found.claims,
            figures=figures,
            captions=captions,
            settings=self._settings(),
            model=models,
            heads=heads,
            notes=list(dict.fromkeys([*notes, *self._notes([*internals.values()])])),
            tables=found.tables,
            values=values,
            facts=facts,
        )

    def _graded(self, results: Results) -> Iterator[tuple[int, str, Graded]]:
        """The number of the round, the name of the series, and its grades."""
        for number in range(len(self.rounds)):
            for condition in self.conditions:
                yield number, condition.series, results[number, condition]
            for condition in self.swept if number == 0 else ():
                series = f"{condition.series}, by {self.config.sweep}"
                yield number, series, results[number, condition]

    def _values(
        self, graded: Sequence[tuple[int, str, Graded]], internals: Mapping[int, Internals]
    ) -> ValueTable:
        """The grade of every problem, and what was read on every prompt."""
        values = ValueTable(COLUMNS, SHARED)
        for number, (model, task) in enumerate(self.rounds):
            about: dict[str, Any] = {"model": model.name, "task": task.name}
            samples = {PROBLEMS: task} | (
                {PROMPTS: self._read(task)} if number in internals else {}
            )
            for sample, chosen in samples.items():
                named = [(e.id, *e.cluster) for e in chosen]
                values.name_examples(named, **about, sample=sample)
            about |= {"sample": PROBLEMS, "metric": self.metric.key, "queries": "", "where": ""}
            for of, series, grades in graded:
                if of == number:
                    insert = grades.insert
                    own = {"series": series, "count": insert.length, "place": insert.place}
                    values.put(grades.right, **about | own)
        for number, inside in internals.items():
            model, task = self.rounds[number]
            about = {"model": model.name, "task": task.name, "sample": PROMPTS}
            for (series, metric, queries, where), numbers in inside.entries():
                insert = self.config.inserts().get(series, NOTHING)
                about |= {"count": insert.length, "place": insert.place, "queries": queries}
                values.put(numbers, **about, series=series, metric=metric, where=where)
        return values

    def _facts(
        self, graded: Sequence[tuple[int, str, Graded]], internals: Mapping[int, Internals]
    ) -> dict[str, Any]:
        """What estimates need besides the values."""
        config = self.config
        chance: dict[str, dict[str, Any]] = {}
        for model, task in self.rounds if not config.heads else ():
            if (level := chance_of(self.metric, task)) is not None:
                chance.setdefault(model.name, {})[task.name] = asdict(level)
        tasks = [task.name for _, task in self.rounds[: len(config.tasks)]]
        return {
            "models": [model.name for model in self.models],
            "tasks": dict(zip(tasks, map(task_label, config.tasks), strict=True)),
            "metric": {"key": self.metric.key, "name": self.metric.name},
            "greedy": not any(
                run.temperature for model in self.models for run in sampled_runs(model, config)
            ),
            **({"decoding": "model"} if config.decoding == "model" else {}),
            "insert": f'{counted(config.length, "token")} of "{config.meaningless}" (Mless) or '
            f'"{config.meaningful}" (Mful) {PLACED[config.position]}',
            "sweep": config.sweep,
            "chance": chance,
            "truncated": [
                {
                    "model": self.rounds[number][0].name,
                    "task": self.rounds[number][1].name,
                    "series": series,
                    "count": one.insert.length,
                    "place": one.insert.place,
                    "truncated": one.truncated,
                    "of": one.right.size,
                }
                for number, series, one in graded
            ],
            "inside": {
                one.model: {
                    "head": str(one.head),
                    "layer": one.layer,
                    "layers": len(one.layout.counts),
                    "choosing": list(one.choosing),
                }
                for one in internals.values()
            },
            "profiles": {
                one.model: profile_facts(one, config.sinks)
                for one in internals.values()
                if one.drawn
            },
        }

    def _settings(self) -> dict[str, Any]:
        """The config, with the version of the grader and all settings of redistribution."""
        settings, last = asdict(self.config), self.conditions[-1].redistribution
        task_settings = settings.pop("task_settings")
        return {
            **settings,
            "accuracy": {"key": self.metric.key, "identity": self.metric.identity()},
            "redistribution": None if last is None else last.identity,
            "task": task_settings or {},
        }

    def _notes(self, known: Sequence[Internals]) -> list[str]:
        """Notes for readers of the paper: how this run differs from it, and its limits."""
        config = self.config
        notes = [
            f'The insert has {counted(config.length, "token")}; its place is "{config.position}". '
            "Prompt and insert are joined as token ids, so every condition keeps the token ids of "
            "the original prompt.",
            "The published gains are about two points. One baseline differs by more than that "
            "between the paper's own tables (35.4, 41.8, 43.0).",
            "In layer 0, queries and keys of the problem's tokens do not change, so by the softmax "
            "alone the added keys scale down the attention among these tokens: lower peaks there "
            "say nothing about the model. In other layers queries and keys change as well.",
            "A uniform reader attends to all tokens up to its own equally. It shows what peaks and "
            "weights owe to position alone.",
        ]
        if config.sinks:
            first = "token" if config.sinks == 1 else f"{config.sinks} tokens"
            notes.append(f"Left out of all profiles, as a sink: the first {first}.")
        if config.decoding == "model":
            notes += map(decoding_note, self.models)
        if config.heads:
            kept = "kept" if config.keep else "off"
            notes.append(f"Heads {kept} throughout: {' '.join(config.heads)}.")
        return notes + [
            f"{inside.model}: head {inside.head} was chosen on "
            f"{counted(len(inside.choosing), 'prompt')}, where inserts change it most, and is "
            "drawn and judged on the others. Means over layers are those of all prompts."
            for inside in known
            if inside.choosing
        ]


def _cut_off(truncated: Sequence[Mapping[str, Any]]) -> list[str]:
    """A note for each task with answers that were cut off at the limit of new tokens."""
    by_task: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in truncated:
        by_task.setdefault((one["model"], one["task"]), []).append(one)
    return [
        f"{model}, {task}: answers that were cut off at the limit of new tokens: "
        + ", ".join(f"{one['truncated']} of {one['of']} {one['series']}" for one in several)
        + "."
        for (model, task), several in by_task.items()
        if any(one["truncated"] for one in several)
    ]


KIND = StudyKind(
    "token-insertion", describe, Config, PRESETS, check=check, estimate=estimate, draw=draw
)
