"""Study `heads-kept`: how many heads must be kept to explain a behaviour, in one model or two.

After "Sparse Attention Post-Training for Mechanistic Interpretability" (Draye et al., 2025). For
each task: rank the heads by patching in their outputs on the corrupted prompt; keep only the best k
and ablate all others; measure which share of the whole model's effect is left. With two models, a
dense one and its sparse version, the result is the ratio of the heads that they need.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from headcount.errors import HeadcountError, counted
from headcount.heads import check_counts
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.rankings import RANKINGS
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results
from headcount.studies.heads_kept.cases import Case, make_case
from headcount.studies.heads_kept.claims import judge_claims
from headcount.studies.heads_kept.config import PRESETS, Config
from headcount.studies.heads_kept.figure import draw
from headcount.studies.heads_kept.tables import (
    curve_rows,
    curves_by_task,
    kept_values,
    notes,
    tables,
)
from headcount.system.files import safe_name
from headcount.tasks import task_factory

NOTES = (
    "We inferred two things that the paper leaves open: the explained effect is a ratio of means, "
    "(mean_k − mean_0) / (mean_all − mean_0), and the two published versions of the figure differ "
    "in how heads are ranked, per task or per prompt.",
    "The heads needed are the first evaluated count whose explained effect reaches the threshold. "
    "Intervals are over test prompts, with the ranking held fixed: other ranking prompts could "
    "give other rankings, and the intervals do not include that.",
)
PER_PROMPT = (
    "Ranked per prompt, heads are ranked on the very prompts that they are tested on, as in the "
    "published version."
)


def describe(models: Sequence[Model], config: Config) -> Description:
    """One request for each task and model."""
    if not 1 <= len(models) <= 2:
        raise HeadcountError(
            f"heads-kept takes one model, or a dense and a sparse one, not {len(models)}: name one "
            "or two."
        )
    if len({model.name for model in models}) < len(models):
        raise HeadcountError(
            f'Both models have the name "{models[0].name}", so the figure cannot tell them apart: '
            "rename one of the folders."
        )
    tasks = dict.fromkeys(config.tasks)
    cases = {(key, m.name): make_case(key, m, config) for key in tasks for m in models}
    return Description(
        {key: case.request for key, case in cases.items()},
        partial(conclude, cases, config),
        sayings={
            key: f"{case.title}, {case.model}: {counted(case.request.prompts, 'prompt')}, "
            f"{counted(len(case.request.counts), 'count')} of heads"
            for key, case in cases.items()
        },
    )


def check(config: Config) -> None:
    """Refuse tasks, rankings, metrics and counts that do not exist."""
    if config.counts is not None:
        check_counts(config.counts)
    for key in config.tasks:
        task_factory(key, **(config.task_settings or {}))
    for ranking in config.rankings:
        RANKINGS[ranking]  # refuses an unknown name
    if config.metric != "auto":
        get_logit_metric(config.metric)


def conclude(cases: Mapping[tuple[str, str], Case], config: Config, results: Results) -> Study:
    """Make curves, claims, tables and figures from the result of each case."""
    measured = [(case, results[key]) for key, case in cases.items()]
    panels = curves_by_task(measured, config)
    models = {case.model: case.request.model.facts for case in cases.values()}
    settings = asdict(config)
    settings["task"] = settings.pop("task_settings") or {}
    return Study(
        name="heads-kept",
        title=f"heads-kept · {', '.join(models)}",
        rows=[row for pair in measured for row in curve_rows(*pair)],
        claims=judge_claims([panel for panel in panels if panel.ablation == "mean"], config),
        figures=draw(panels, list(cases.values()), config),
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
            for row in head_rows(case.model, case.key, kept.scores, clusters=case.ranked.clusters)
        ],
        notes=[
            *(note for pair in measured for note in notes(*pair)),
            *NOTES,
            *[PER_PROMPT] * (config.per == "prompt"),
        ],
        tables=tables(measured, panels, config.threshold),
        values=[row for pair in measured for row in kept_values(*pair)],
    )


MODELS = ("smollm2-135m-q4", "sparse:smollm2-135m-q4")
KIND = StudyKind("heads-kept", describe, Config, PRESETS, MODELS, check)
