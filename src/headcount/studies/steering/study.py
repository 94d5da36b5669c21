"""Study `steering`: does adding the direction of right answers make more answers right?

After the positive direction of "Cognitive Mirrors" (Ma et al., NeurIPS 2025): at the best heads, α
times the spread along the direction in which outputs on right and wrong items differ. Beside it:
random directions of the same length, and the same at random heads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from headcount.curves.steering import (
    LEARNED,
    RANDOM_DIRECTION,
    RANDOM_HEADS,
    WHOLE,
    Steering,
    SteeringRequest,
)
from headcount.errors import HeadcountError, counted, span_text
from headcount.figures.steering import plot_steering
from headcount.heads import check_counts
from headcount.metrics import get_logit_metric
from headcount.metrics.chance import chance_of
from headcount.models.model import Model
from headcount.models.weights import about_models
from headcount.rankings import RANKINGS, Ranking
from headcount.registry import settings_of
from headcount.report.estimates import Drawn, Estimates, Models, plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest, only_model
from headcount.studies.steering.config import PRESETS, Config
from headcount.studies.steering.estimates import (
    ACCURACY,
    COLUMNS,
    MARGINS,
    NAMES,
    SHARED,
    alpha_text,
    estimate,
    panels_of,
)
from headcount.tasks import TASKS, Task, make_task, task_factory
from headcount.value_table import ValueTable

LINES = {  # series as the legend names them
    LEARNED: "learned direction, best heads",
    RANDOM_DIRECTION: "random direction",
    RANDOM_HEADS: "random heads",
}
NOTES = (
    "What is added is α · σ · d at every token, also of the prompt†. d, of length 1, is a head's "
    "mean output at the last token of the prompt over ranking items that are answered right minus "
    "that over items answered wrong; σ is the standard deviation along d. Random directions are as "
    "long, random heads are as many in each layer and have directions of their own.",
    "Right is the target as the most likely answer, token by token. Intervals are over test items, "
    "their templates and draws, with ranking and direction held fixed.",
)


def describe(models: Sequence[Model], config: Config) -> Description:
    """One request for each task."""
    model = only_model(models, KIND.key)
    check_counts([2 * config.top], model.layout)  # random heads are others
    cases = {key: make_case(key, model, config) for key in config.tasks}
    requests: dict[Hashable, StudyRequest] = dict(cases.items())
    return Description(requests, partial(conclude, model, cases, config))


def make_case(key: str, model: Model, config: Config) -> SteeringRequest:
    """Choose the items of a task and the ranking."""
    task = make_task(key, model.tokenizer, **settings_of(config.task_settings, key))
    parts = []
    for split, wanted in (("ranking", config.ranked), ("test", config.n)):
        part = task.split(split)  # type: ignore[arg-type]
        parts.append(part.subset(min(wanted, len(part))) if wanted else part)
    ranking, test = parts
    if len(test) < 2:
        raise HeadcountError(
            f'The task "{key}" has a single test item, which has no interval: give it more.'
        )
    chosen = replace(task, examples=(*ranking.examples, *test.examples))
    metrics = [get_logit_metric(name) for name in MARGINS]
    how = metrics, config.top, config.alphas, config.seeds
    return SteeringRequest(model, chosen, Ranking.of(model, chosen, config.ranking), *how)


def check(config: Config) -> None:
    """Refuse tasks and rankings that do not exist."""
    _ = RANKINGS[config.ranking]
    for key in config.tasks:
        task_factory(key, **settings_of(config.task_settings, key))


def conclude(
    model: Model, cases: Mapping[str, SteeringRequest], config: Config, results: Results
) -> Study:
    """Make estimates, tables and the figure from the result of each task."""
    steered: dict[str, Steering] = {k: results[k] for k in cases if not results[k].refusal}
    refusals = [results[key].refusal for key in cases if results[key].refusal]
    if not steered:
        raise HeadcountError(refusals[0])
    values = _values(cases, steered)
    facts = plain_facts(_facts(model, cases, steered, config))
    found, models = estimate(values, facts), {model.name: model.facts}
    figures, captions = draw(values, facts, found, models)
    heads: list[dict[str, Any]] = []
    for key, result in steered.items():
        clusters = cases[key].task.split("ranking").clusters
        heads += head_rows(model.name, key, {config.ranking: result.scores}, clusters=clusters)
    settings = asdict(config)
    settings |= {"tasks": list(steered), "task": settings.pop("task_settings") or {}}
    return Study(
        name=KIND.key,
        title=f"{KIND.key} · {model.name}",
        rows=found.rows,
        claims=found.claims,
        figures=figures,
        captions=captions,
        settings=settings,
        model=models,
        scores={f"{key}-{config.ranking}": result.scores for key, result in steered.items()},
        heads=heads,
        notes=[*found.notes, *(f"Left out: {refusal}" for refusal in refusals), *NOTES],
        tables=found.tables,
        values=values,
        facts=facts,
    )


def _values(cases: Mapping[str, SteeringRequest], steered: Mapping[str, Steering]) -> ValueTable:
    """Both metrics of every test item, steered and not."""
    table = ValueTable(COLUMNS, SHARED)
    for key, result in steered.items():
        request = cases[key]
        about = {"model": request.model.name, "task": key}
        test = request.task.split("test")
        table.name_examples([(e.id, *e.cluster) for e in test], **about)
        for (label, metric), found in result.values.items():
            count = 0 if label.series == WHOLE else request.top
            how = {"series": label.series, "alpha": alpha_text(label.alpha), "count": count}
            table.put(found, **about, **how, metric=metric)
    return table


def _facts(
    model: Model,
    cases: Mapping[str, SteeringRequest],
    steered: Mapping[str, Steering],
    config: Config,
) -> dict[str, Any]:
    """What estimates need besides the values."""
    accuracy = get_logit_metric(ACCURACY)
    return {
        "model": model.name,
        "total": model.layout.total,
        "tasks": {key: _title(key, cases[key].task) for key in steered},
        "ranking": config.ranking,
        "top": config.top,
        "alphas": sorted(config.alphas),
        "seeds": config.seeds,
        "best": {key: list(map(str, s.scores.top(config.top))) for key, s in steered.items()},
        "right": {key: [s.found.right, s.found.wrong] for key, s in steered.items()},
        "chance": {
            key: asdict(chance)
            for key in steered
            if (chance := chance_of(accuracy, cases[key].task.split("test")))
        },
    }


def _title(key: str, task: Task) -> str:
    return TASKS[key].name if key in TASKS else task.name


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """The figure: both metrics against α, for each task."""
    panels: dict[str, dict[str, dict[str, Any]]] = {}
    for metric, name in NAMES.items():
        for key, title in facts["tasks"].items():
            for series, label in LINES.items():
                points = [
                    (float(row["alpha"]), row["value"], row["low"], row["high"])
                    for row in found.rows
                    if (row["task"], row["metric"]) == (key, metric)
                    and row["series"] in (series, WHOLE)
                ]
                panels.setdefault(name, {}).setdefault(title, {})[label] = points
    return {"figure": plot_steering(panels)}, {"figure": _caption(values, facts, models)}


def _caption(values: ValueTable, facts: Mapping[str, Any], models: Models) -> str:
    n = [panel.items.n for panel in panels_of(values, facts)]
    return (
        f"{about_models(models)}: accuracy and log-probability of the right answer when α times "
        "the spread along a direction is added to what "
        f"{counted(facts['top'], 'head')} say, at every token. Learned: right "
        "minus wrong answers on ranking items, at the best heads by "
        f"{facts['ranking']}. {counted(facts['seeds'], 'draw')} of random directions of the same "
        "length, and of random heads of the same layers with directions of their own. Bands: 95 % "
        f"intervals over items, templates and draws; {span_text(n)} test items a task."
    )


KIND = StudyKind(
    "steering", describe, Config, PRESETS, check=check, estimate=estimate, draw=draw, one_model=True
)
