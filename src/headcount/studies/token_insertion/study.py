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
from headcount.studies.description import Description, Results, StudyKind, StudyRequest
from headcount.studies.study import Study
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


def describe(models: Sequence[Model], config: Config) -> Description:
    """All problems under all conditions; on the first task a look inside, and the sweep.

    The sweep is that of the first model alone.
    """
    if not models:
        raise HeadcountError("The study needs a model: name one.")
    config.metric().require()
    rounds, notes = [], []
    for model in models:
        model.layout.number(Head(config.layer, max(config.head, 0)))  # refuses what there is not
        for place, spec in enumerate(config.tasks):
            task, left_out = problems(model, spec, config)
            notes += left_out
            swept = not place and model is models[0]
            rounds.append(Round(len(rounds), model, spec, task, config, not place, swept))
    return Description(
        {key: request for one in rounds for key, request in one.requests().items()},
        Conclusion(models, config, rounds, notes),
        sayings={(one.number, "w/o"): one.saying for one in rounds},
    )


@dataclass(frozen=True, eq=False)
class Round:
    """One model and one task: what is asked, and what comes out.

    first   whether it is the model's first task, which makes the figure and the claims
    swept   whether the insert is also varied
    """

    number: int
    model: Model
    spec: str
    task: Task
    config: Config
    first: bool
    swept: bool

    @property
    def saying(self) -> str:
        """What is said when it starts."""
        runs = len(self.config.draws)
        return f"{self.model.name}, {self.task.name}: {len(self.task)} problems, {runs} run(s) each"

    def requests(self) -> dict[Hashable, StudyRequest]:
        """Grades under each condition, a look, and grades of the sweep, in this order."""
        layout, config = self.model.layout, self.config
        named = [layout.parse(head) for head in config.heads]
        gates = layout.gates(keep=named) if config.keep else layout.gates(off=named)

        def grade(condition: Condition) -> GradeRequest:
            metric, draws = config.metric(), config.draws
            return GradeRequest(self.model, self.task, condition, gates, metric, draws)

        requests: dict[Hashable, StudyRequest] = {
            (self.number, condition.series): grade(condition) for condition in conditions(config)
        }
        if self.first and config.prompts:
            some = self.task.subset(min(config.prompts, len(self.task)))
            inserts = {s: insert for s, insert in config.inserts().items() if not insert.empty}
            requests[self.number, "look"] = LookRequest(
                self.model, some, inserts, config.layer, gates, config.sinks
            )
        if self.swept:
            for value, condition in swept_conditions(config).items():
                requests[self.number, value] = grade(condition)
        return requests

    def outcome(self, results: Results) -> Outcome:
        """The grades."""
        config, swept = self.config, swept_conditions(self.config) if self.swept else {}
        return Outcome(
            self.model.name,
            self.task.name,
            config.metric().key,
            self.task.clusters,
            {one.series: results[self.number, one.series] for one in conditions(config)},
            {value: results[self.number, value] for value in swept},
        )

    def inside(self, results: Results) -> Inside | None:
        """What was seen, with the head that is drawn; None where nobody looked."""
        look = results.get((self.number, "look"))
        if look is None:
            return None
        layer, head = self.config.layer, self.config.head
        return Inside.of(self.model.name, self.model.layout, look, layer, head)


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
        first = [n for n, one in enumerate(self.rounds) if one.first]
        insides = [self.rounds[n].inside(results) for n in first]
        drawn = [outcomes[n] for n in first]
        seen = [inside for inside in insides if inside is not None]
        tables = {
            "Affine check": [row for inside in seen for row in affine_rows(inside)],
            "Activations of layer 0": [row for inside in seen for row in activation_rows(inside)],
        }
        names = dict.fromkeys(model.name for model in self.models)
        notes = [*self.left_out, *self._notes(seen)]
        return Study(
            name="token-insertion",
            title=f"token-insertion · {', '.join(names)}",
            rows=[row for outcome in outcomes for row in outcome.rows()],
            claims=[
                claim
                for outcome, inside in zip(drawn, insides, strict=True)
                for claim in judge_claims(outcome, inside)
            ],
            figures=draw(drawn, insides[0], self.config),
            settings=self._settings(),
            model={model.name: model.facts for model in self.models},
            heads=[row for inside in seen for row in change_rows(inside, self.config.tasks[0])],
            notes=list(dict.fromkeys(notes)),
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
    name="Meaningless and meaningful inserts",
    config=Config,
    presets=PRESETS,
    models=("smollm2-135m",),
    describe=describe,
)
