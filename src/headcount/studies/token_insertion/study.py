"""Study `token-insertion`: what meaningless and meaningful tokens in a prompt do.

After "Meaningless Tokens, Meaningful Gains" (Shi et al., arXiv 2510.01032), Figure 10. Each problem
is asked three times: as it is, with 55 tokens of "/" behind the instruction, and with 55 of "he".
The answers are graded; on some of the prompts, one head's attention is looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.heads import Head
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
    problems,
    swept_conditions,
)
from headcount.studies.token_insertion.look import (
    Look,
    LookRequest,
    activation_rows,
    affine_rows,
    change_rows,
)
from headcount.tasks import Task
from headcount.tasks.inserts import with_insert


def describe(models: Sequence[Model], config: Config) -> Description:
    """All problems under all conditions; on the first task also a look inside, and a sweep."""
    study = _TokenInsertion(models, config)
    requests = study.requests()
    sayings: dict[Hashable, str] = {
        (number, Condition("w/o")): f"{model.name}, {task.name}: {len(task)} problems, "
        f"{config.runs} run(s) each"
        for number, (model, task) in enumerate(study.rounds)
    }
    return Description(requests, study.conclude, sayings=sayings)


class _TokenInsertion:
    """The study: what is asked of each model on each task, and what comes out.

    A model's first task makes the figure and the claims, and is looked at inside. The sweep is that
    of the first model on its first task alone.
    """

    def __init__(self, models: Sequence[Model], config: Config) -> None:
        self.models, self.config = models, config
        self.metric = text_metric(config.accuracy, "maths")
        self.metric.require()
        self.conditions, self.swept = conditions(config), swept_conditions(config)
        self.rounds: list[tuple[Model, Task]] = []
        self.left_out: list[str] = []
        for model in models:
            model.layout.number(Head(config.layer, max(config.head, 0)))  # refuses what is not
            for spec in config.tasks:
                task, notes = problems(model, spec, config)
                self.rounds.append((model, task))
                self.left_out += notes

    def requests(self) -> dict[Hashable, StudyRequest]:
        """Grades under each condition, a look, and grades of the sweep, in this order."""
        config = self.config
        requests: dict[Hashable, StudyRequest] = {}
        for number, (model, task) in enumerate(self.rounds):
            named = [model.layout.parse(head) for head in config.heads]
            gates = model.layout.gates(keep=named) if config.keep else model.layout.gates(off=named)

            for condition in self.conditions:
                requests[number, condition] = self._grading(model, task, condition, gates)
            if config.prompts and number % len(config.tasks) == 0:
                some = task.subset(min(config.prompts, len(task)))
                inserts = {s: insert for s, insert in config.inserts().items() if not insert.empty}
                where = config.layer, config.head
                requests[number, "look"] = LookRequest(
                    model, some, inserts, *where, gates, config.sinks
                )
            for condition in self.swept if number == 0 else ():
                requests[number, condition] = self._grading(model, task, condition, gates)
        return requests

    def _grading(
        self, model: Model, task: Task, condition: Condition, gates: Float[np.ndarray, "heads"]
    ) -> GradeRequest:
        asked = with_insert(task, model.tokenizer, condition.insert)
        return GradeRequest(model, asked, condition, gates, self.metric, self.config)

    def conclude(self, results: Results) -> Study:
        """Rows, claims, tables and figures."""
        outcomes = [self._outcome(number, results) for number in range(len(self.rounds))]
        firsts = range(0, len(self.rounds), len(self.config.tasks))
        drawn = [outcomes[number] for number in firsts]
        looks = [results.get((number, "look")) for number in firsts]
        seen = [look for look in looks if look is not None]
        tables = {
            "Affine check": [row for look in seen for row in affine_rows(look)],
            "Activations of layer 0": [row for look in seen for row in activation_rows(look)],
        }
        judged = [judge_claims(*pair) for pair in zip(drawn, looks, strict=True)]
        facts = {model.name: model.facts for model in self.models}
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {', '.join(facts)}",
            rows=[row for outcome in outcomes for row in outcome.rows()],
            claims=[claim for claims in judged for claim in claims],
            figures=draw(drawn, looks[0], self.config, self.metric),
            settings=self._settings(),
            model=facts,
            heads=[row for look in seen for row in change_rows(look, self.config.tasks[0])],
            notes=list(dict.fromkeys([*self.left_out, *self._notes(seen)])),
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
            {asked.series: results[number, asked] for asked in self.conditions},
            [results[number, asked] for asked in self.swept if number == 0],
            self.config.sweep,
        )

    def _settings(self) -> dict[str, Any]:
        """The config, with what became of it: the grader's version, and all of redistribution."""
        settings, last = asdict(self.config), self.conditions[-1].redistribution
        task_settings = settings.pop("task_settings")
        return {
            **settings,
            "accuracy": {"key": self.metric.key, "identity": self.metric.identity()},
            "redistribution": None if last is None else last.identity,
            "task": task_settings or {},
        }

    def _notes(self, seen: Sequence[Look]) -> list[str]:
        """What a reader of the paper must know."""
        config = self.config
        notes = [
            f"{config.length} inserted tokens, {config.position}; every condition keeps the token "
            "ids of the original prompt, since everything is joined as ids.",
            "The published gains are of two points or so, within what one baseline varies between "
            "the paper's own tables (35.4, 41.8, 43.0): an interval that includes zero decides "
            "nothing.",
            "In layer 0 an insert scales the attention among the problem's tokens exactly: lower "
            "peaks there are arithmetic; the claims on other layers are not.",
        ]
        for look in seen:
            of = f"the mean over {look.aligned} prompts of one length"
            of = of if look.aligned > 1 else "those of a single prompt"
            notes.append(f"{look.model}: profiles of head {look.head}, drawn as {of}.")
        if config.sinks:
            notes.append(f"Left out of all profiles as sinks: the first {config.sinks} token(s).")
        if config.heads:
            kept = "kept" if config.keep else "off"
            notes.append(f"Heads {kept} throughout: {' '.join(config.heads)}.")
        return notes + [
            f"{look.model}: head {look.head} was chosen for changing most on these same "
            "prompts; the intervals of its claims leave that choice out."
            for look in seen
            if look.chosen
        ]


KIND = StudyKind("token-insertion", describe, Config, PRESETS)
