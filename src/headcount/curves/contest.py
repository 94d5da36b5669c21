"""A contest of rankings: which of them finds the heads that a task needs, and at what cost?

Every ranking is tried on the test split, in two ways: only its best heads are kept, more and more
of them, or its best heads are masked. Three areas sum up the curves (see `explained`):

CPR            kept heads: the mean explained effect; higher is better
CMD            kept heads: the mean distance of the explained effect from 1; lower is better
masking area   masked heads: the mean share of the effect that is gone; higher is better

A ranking with a setting `goal` ranks the heads twice, once for each way; all others have one order
for both. Random orders show what knowing nothing gives. The cost of a ranking is told in passes
over the ranking split: a pass with gradients counts three times, as it takes about that long.

Where it is known which heads are right, as in a planted circuit, a contest also tells how often a
head of the circuit ranks above another one (AUROC), and whether the heads found are the right ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.curves.contest_tables import AREAS, RANDOM_ORDERS, Rows, area_rows, needed_rows
from headcount.curves.truth import Truth
from headcount.engine.measure.ablations import check_ablation
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending, head_gates
from headcount.engine.measure.sweep import Sweep, whole_model
from headcount.errors import HeadcountError
from headcount.figures.contest import plot_contest
from headcount.heads import GOALS, HeadScores, check_counts
from headcount.lab import Lab, check_asked, lab_for
from headcount.metrics import Metric, get_logit_metric, get_metric
from headcount.metrics.answers import usual_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking, fitting
from headcount.rankings.ranking import ranking_tokens
from headcount.system.frames import data_frame
from headcount.tasks import Task
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "series", "goal", "count")
SHARED = ("model", "task")
AUTO = "auto"  # the metric that suits each task
GRADIENT = 3  # a pass with gradients takes about as long as three without

Contestant = Mapping[str, Ranking | HeadScores]  # by goal


def metric_for(name: str, model: Model, task: Task) -> Metric:
    """The metric of this name; "auto" takes the usual one, or logprob without wrong answers."""
    if name != AUTO:
        return get_metric(name)  # type: ignore[return-value]
    examples = model.encode(task)
    foils = any(example.foils for example in examples)
    return get_logit_metric(usual_metric(examples) if foils else "logprob")


def contestant(model: Model, task: Task, name: str, **settings: Any) -> dict[str, Ranking]:
    """The requests of a ranking for both goals: the same one, unless it has a setting `goal`.

    Settings that the ranking does not have are left out.
    """
    known = RANKINGS[name].defaults()
    given = {key: value for key, value in settings.items() if key in known}
    if "goal" not in known:
        return dict.fromkeys(GOALS, Ranking.of(model, task, name, **given))
    return {goal: Ranking.of(model, task, name, **{**given, "goal": goal}) for goal in GOALS}


def contest_counts(total: int) -> list[int]:
    """Counts from none to all: 0, 1, 2, 3, 5, 8, … and every tenth of all heads.

    >>> contest_counts(20)
    [0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 13, 14, 16, 18, 20]
    """
    counts, following = [1, 2], 3
    while following < total:
        counts.append(following)
        following = counts[-1] + counts[-2]
    tenths = [round(total * part / 10) for part in range(11)]
    return sorted({count for count in (*counts, *tenths) if count <= total})


@dataclass(frozen=True, eq=False)
class ContestRequest:
    """All rankings of one task, and the metric on its test split under their head sets."""

    model: Model
    task: Task
    contestants: Mapping[str, Contestant]
    metric: Metric
    ablation: str = "zero"
    counts: Sequence[int] | None = None
    seeds: int = 5

    @cached_property
    def all_counts(self) -> list[int]:
        """The numbers of heads, none and all included."""
        total = self.model.layout.total
        if self.counts is None:
            return contest_counts(total)
        return sorted({0, *check_counts(self.counts, self.model.layout), total})

    def entries(self, scores: Mapping[tuple[str, str], HeadScores]) -> Iterator[HeadSetEntry]:
        """The head sets; pending where they depend on scores that are not known."""
        layout = self.model.layout
        for goal in GOALS:
            for count in self.all_counts:
                for name, requests in self.contestants.items():
                    gates: Float[np.ndarray, "heads"] | Pending
                    known, request = scores.get((name, goal)), requests[goal]
                    if count in (0, layout.total):
                        gates = head_gates(layout, range(count), keep=goal == "keep")
                    elif known is not None:
                        gates = head_gates(layout, known.best(count), keep=goal == "keep")
                    else:
                        assert isinstance(request, Ranking)
                        gates = Pending((request.key, goal, count))
                    yield HeadSetEntry((name, goal, count), gates)
                for seed in range(self.seeds):
                    order = np.random.default_rng([seed, layout.total]).permutation(layout.total)
                    gates = head_gates(layout, order[:count], keep=goal == "keep")
                    yield HeadSetEntry((RANDOM_ORDERS, goal, count), gates)

    def _sweep(self, head_sets: HeadSets) -> Sweep:
        return Sweep(self.model, self.task, self.metric, head_sets, "test", self.ablation)

    def _ready(self, counter: Counter | None) -> dict[tuple[str, str], HeadScores]:
        """The scores that need no work: given ones, and those that the counter's store holds."""
        ready = {}
        for name, requests in self.contestants.items():
            for goal, request in requests.items():
                if isinstance(request, HeadScores):
                    ready[name, goal] = fitting(request, self.model)
                elif counter and (known := request.known(counter.store)) is not None:
                    ready[name, goal] = known
        return ready

    def count(self, counter: Counter) -> None:
        """Count the rankings, and all their head sets."""
        ready = self._ready(counter)
        for requests in self.contestants.values():
            for request in requests.values():
                if isinstance(request, Ranking):
                    request.count(counter)
        counter.sweep(whole_model(self.model, self.task, self.metric))
        counter.sweep(self._sweep(HeadSets.of([], self.model.layout)), self.entries(ready))

    def passes(self, name: str) -> float:
        """The cost of a ranking for both goals, in passes over the ranking split."""
        counter = Counter()
        for request in self.contestants[name].values():
            if not isinstance(request, Ranking):
                return float("nan")
            request.count(counter)
        weights = {"gradients": GRADIENT}
        tokens = sum(item.tokens * weights.get(item.kind, 1) for item in counter.cost.items)
        return tokens / ranking_tokens(self.model, self.task)

    def measure(self, lab: Lab, into: Contest) -> None:
        """Rank the heads, measure all head sets, and add the values to a contest."""
        model, task = self.model, self.task
        self._sweep(HeadSets.of([], model.layout)).check()
        scores = self._ready(None)
        for name, requests in self.contestants.items():
            made: dict[int, HeadScores] = {}  # one request may serve both goals
            for goal, request in requests.items():
                if isinstance(request, Ranking):
                    if id(request) not in made:
                        made[id(request)] = request.result(lab)
                    scores[name, goal] = made[id(request)]
        values = lab.measure(self._sweep(HeadSets.build(model.layout, self.entries(scores))))
        about = {"model": model.name, "task": task.name}
        into.values.name_examples([(e.id, *e.cluster) for e in task.split("test")], **about)
        for name in (*self.contestants, *[RANDOM_ORDERS] * bool(self.seeds)):
            for goal in GOALS:
                for count in self.all_counts:
                    table = values.of((name, goal, count))
                    into.values.put(table, **about, series=name, goal=goal, count=count)
        whole = lab.measure(whole_model(model, task, self.metric))
        into.facts["at_chance"][task.name] = whole.at_chance
        into.facts["metric"][task.name] = self.metric.key
        into.facts["passes"][task.name] = {name: self.passes(name) for name in self.contestants}
        for name, requests in self.contestants.items():
            for goal in requests:
                found = scores[name, goal]
                into.facts["goals"].setdefault(name, {})[goal] = found.goal
                into.scores[task.name, name, goal] = found


@dataclass(frozen=True, eq=False)
class Contest:
    """The values of all examples, from which areas are computed, and the scores of all rankings.

    `scores` are by task, ranking and goal.
    """

    values: ValueTable
    facts: dict[str, Any]
    scores: dict[tuple[str, str, str], HeadScores] = field(default_factory=dict)
    truth: Truth | None = None

    @cached_property
    def areas(self) -> Rows:
        """One row for each task, ranking and axis: the three areas, and the cost."""
        return area_rows(self.values, self.facts)

    @cached_property
    def needed(self) -> Rows:
        """One row for each task and ranking: heads needed two-sidedly, beside random orders."""
        return needed_rows(self.values)

    @cached_property
    def recovery(self) -> Rows:
        """One row for each ranking and goal: how far it finds a planted circuit."""
        if self.truth is None:
            return []
        return [
            {"task": task, "ranking": name, "goal": goal, **self.truth.found_by(scores, goal)}
            for (task, name, goal), scores in self.scores.items()
        ]

    @property
    def notes(self) -> list[str]:
        """What a reader must know, such as that the model is at chance."""
        return list(dict.fromkeys(filter(None, self.facts["at_chance"].values())))

    def to_frame(self) -> Any:
        """The areas as a pandas data frame."""
        return data_frame(self.areas)

    def figure(self) -> Any:
        """Quality beside cost, a row of panels for each task."""
        linear = [row for row in self.areas if row["axis"] == "linear"]
        return plot_contest(linear, AREAS, self.recovery)

    def __str__(self) -> str:
        lines = [["task", "ranking", *AREAS, "passes"]]
        for row in self.areas:
            if row["axis"] == "linear":
                areas = [
                    f"{row[area]:.3f} [{row[f'{area} low']:.3f}, {row[f'{area} high']:.3f}]"
                    for area in AREAS
                ]
                passes = f"{row['passes']:,.0f}" if np.isfinite(row["passes"]) else "–"
                lines.append([row["task"], row["ranking"], *areas, passes])
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def new_contest(ablation: str) -> Contest:
    """A contest without any values yet."""
    facts: dict[str, Any] = {"ablation": ablation}
    facts |= {"metric": {}, "at_chance": {}, "passes": {}, "goals": {}}
    return Contest(ValueTable(COLUMNS, SHARED), facts)


def contest(
    model: Model,
    tasks: Task | Sequence[Task],
    rankings: Sequence[str] = ("attribution", "ablation", "denoising", "greedy"),
    *,
    metric: str = "logprob",
    ablation: str = "zero",
    counts: Sequence[int] | None = None,
    seeds: int = 5,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    truth: Truth | None = None,
    lab: Lab | None = None,
) -> Contest:
    """Let rankings compete: CPR, CMD and masking area of each on the test split, and its cost.

    Rankings are made with the metric and the ablation that they are judged by, if they have such
    settings; `patching` and `ensemble` keep their own ablations. The metric "auto" is the one that
    suits each task. `seeds` is the number of random orders; `settings` has further settings of
    single rankings, by name. With the `truth` about a planted circuit, `Contest.recovery` tells
    which rankings find it.

    >>> from headcount import load_model, make_task
    >>> from headcount.curves.contest import contest
    >>> model = load_model("smollm2-135m-q4")
    >>> task = make_task("ioi", model.tokenizer, n=16)
    >>> found = contest(model, task, ["attribution"], counts=[4], seeds=1)
    >>> [row["ranking"] for row in found.areas if row["axis"] == "linear"]
    ['attribution', 'random orders']
    """
    several = [tasks] if isinstance(tasks, Task) else list(tasks)
    ablation = check_ablation(ablation)
    if not rankings or len({*rankings}) < len(rankings):
        raise HeadcountError("Give each ranking of a contest once, and at least one.")
    if len({task.name for task in several}) < len(several):
        raise HeadcountError("Give each task of a contest once: two of these have the same name.")
    of_rankings = check_rankings_settings(rankings, settings or {})
    own, found = lab_for(lab, model), new_contest(ablation)
    for task in several:
        check_asked(model, task)
        judged = metric_for(metric, model, task)
        every = {
            name: contestant(
                model, task, name, **{**settings_of(name, judged.key, ablation), **own_settings}
            )
            for name, own_settings in of_rankings.items()
        }
        ContestRequest(model, task, every, judged, ablation, counts, seeds).measure(own, found)
    return found if truth is None else replace(found, truth=truth)


def check_rankings_settings(
    rankings: Sequence[str], settings: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """The further settings of each ranking; refuses those that no ranking of the contest has."""
    for owner, own in settings.items():
        if owner not in rankings or not isinstance(own, Mapping):
            raise HeadcountError(
                f'"{owner}" is no ranking of this contest: write a setting of a ranking as '
                f"{rankings[0]}:NAME=VALUE (the rankings are {', '.join(rankings)})."
            )
        RANKINGS[owner].bind(**own)
    return {name: dict(settings.get(name, {})) for name in rankings}


def settings_of(name: str, metric: str, ablation: str) -> dict[str, str]:
    """The settings of a ranking in a contest that is judged by this metric and ablation."""
    own = name in ("patching", "ensemble")
    return {"metric": metric} if own else {"metric": metric, "ablation": ablation}
