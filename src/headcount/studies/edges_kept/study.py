"""Study `edges-kept`: how many attention edges must be kept to explain a behaviour.

After "Sparse Attention Post-Training for Mechanistic Interpretability" (Draye et al., 2025): the
sister figure of `heads-kept`. Edges (layer, head, query, key) are ranked by attribution; the best k
are kept, and all others say what they say on the corrupted prompt. Estimates, claims and tables are
those of `heads-kept`, of edges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from headcount.curves.edges import EdgesKept, EdgesRequest
from headcount.engine.edges.job import ABSOLUTE
from headcount.engine.measure.ablations import form
from headcount.errors import HeadcountError, counted
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.registry import settings_of
from headcount.report.estimates import plain_facts
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest
from headcount.studies.edges_kept.config import PRESETS, Config
from headcount.studies.edges_kept.figure import draw
from headcount.studies.heads_kept.cases import Prompts, choose_prompts, make_pool
from headcount.studies.heads_kept.estimates import estimate
from headcount.studies.heads_kept.panels import COLUMNS, SHARED, TEST
from headcount.studies.heads_kept.study import check_models
from headcount.tasks import Encoded, Task, task_factory
from headcount.value_table import ValueTable

ABLATION = "corrupted"
NOTES = (
    "An edge that is not kept says what it says on the corrupted prompt, so prompts and corrupted "
    "prompts align token by token. The explained effect is a ratio of means†, as in heads-kept.",
    "Intervals are over test prompts and their templates, with the ranking held fixed.",
)


@dataclass(frozen=True, eq=False)
class EdgeCase:
    """One task and one model."""

    key: str
    title: str
    request: EdgesRequest
    left_out: int


def describe(models: Sequence[Model], config: Config) -> Description:
    """One request for each task and model."""
    check_models(models, "edges-kept")
    tasks = dict.fromkeys(config.tasks)
    cases = {(key, m.name): make_case(key, m, config) for key in tasks for m in models}
    requests: dict[Hashable, StudyRequest] = {k: case.request for k, case in cases.items()}
    return Description(
        requests,
        partial(conclude, cases, config),
        sayings={
            key: f"{case.title}, {case.request.model.name}: "
            f"{counted(case.request.prompts, 'prompt')}, up to {case.request.total:,} edges"
            for key, case in cases.items()
        },
    )


def make_case(key: str, model: Model, config: Config) -> EdgeCase:
    """Choose the prompts of a task and model, the metric and the counts."""
    title, task = make_pool(key, model, config.pool, config.task_settings)
    prompts = choose_prompts(task, model, config)
    own = config.per == "prompt"
    if not own and not prompts.by_position:
        raise HeadcountError(
            f"{title} has no prompts of one template and length, so no edges align: rank them per "
            "prompt (per=prompt)."
        )
    measured = prompts.measured if own else _few_of_each_form(prompts, model, config.ranked)
    metric = config.metric
    if metric == "auto":
        metric = _metric_for(model.encode(measured))
    orders = tuple(f"{ranking}{ABSOLUTE}" for ranking in config.rankings)
    orders += config.rankings * config.signed
    request = EdgesRequest(model, measured, orders, get_logit_metric(metric), (), config.seeds, own)
    counts = config.counts or edge_counts(request.total)
    return EdgeCase(key, title, replace(request, counts=counts), prompts.left_out)


def _few_of_each_form(prompts: Prompts, model: Model, ranked: int) -> Task:
    """The measured task with few ranking prompts of each template and length that is tested."""
    measured = prompts.measured
    tested = {form(e, corrupted=False) for e in model.encode(measured.split("test"))}
    chosen: dict[Hashable, list[Encoded]] = defaultdict(list)
    for encoded in model.encode(measured.split("ranking")):
        own = form(encoded, corrupted=False)
        if own in tested and len(chosen[own]) < ranked:
            chosen[own].append(encoded)
    kept = {encoded.example.id for some in chosen.values() for encoded in some}
    kept |= {example.id for example in measured.split("test")}
    return replace(measured, examples=tuple(e for e in measured if e.id in kept))


def _metric_for(examples: Sequence[Encoded]) -> str:
    """The published metrics, of first tokens where answers have several."""
    answers = [ids for e in examples for ids in (e.target, *e.also, *e.foils)]
    first = "first_token_" * (max(map(len, answers)) > 1)
    return f"{first}{'mass' if any(e.also for e in examples) else 'logit'}_difference"


def edge_counts(total: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50, … below the number of all edges.

    >>> edge_counts(60)
    (1, 2, 5, 10, 20, 50)
    """
    steps = (digit * 10**power for power in range(12) for digit in (1, 2, 5))
    return tuple(count for count in steps if count < total)


def check(config: Config) -> None:
    """Refuse tasks and metrics that do not exist."""
    for key in config.tasks:
        task_factory(key, **settings_of(config.task_settings, key))
    if config.metric != "auto":
        get_logit_metric(config.metric)


def conclude(cases: Mapping[tuple[str, str], EdgeCase], config: Config, results: Results) -> Study:
    """Make estimates, tables and figures from the result of each case."""
    measured = [(case, results[key]) for key, case in cases.items()]
    values, facts = _values(measured), plain_facts(_facts(measured, config))
    found = estimate(values, facts)
    models = {case.request.model.name: case.request.model.facts for case in cases.values()}
    figures, captions = draw(values, facts, found, models)
    settings = asdict(config)
    settings["task"] = settings.pop("task_settings") or {}
    left_out = [
        f"{case.title}, {case.request.model.name}: {counted(case.left_out, 'test prompt')} left "
        "out, because the ranking split has too few prompts of the same template and length."
        for case in cases.values()
        if case.left_out
    ]
    return Study(
        name="edges-kept",
        title=f"edges-kept · {', '.join(models)}",
        rows=found.rows,
        claims=found.claims,
        figures=figures,
        captions=captions,
        settings=settings,
        model=models,
        notes=[*found.notes, *left_out, *NOTES],
        tables=found.tables,
        values=values,
        facts=facts,
    )


def _values(measured: Sequence[tuple[EdgeCase, EdgesKept]]) -> ValueTable:
    """The metric of every prompt at every count of each order."""
    table = ValueTable(COLUMNS, SHARED)
    for case, kept in measured:
        request = case.request
        about = {"model": request.model.name, "task": case.key, "split": TEST}
        test = request.task.split("test")
        table.name_examples([(e.id, *e.cluster) for e in test], **about)
        for order, values in kept.values.items():
            for place, count in enumerate(request.all_counts):
                how = {"ablation": ABLATION, "order": order, "count": count}
                table.put(values[:, place], **about, **how)
    return table


def _facts(measured: Sequence[tuple[EdgeCase, EdgesKept]], config: Config) -> dict[str, Any]:
    """What estimates need besides the values."""
    return {
        "unit": "edge",
        "models": {c.request.model.name: c.request.model.layout.total for c, _ in measured},
        "tasks": {case.key: case.title for case, _ in measured},
        "threshold": config.threshold,
        "per": config.per,
        "ablation": ABLATION,
        "words": {ABLATION: measured[0][1].ablation},
        "at_chance": {f"{c.request.model.name} {c.key}": kept.at_chance for c, kept in measured},
    }


MODELS = ("smollm2-135m-q4", "sparse:smollm2-135m-q4")
KIND = StudyKind("edges-kept", describe, Config, PRESETS, MODELS, check, estimate, draw=draw)
