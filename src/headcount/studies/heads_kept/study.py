"""Study `heads-kept`: how many heads must stay to explain a behaviour, in one model or in two.

After "Sparse Attention Post-Training for Mechanistic Interpretability" (Draye et al., 2025). For
each task: rank the heads by patching in what they say on the corrupted prompt; keep only the best
k and ablate all others; see how much of the whole model's effect is left. Two models are a
dense one and its sparse version, and the ratio of the heads that they need is the finding.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial

from headcount.errors import HeadcountError
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
from headcount.tasks import TASKS

NOTES = (
    "The formula of the explained effect, a ratio of means between no head and all heads, is our "
    "inference; so is that the two published versions of the figure differ in ranking per task or "
    "per prompt.",
    "Heads needed are the first evaluated count at the threshold. Intervals are over prompts; they "
    "do not hold what other ranking prompts would have changed.",
)
PER_PROMPT = (
    "Per prompt, heads are ranked on the very prompts that they are tested on, as in the published "
    "version."
)


def describe(models: Sequence[Model], config: Config) -> Description:
    """One request for each task and model."""
    if not 1 <= len(models) <= 2:
        raise HeadcountError(
            f"heads-kept takes one model, or a dense and a sparse one, not {len(models)}."
        )
    if len({model.name for model in models}) < len(models):
        raise HeadcountError(
            f'Both models have the name "{models[0].name}", and the figure could not tell them '
            "apart: rename one of the folders."
        )
    for key in config.tasks:
        if not key.endswith((".json", ".jsonl")):
            TASKS[key]  # refuses a name that nobody registered
    for ranking in config.rankings:
        RANKINGS[ranking]  # refuses one that there is not
    if config.metric != "auto":
        get_logit_metric(config.metric)
    tasks = dict.fromkeys(config.tasks)
    cases = {(key, m.name): make_case(key, m, config) for key in tasks for m in models}
    return Description(
        {key: case.request for key, case in cases.items()},
        partial(conclude, cases, config),
        sayings={
            key: f"{case.title}, {case.model}: {case.request.prompts} prompts, "
            f"{len(case.request.counts)} counts"
            for key, case in cases.items()
        },
    )


def conclude(cases: Mapping[tuple[str, str], Case], config: Config, results: Results) -> Study:
    """Curves, claims, tables and figures of what was measured for each case."""
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
KIND = StudyKind("heads-kept", describe, Config, PRESETS, MODELS)
