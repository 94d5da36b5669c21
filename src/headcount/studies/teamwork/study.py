"""Study `teamwork`: which heads back each other up?

Heads are switched off alone, in all pairs and in sets. Where two cost more together than the sum of
what each costs alone, one stands in for the other, or one that works against the answer holds back;
where they cost less, they do the same work, or one needs what the other does. After the backup
heads of "Interpretability in the Wild" (Wang et al., 2023) and the self-repair of "The Hydra
Effect" (McGrath et al., 2023).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from headcount.curves.teamwork import MARGIN, Teamwork, TeamworkRequest, random_order
from headcount.engine.measure.ablations import check_ablation
from headcount.errors import HeadcountError, counted
from headcount.metrics import Metric, get_logit_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.registry import settings_of
from headcount.report.estimates import plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest, only_model
from headcount.studies.heads_kept.cases import FEW, choose_prompts, make_pool
from headcount.studies.silent_heads.study import metric_for
from headcount.studies.teamwork.config import PRESETS, Config
from headcount.studies.teamwork.estimates import estimate
from headcount.studies.teamwork.figure import draw
from headcount.studies.teamwork.panels import COLUMNS, SHARED, place_names
from headcount.tasks import check_file, task_factory
from headcount.tasks.encoding import no_corrupted
from headcount.value_table import ValueTable

FROM_CORRUPTED = ("mean", "corrupted")  # ablations that need corrupted prompts


@dataclass(frozen=True, eq=False)
class TeamCase:
    """One task: its prompts, and what is measured on them."""

    key: str
    title: str
    request: TeamworkRequest
    left_out: int  # test prompts without their like in the ranking split


def describe(models: Sequence[Model], config: Config) -> Description:
    """One request for each task."""
    model = only_model(models, KIND.key)
    if 2 * config.top > model.layout.total:
        raise HeadcountError(
            f"teamwork compares {counted(config.top, 'head')} with as many others, and "
            f"{model.name} has only {model.layout.total}: choose a smaller top."
        )
    cases = {key: make_case(key, model, config) for key in config.tasks}
    requests: dict[Hashable, StudyRequest] = {key: case.request for key, case in cases.items()}
    sayings: dict[Hashable, str] = {
        key: f"{case.title}: {counted(len(case.request.pairs), 'pair')} of heads on "
        f"{counted(_many(case.request), 'test prompt')}"
        for key, case in cases.items()
    }
    return Description(requests, partial(conclude, model, cases, config), sayings=sayings)


def _many(request: TeamworkRequest) -> int:
    return len(request.task.split("test"))


def make_case(key: str, model: Model, config: Config) -> TeamCase:
    """Choose the prompts of a task and the metric."""
    title, task = make_pool(key, model, config.pool, config.task_settings)
    for example in task if config.ablation in FROM_CORRUPTED else ():
        if example.corrupted is None:
            raise no_corrupted(example)
    prompts = choose_prompts(task, model, config)
    finding = prompts.validated
    sizes = [0 if t is None else len(t.split("test")) for t in (prompts.measured, finding)]
    if finding is None or min(sizes) < 2:
        raise HeadcountError(
            f"{title} has {sizes[0]} test prompts and {sizes[1]} ranking prompts to find roles "
            "on, and teamwork needs two of each: give it more prompts."
        )
    metric = config.metric
    if metric == "auto":
        metric = metric_for(model.encode(prompts.measured))
    known = RANKINGS[config.ranking].defaults()
    how = {"metric": metric, "ablation": config.ablation}
    settings = {name: value for name, value in how.items() if name in known}
    request = TeamworkRequest(
        model,
        Ranking.of(model, prompts.ranked, config.ranking, **settings),
        finding,
        prompts.measured,
        get_logit_metric(metric),
        config.top,
        sorted({*(count for count in FEW if count < config.top), config.top}),
        config.seeds,
        config.ablation,
    )
    return TeamCase(key, title, request, prompts.left_out)


def check(config: Config) -> None:
    """Refuse tasks, rankings, ablations and metrics that do not exist or do not suit."""
    _ = RANKINGS[config.ranking]
    check_ablation(config.ablation)
    if config.metric != "auto":
        _additive(config.metric)
    for key in config.tasks:
        settings = settings_of(config.task_settings, key)
        task_factory(key, **settings)
        corrupted = config.ablation in FROM_CORRUPTED
        check_file(key, settings, foils_for=f"the study {KIND.key}", corrupted=corrupted)


def _additive(name: str) -> Metric:
    """The metric of this name; one in which effects do not add up is refused."""
    metric = get_logit_metric(name)
    if not metric.key.startswith(("logit_d", "logprob_d", "first_token_logit_d")):
        raise HeadcountError(
            f"teamwork adds effects of heads up, which {metric.key} does not allow: choose "
            "logit_difference, first_token_logit_difference or logprob_difference."
        )
    return metric


def conclude(
    model: Model, cases: Mapping[str, TeamCase], config: Config, results: Results
) -> Study:
    """Make estimates, tables and figures from the result of each task."""
    measured: dict[str, Teamwork] = {key: results[key] for key in cases}
    values = _values(cases, measured)
    facts = plain_facts(_facts(model, cases, measured, config))
    found, models = estimate(values, facts), {model.name: model.facts}
    figures, captions = draw(values, facts, found, models)
    settings = asdict(config)
    settings["task"] = settings.pop("task_settings") or {}
    heads: list[dict[str, Any]] = []
    for key, case in cases.items():
        clusters = case.request.ranking.task.split("ranking").clusters
        scores = {config.ranking: measured[key].scores}
        heads += head_rows(model.name, key, scores, clusters=clusters)
    return Study(
        name=KIND.key,
        title=f"{KIND.key} · {model.name}",
        rows=found.rows,
        claims=found.claims,
        figures=figures,
        captions=captions,
        settings=settings,
        model=models,
        scores={f"{key}-{config.ranking}": result.scores for key, result in measured.items()},
        heads=heads,
        notes=[*found.notes, *_notes(cases, measured, config)],
        tables=found.tables,
        values=values,
        facts=facts,
    )


def _values(cases: Mapping[str, TeamCase], measured: Mapping[str, Teamwork]) -> ValueTable:
    """The metric of every prompt with each set of heads off."""
    table = ValueTable(COLUMNS, SHARED)
    for key, case in cases.items():
        request, found = case.request, measured[key]
        about = {"model": request.model.name, "task": key}
        table.name_examples([(e.id, *e.cluster) for e in request.task.split("test")], **about)
        for label in request.labels(found.roles):
            how = {"series": label.series, "places": place_names(label)}
            how |= {"metric": request.metric.key}
            table.put(found.values.of(label), **about, **how, count=len(label.places))
    return table


def _facts(
    model: Model,
    cases: Mapping[str, TeamCase],
    measured: Mapping[str, Teamwork],
    config: Config,
) -> dict[str, Any]:
    """What estimates need besides the values."""
    best = {key: list(map(str, found.scores.top(config.top))) for key, found in measured.items()}
    return {
        "model": model.name,
        "total": model.layout.total,
        "tasks": {key: case.title for key, case in cases.items()},
        "metrics": {key: case.request.metric.key for key, case in cases.items()},
        "ranking": config.ranking,
        "ablation": next(iter(measured.values())).values.ablation,
        "counts": list(next(iter(cases.values())).request.counts),
        "best": best,
        "random": {
            key: [
                [str(model.layout.head(n)) for n in random_order(found.scores, config.top, draw)]
                for draw in range(config.seeds)
            ]
            for key, found in measured.items()
        },
        "against": {
            key: [best[key][place] for place in found.roles.against]
            for key, found in measured.items()
        },
        "repairers": {
            key: {
                best[key][place]: [best[key][other] for other in some]
                for place, some in found.roles.repairers.items()
            }
            for key, found in measured.items()
        },
    }


def _notes(
    cases: Mapping[str, TeamCase], measured: Mapping[str, Teamwork], config: Config
) -> list[str]:
    notes = [
        "A loss is the share of the metric that goes with the heads that are off: 1 is all of it, "
        "and chance. Interaction: joint loss minus the sum of the single losses. Above 0 is "
        "backup or, where one of the two works against the answer, relief; below 0 is overlap.",
        f"Roles are found on ranking prompts that are neither ranked on nor tested: a head works "
        f"against the answer if its loss lies below −{MARGIN:g}, and a head's repairers are those "
        f"with which its interaction lies above {MARGIN:g}, both with an interval that is clear of "
        "0.",
        "Intervals are over test prompts and their templates, with rankings and roles held fixed.",
    ]
    for key, case in cases.items():
        request, tested = case.request, _many(case.request)
        sizes = tested, len(request.ranking.examples), len(request.finding.split("test"))
        notes.append(
            f"{case.title}: {sizes[0]} prompts tested, {sizes[1]} ranked on, {sizes[2]} for "
            f"finding roles; off is {measured[key].values.ablation}."
        )
        if case.left_out:
            notes.append(
                f"{case.title}: {counted(case.left_out, 'test prompt')} left out, because the "
                "ranking split has too few prompts of the same template and length."
            )
        worse = int((measured[key].scores.values[measured[key].scores.best(config.top)] <= 0).sum())
        if worse:
            notes.append(
                f"{case.title}: {counted(worse, 'head')} of the {config.top} best have no score "
                "above 0, so that the ranking does not say that they help."
            )
    return notes


KIND = StudyKind(
    "teamwork", describe, Config, PRESETS, check=check, estimate=estimate, draw=draw, one_model=True
)
