"""Study `heads-kept`: how many heads must be kept to explain a behaviour, in one model or several.

After "Sparse Attention Post-Training for Mechanistic Interpretability" (Draye et al., 2025). For
each task: rank the heads by patching in their outputs on the corrupted prompt; keep only the best k
and ablate all others; measure which share of the whole model's effect is left. With several models,
such as a dense one and its sparse version, their curves are compared on the same prompts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from headcount.curves.keep import Kept
from headcount.engine.measure.ablations import check_ablation
from headcount.errors import HeadcountError, counted
from headcount.heads import check_counts
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS
from headcount.rankings.agreement import agreement
from headcount.registry import settings_of
from headcount.report.estimates import plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.stats import heads_with_effect
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest
from headcount.studies.heads_kept.cases import Case, make_case
from headcount.studies.heads_kept.config import PRESETS, Config
from headcount.studies.heads_kept.estimates import estimate
from headcount.studies.heads_kept.figure import draw
from headcount.studies.heads_kept.panels import COLUMNS, SHARED, TEST, VALIDATION
from headcount.system.files import safe_name
from headcount.tasks import Task, task_factory
from headcount.value_table import ValueTable

MOST_MODELS = 4
FEWEST_PROMPTS = 30  # with fewer, skewed effects would count as found
CaseResults = Sequence[tuple[Case, Kept]]
Rows = list[dict[str, Any]]

NOTES = (
    "We inferred two things that the paper leaves open: the explained effect is a ratio of means, "
    "(mean_k − mean_0) / (mean_all − mean_0), and the two published versions of the figure differ "
    "in how heads are ranked, per task or per prompt.",
    "Intervals are over test prompts and their templates, with the ranking and the means of "
    "ablations held fixed: other ranking prompts could give other ones.",
    "The sign of 1 − EE in CMD comes from one half of the prompts and its size from the other "
    "half, because noise alone would make it larger.",
)
PER_PROMPT = (
    "Ranked per prompt, heads are ranked on the very prompts that they are tested on, as in the "
    "published version."
)


def describe(models: Sequence[Model], config: Config) -> Description:
    """One request for each task and model, and one more where orders are validated."""
    check_models(models, "heads-kept")
    config = replace(config, ablations=tuple(map(check_ablation, config.ablations)))
    tasks = dict.fromkeys(config.tasks)
    cases = {
        (key, model.name): make_case(key, model, config)
        for key in tasks
        for model in models_of(key, models, config)
    }
    requests: dict[Hashable, StudyRequest] = {k: case.request for k, case in cases.items()}
    for key, case in cases.items():
        if case.validation is not None:
            requests[*key, VALIDATION] = case.validation
    return Description(
        requests,
        partial(conclude, cases, config),
        sayings={
            key: f"{case.title}, {case.model}: {counted(case.request.prompts, 'prompt')}, "
            f"{counted(len(case.request.counts), 'count')} of heads"
            for key, case in cases.items()
        },
    )


def models_of(key: str, models: Sequence[Model], config: Config) -> list[Model]:
    """The models that a panel shows."""
    places = config.places.get(key, range(1, len(models) + 1))
    if max(places) > len(models):
        raise HeadcountError(
            f"The panel {key} is to show model {max(places)} of {counted(len(models), 'model')}: "
            "give all models, each with --model, or change --pairs."
        )
    return [models[place - 1] for place in places]


def check_models(models: Sequence[Model], study: str) -> None:
    """Refuse more models than a figure has colours for, and two of one name."""
    if not 1 <= len(models) <= MOST_MODELS:
        raise HeadcountError(
            f"{study} takes one to {MOST_MODELS} models, such as a dense and a sparse one, not "
            f"{len(models)}."
        )
    names = Counter(model.name for model in models)
    for name, times in names.items():
        if times > 1:
            raise HeadcountError(
                f'Two models have the name "{name}", so the figure cannot tell them apart: rename '
                "one of the folders."
            )


def check(config: Config) -> None:
    """Refuse tasks, rankings, metrics, ablations and counts that do not exist."""
    if config.counts is not None:
        check_counts(config.counts)
    for key in config.tasks:
        task_factory(key, **settings_of(config.task_settings, key))
    for ranking in config.rankings:
        RANKINGS[ranking]  # refuses an unknown name
    for ablation in config.ablations:
        check_ablation(ablation)
    if config.metric != "auto":
        get_logit_metric(config.metric)


def conclude(cases: Mapping[tuple[str, str], Case], config: Config, results: Results) -> Study:
    """Make estimates, tables and figures from the result of each case."""
    measured = [(case, results[key]) for key, case in cases.items()]
    values = _values(cases, results)
    facts = plain_facts(_facts(measured, config))
    found = estimate(values, facts)
    models = {case.model: case.request.model.facts for case in cases.values()}
    figures, captions = draw(values, facts, found, models)
    settings = asdict(config)
    settings["task"] = settings.pop("task_settings") or {}
    others = {
        "Heads with an effect": [row for pair in measured for row in _effects(*pair)],
        "Agreement of the rankings": [row for pair in measured for row in _agreement(*pair)],
    }
    return Study(
        name="heads-kept",
        title=f"heads-kept · {', '.join(models)}",
        rows=found.rows,
        claims=found.claims,
        figures=figures,
        captions=captions,
        settings=settings,
        model=models,
        scores={
            f"{safe_name(case.model)}-{safe_name(case.key)}-{ranking}": scores
            for case, kept in measured
            for ranking, scores in kept.scores.items()
        },
        heads=[
            row
            for case, kept in measured
            for row in head_rows(case.model, case.key, kept.scores, clusters=_ranked(case).clusters)
        ],
        notes=[
            *found.notes,
            *(note for pair in measured for note in _notes(*pair)),
            *NOTES,
            *[PER_PROMPT] * (config.per == "prompt"),
        ],
        tables={**found.tables, **{title: rows for title, rows in others.items() if rows}},
        values=values,
        facts=facts,
    )


def _ranked(case: Case) -> Task:
    return case.prompts.ranked.split("ranking")


def _values(cases: Mapping[tuple[str, str], Case], results: Results) -> ValueTable:
    """The metric of every prompt under every head set."""
    table = ValueTable(COLUMNS, SHARED)
    for key, case in cases.items():
        for split, request in ((TEST, case.request), (VALIDATION, case.validation)):
            if request is None:
                continue
            kept: Kept = results[key if split == TEST else (*key, VALIDATION)]
            about = {"model": case.model, "task": case.key, "split": split}
            test = request.task.split("test")
            table.name_examples([(e.id, *e.cluster) for e in test], **about)
            for ablation, values in kept.values.items():
                for order in request.orders(ablation):
                    for count in request.all_counts:
                        how = {"ablation": ablation, "order": order, "count": count}
                        table.put(values.of((order, count)), **about, **how)
    return table


def _facts(measured: CaseResults, config: Config) -> dict[str, Any]:
    """What estimates need besides the values."""
    first = next(iter(measured))
    return {
        "models": {case.model: case.request.model.layout.total for case, _ in measured},
        "tasks": {case.key: case.title for case, _ in measured},
        "threshold": config.threshold,
        "per": config.per,
        "ablation": first[0].request.ablations[0],
        "words": {name: values.ablation for name, values in first[1].values.items()},
        "at_chance": {f"{c.model} {c.key}": kept.at_chance for c, kept in measured},
        **({"shown": _shown(measured)} if config.pairs else {}),
    }


def _shown(measured: CaseResults) -> dict[str, list[str]]:
    """The models of each panel."""
    shown: dict[str, list[str]] = {}
    for case, _ in measured:
        shown.setdefault(case.key, []).append(case.model)
    return shown


def _effects(case: Case, kept: Kept) -> Rows:
    """How many heads have an effect that chance does not explain, by each ranking."""
    rows: Rows = []
    for ranking, scores in kept.scores.items():
        clusters = _ranked(case).clusters
        if scores.samples is None or len(scores.samples) != len(clusters):
            continue
        if len(clusters) < FEWEST_PROMPTS:
            continue
        helping, hindering = heads_with_effect(scores.samples, clusters)
        about = {"task": case.key, "model": case.model, "ranking": ranking}
        counts = {"heads": helping + hindering, "helping": helping, "hindering": hindering}
        rows.append({**about, **counts, "of": scores.layout.total, "prompts": len(clusters)})
    return rows


def _agreement(case: Case, kept: Kept) -> Rows:
    """The agreement of each further ranking with the first one."""
    first, *others = kept.scores
    counts = [count for count in (8, 16, 32, 64) if count <= case.request.model.layout.total]
    rows = []
    for other in others:
        agreed = agreement({name: kept.scores[name] for name in (first, other)}, counts)
        common = {f"top {overlap.count} in common": overlap.share for overlap in agreed.overlaps}
        rankings, spearman = f"{first} / {other}", float(agreed.correlation[0, 1])
        about = {"task": case.key, "model": case.model, "rankings": rankings}
        rows.append({**about, "Spearman": spearman, **common})
    return rows


def _notes(case: Case, kept: Kept) -> list[str]:
    """What a reader must know about the prompts of one task and model."""
    first = case.request.ablations[0]
    texts = [f"the ablation {first} is the {kept.values[first].ablation}."]
    if case.prompts.left_out:
        texts.append(
            f"this case leaves out {counted(case.prompts.left_out, 'test prompt')}, because the "
            "ranking split has too few prompts of the same template and length for a mean by "
            "position."
        )
    if not case.prompts.by_position:
        texts.append(
            "the prompts have no templates in common, so means are taken over all positions, and "
            "nothing is resampled."
        )
    for name, (asked, there) in case.missing.items():
        texts.append(
            f"{name} is {there} and not {asked}, because the task has no more such prompts."
        )
    return [f"{case.title}, {case.model}: {text}" for text in texts]


MODELS = ("smollm2-135m-q4", "sparse:smollm2-135m-q4")
KIND = StudyKind("heads-kept", describe, Config, PRESETS, MODELS, check, estimate, draw=draw)
