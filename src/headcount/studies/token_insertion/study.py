"""Study `token-insertion`: what meaningless and meaningful tokens in a prompt do.

After "Meaningless Tokens, Meaningful Gains" (Shi et al., arXiv 2510.01032), Figure 10. Each problem
is asked three times: as it is, with 55 tokens of "/" behind the instruction, and with 55 of "he".
The answers are graded; on some of the prompts, one head's attention is looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headcount.errors import HeadcountError
from headcount.heads import Head
from headcount.models.model import Model
from headcount.report.study import Study
from headcount.studies.description import Description, Results, StudyKind, StudyRequest
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
from headcount.studies.token_insertion.inside import (
    Inside,
    activation_rows,
    affine_rows,
    change_rows,
)
from headcount.studies.token_insertion.look import LookRequest
from headcount.tasks import Task
from headcount.tasks.inserts import with_insert


def describe(models: Sequence[Model], config: Config) -> Description:
    """All problems under all conditions; on the first task also a look inside, and a sweep."""
    if not models:
        raise HeadcountError("The study needs a model: name one.")
    config.metric().require()
    rounds: list[Round] = []
    notes: list[str] = []
    for model in models:
        model.layout.number(Head(config.layer, max(config.head, 0)))  # refuses what there is not
        for place, spec in enumerate(config.tasks):
            task, left_out = problems(model, spec, config)
            notes += left_out
            # The sweep is that of the first model alone.
            swept = swept_conditions(config) if not rounds else []
            rounds.append(Round(len(rounds), model, task, config, not place, swept))
    return Description(
        {key: request for one in rounds for key, request in one.requests().items()},
        Conclusion(models, config, rounds, notes),
        sayings={
            (one.number, Condition("w/o")): f"{one.model.name}, {one.task.name}: {len(one.task)} "
            f"problems, {len(config.draws)} run(s) each"
            for one in rounds
        },
    )


@dataclass(frozen=True, eq=False)
class Round:
    """One model and one task: what is asked, and what comes out.

    The model's `first` task makes the figure and the claims, and is looked at inside.
    """

    number: int
    model: Model
    task: Task
    config: Config
    first: bool
    swept: Sequence[Condition]

    def requests(self) -> dict[Hashable, StudyRequest]:
        """Grades under each condition, a look, and grades of the sweep, in this order."""
        layout, config = self.model.layout, self.config
        named = [layout.parse(head) for head in config.heads]
        gates = layout.gates(keep=named) if config.keep else layout.gates(off=named)
        requests: dict[Hashable, StudyRequest] = {}

        def grade(some: Sequence[Condition]) -> None:
            for condition in some:
                task = with_insert(self.task, self.model.tokenizer, condition.insert)
                requests[self.number, condition] = GradeRequest(
                    self.model, task, condition, gates, config.metric(), config.draws
                )

        grade(conditions(config))
        if self.first and config.prompts:
            task = self.task.subset(min(config.prompts, len(self.task)))
            inserts = {s: insert for s, insert in config.inserts().items() if not insert.empty}
            requests[self.number, "look"] = LookRequest(
                self.model, task, inserts, config.layer, gates, config.sinks
            )
        grade(self.swept)
        return requests

    def outcome(self, results: Results) -> Outcome:
        """The grades."""
        return Outcome(
            self.model.name,
            self.task.name,
            self.config.metric().key,
            self.task.clusters,
            {one.series: results[self.number, one] for one in conditions(self.config)},
            [results[self.number, one] for one in self.swept],
            self.config.sweep,
        )

    def inside(self, results: Results) -> Inside | None:
        """What was seen, with the head that is drawn; None where nobody looked."""
        look, config = results.get((self.number, "look")), self.config
        if look is None:
            return None
        return Inside.of(self.model.name, self.model.layout, look, config.layer, config.head)


@dataclass(frozen=True, eq=False)
class Conclusion:
    """From results to the finished study."""

    models: Sequence[Model]
    config: Config
    rounds: Sequence[Round]
    left_out: Sequence[str]

    def __call__(self, results: Results) -> Study:
        """Rows, claims, tables and figures."""
        outcomes = [one.outcome(results) for one in self.rounds]
        drawn = [outcomes[one.number] for one in self.rounds if one.first]
        insides = [one.inside(results) for one in self.rounds if one.first]
        seen = [inside for inside in insides if inside is not None]
        tables = {
            "Affine check": [row for inside in seen for row in affine_rows(inside)],
            "Activations of layer 0": [row for inside in seen for row in activation_rows(inside)],
        }
        judged = [judge_claims(*pair) for pair in zip(drawn, insides, strict=True)]
        facts = {model.name: model.facts for model in self.models}
        return Study(
            name="token-insertion",
            title=f"token-insertion · {', '.join(facts)}",
            rows=[row for outcome in outcomes for row in outcome.rows()],
            claims=[claim for claims in judged for claim in claims],
            figures=draw(drawn, insides[0], self.config),
            settings=self._settings(),
            model=facts,
            heads=[row for inside in seen for row in change_rows(inside, self.config.tasks[0])],
            notes=list(dict.fromkeys([*self.left_out, *self._notes(seen)])),
            tables={title: rows for title, rows in tables.items() if rows},
        )

    def _settings(self) -> dict[str, Any]:
        """The config, with what became of it: the grader's version, and all of redistribution."""
        settings = asdict(self.config)
        task_settings = settings.pop("task_settings")
        metric, redistribution = self.config.metric(), self.config.redistributed()
        return {
            **settings,
            "accuracy": {"key": metric.key, "identity": metric.identity()},
            "redistribution": None if redistribution is None else redistribution.identity,
            "task": task_settings or {},
        }

    def _notes(self, seen: Sequence[Inside]) -> list[str]:
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
        for inside in seen:
            count = inside.look.aligned
            of = "those of a single prompt"
            if count > 1:
                of = f"the mean over {count} prompts of one length"
            notes.append(f"{inside.model}: profiles of head {inside.drawn}, drawn as {of}.")
        if config.sinks:
            notes.append(f"Left out of all profiles as sinks: the first {config.sinks} token(s).")
        if config.heads:
            kept = "kept" if config.keep else "off"
            notes.append(f"Heads {kept} throughout: {' '.join(config.heads)}.")
        return notes + [
            f"{inside.model}: head {inside.drawn} was chosen for changing most on these same "
            "prompts; the intervals of its claims leave that choice out."
            for inside in seen
            if inside.chosen
        ]


KIND = StudyKind(
    key="token-insertion",
    config=Config,
    presets=PRESETS,
    models=("smollm2-135m",),
    describe=describe,
)
