"""Study `token-insertion`: the effect of meaningless and meaningful tokens in a prompt.

After "Meaningless Tokens, Meaningful Gains" (Shi et al., arXiv 2510.01032), Figure 10. Each problem
is asked three times: unchanged, with 55 tokens of "/" after the instruction, and with 55 of "he".
The answers are graded; on some of the prompts, attention and activations are read.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.errors import HeadcountError, counted
from headcount.heads import Head
from headcount.metrics.chance import chance_of
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import (
    Description,
    Results,
    StudyRequest,
    text_metric,
)
from headcount.studies.token_insertion.claims import judge_claims
from headcount.studies.token_insertion.config import PRESETS, Config
from headcount.studies.token_insertion.figure import draw
from headcount.studies.token_insertion.grading import (
    Condition,
    GradeRequest,
    Outcome,
    conditions,
    problem_factory,
    problems,
    swept_conditions,
)
from headcount.studies.token_insertion.internals import (
    Internals,
    InternalsRequest,
    activation_rows,
    affine_rows,
    change_rows,
)
from headcount.tasks import Task
from headcount.tasks.inserts import with_insert


def describe(models: Sequence[Model], config: Config) -> Description:
    """All problems under all conditions; on the first task also the internals, and the sweep."""
    study = _TokenInsertion(models, config)
    requests = study.requests()
    sayings: dict[Hashable, str] = {
        (number, Condition("w/o")): f"{model.name}, {task.name}: "
        f"{counted(len(task), 'problem')}, {counted(config.runs, 'run')} each"
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

    def requests(self) -> dict[Hashable, StudyRequest]:
        """Grades under each condition, the internals, and grades of the sweep, in this order."""
        config = self.config
        requests: dict[Hashable, StudyRequest] = {}
        for number, (model, task) in enumerate(self.rounds):
            named = [model.layout.parse(head) for head in config.heads]
            gates = model.layout.gates(keep=named) if config.keep else model.layout.gates(off=named)

            for condition in self.conditions:
                requests[number, condition] = self._grading(model, task, condition, gates)
            if config.prompts and number % len(config.tasks) == 0:
                read = task.subset(min(config.prompts, len(task)))
                inserts = {s: insert for s, insert in config.inserts().items() if not insert.empty}
                where = config.layer, config.head
                requests[number, "internals"] = InternalsRequest(
                    model, read, inserts, *where, gates, config.sinks
                )
            for condition in self.swept if number == 0 else ():
                requests[number, condition] = self._grading(model, task, condition, gates)
        return requests

    def _grading(
        self, model: Model, task: Task, condition: Condition, gates: Float[np.ndarray, "heads"]
    ) -> GradeRequest:
        changed = with_insert(task, model.tokenizer, condition.insert)
        return GradeRequest(model, changed, condition, gates, self.metric, self.config)

    def conclude(self, results: Results) -> Study:
        """Make rows, claims, tables and figures from the results."""
        outcomes = [self._outcome(number, results) for number in range(len(self.rounds))]
        firsts = range(0, len(self.rounds), len(self.config.tasks))
        drawn = [outcomes[number] for number in firsts]
        internals = [results.get((number, "internals")) for number in firsts]
        known = [inside for inside in internals if inside is not None]
        tables = {
            "Affine check": [row for inside in known for row in affine_rows(inside)],
            "Activations of layer 0": [row for inside in known for row in activation_rows(inside)],
        }
        judged = [judge_claims(*pair) for pair in zip(drawn, internals, strict=True)]
        facts = {model.name: model.facts for model in self.models}
        notes = [f"{o.model}, {o.task}: {o.at_chance}" for o in outcomes if o.at_chance]
        notes += self.left_out
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {', '.join(facts)}",
            rows=[row for outcome in outcomes for row in outcome.rows()],
            claims=[claim for claims in judged for claim in claims],
            figures=draw(drawn, internals[0], self.config, self.metric),
            settings=self._settings(),
            model=facts,
            heads=[row for inside in known for row in change_rows(inside, self.config.tasks[0])],
            notes=list(dict.fromkeys([*notes, *_cut_off(outcomes), *self._notes(known)])),
            tables={title: rows for title, rows in tables.items() if rows},
            values=[row for outcome in outcomes for row in outcome.values()],
        )

    def _outcome(self, number: int, results: Results) -> Outcome:
        model, task = self.rounds[number]
        return Outcome(
            model.name,
            task.name,
            self.metric.key,
            task.clusters,
            {condition.series: results[number, condition] for condition in self.conditions},
            [results[number, condition] for condition in self.swept if number == 0],
            self.config.sweep,
            None if self.config.heads else chance_of(self.metric, task),
        )

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
            "between the paper's own tables (35.4, 41.8, 43.0). An interval that includes zero "
            "neither supports nor refutes the gain.",
            "In layer 0, queries and keys of the problem's tokens do not change, so by the softmax "
            "alone the added keys scale down the attention among these tokens: lower peaks there "
            "say nothing about the model. In other layers queries and keys change as well.",
        ]
        for inside in known:
            mean = f"the mean over {inside.aligned} prompts of one length"
            mean = mean if inside.aligned > 1 else "those of a single prompt"
            notes.append(f"{inside.model}: the profiles of head {inside.head} are {mean}.")
        if config.sinks:
            notes.append(
                f"Left out of all profiles as sinks: the first {counted(config.sinks, 'token')}."
            )
        if config.heads:
            kept = "kept" if config.keep else "off"
            notes.append(f"Heads {kept} throughout: {' '.join(config.heads)}.")
        return notes + [
            f"{inside.model}: head {inside.head} was chosen because it changes most on these same "
            "prompts, and the intervals of its claims ignore that choice: they are too optimistic."
            for inside in known
            if inside.chosen
        ]


def _cut_off(outcomes: Sequence[Outcome]) -> list[str]:
    """A note for each task with answers that were cut off at the limit of new tokens."""
    notes = []
    for outcome in outcomes:
        cut = [f"{g.truncated} of {g.right.size} {s}" for s, g in outcome.graded.items()]
        if any(graded.truncated for graded in outcome.graded.values()):
            limit = "answers that were cut off at the limit of new tokens"
            notes.append(f"{outcome.model}, {outcome.task}: {limit}: {', '.join(cut)}.")
    return notes


KIND = StudyKind("token-insertion", describe, Config, PRESETS, check=check)
