"""Study `silent-heads`: how many heads do nothing, on each input?

After "Identifying and Evaluating Inactive Heads in Pretrained LLMs" (Sandoval-Segura et al., ICLR
2026). For each prompt, the heads whose activity lies below a threshold are zeroed; the thresholds
are fixed on the ranking split. Beside it: the same heads for every prompt, and random heads.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from headcount.curves.silent import (
    CONSTANT,
    PER_INPUT,
    Silenced,
    SilentRequest,
    fixed,
)
from headcount.errors import HeadcountError, counted
from headcount.metrics import get_logit_metric
from headcount.metrics.chance import chance_of
from headcount.models.model import Model
from headcount.registry import settings_of
from headcount.report.estimates import plain_facts
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest, only_model
from headcount.studies.silent_heads.config import PRESETS, Config
from headcount.studies.silent_heads.estimates import estimate
from headcount.studies.silent_heads.figure import draw
from headcount.studies.silent_heads.panels import COLUMNS, MARGIN, SHARED, ZEROED
from headcount.tasks import TASKS, Encoded, check_file, make_task, task_factory
from headcount.value_table import ValueTable

NOTES = (
    "Norms, attention to the first token and entropy are means over the tokens of the prompt, the "
    "answer left out†; a low entropy counts as silence†. The value of the first token is read as "
    "the head's output there, where it attends to itself alone.",
    "Ours: the norm of what the projection makes of a head's output, relative to the residual "
    "stream in front of its block, averaged over the tokens of the prompt. It is an inactive "
    "head's whole effect on the next layer's input, and comparable between layers.",
    "Accuracy is the share of prompts whose right answer is likelier than every wrong one; the "
    "margin is by how much, in log-probability. Ablation: zero, at all tokens, the answer's too. "
    "Every prompt has random heads of its own. Intervals are over test prompts and their "
    "templates, which bring their random heads along; thresholds are held fixed.",
)


@dataclass(frozen=True, eq=False)
class SilentCase:
    """One task: its prompts, and what is measured on them."""

    key: str
    title: str
    request: SilentRequest


def describe(models: Sequence[Model], config: Config) -> Description:
    """One request for each task."""
    model = only_model(models, KIND.key)
    cases = {key: make_case(key, model, config) for key in config.tasks}
    requests: dict[Hashable, StudyRequest] = {key: case.request for key, case in cases.items()}
    return Description(
        requests,
        partial(conclude, model, cases, config),
        sayings={
            key: f"{case.title}: {counted(case.request.prompts, 'test prompt')}, thresholds from "
            f"{counted(len(case.request.task) - case.request.prompts, 'ranking prompt')}"
            for key, case in cases.items()
        },
    )


def make_case(key: str, model: Model, config: Config) -> SilentCase:
    """Choose the prompts of a task and the metric."""
    settings = settings_of(config.task_settings, key)
    known = TASKS[key].defaults() if key in TASKS else {}
    if known.get("n") and "path" not in known:  # 0 means all that there are
        settings = {"n": config.pool, **settings}
    task = make_task(key, model.tokenizer, **settings)
    ranking, test = task.split("ranking"), task.split("test")
    ranking = ranking.subset(min(config.ranked, len(ranking)))
    test = test.subset(min(config.n, len(test)))
    if len(test) < 2:
        raise HeadcountError(
            f'The task "{key}" has a single test prompt, which has no interval: give it more.'
        )
    chosen = replace(task, examples=(*ranking.examples, *test.examples))
    metric = get_logit_metric(metric_for(model.encode(chosen)))
    request = SilentRequest(model, chosen, config.scores, metric, config.shares, config.seeds)
    _ = request.activity.examples  # refuses whole texts, before anything is measured
    return SilentCase(key, TASKS[key].name if key in TASKS else task.name, request)


def metric_for(examples: Sequence[Encoded]) -> str:
    """The margin of right over wrong answers; from one pass where all answers have one token."""
    answers = [ids for e in examples for ids in (e.target, *e.also, *e.foils)]
    single = max(map(len, answers)) == 1
    return "logit_difference" if single else "logprob_difference"


def check(config: Config) -> None:
    """Refuse tasks that do not exist, and files without wrong answers."""
    for key in config.tasks:
        settings = settings_of(config.task_settings, key)
        task_factory(key, **settings)
        check_file(key, settings, foils_for=f"the study {KIND.key}")


def conclude(
    model: Model, cases: Mapping[str, SilentCase], config: Config, results: Results
) -> Study:
    """Make estimates, tables and figures from the result of each task."""
    silenced: dict[str, Silenced] = {key: results[key] for key in cases}
    values = _values(cases, silenced)
    facts = plain_facts(_facts(model, cases, silenced, config))
    found = estimate(values, facts)
    models = {model.name: model.facts}
    figures, captions = draw(values, facts, found, models)
    settings = asdict(config)
    settings["task"] = settings.pop("task_settings") or {}
    refused = {s: why for result in silenced.values() for s, why in result.refused.items()}
    left_out = [f"The score {score} is left out: {why}" for score, why in refused.items()]
    return Study(
        name=KIND.key,
        title=f"{KIND.key} · {model.name}",
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


def _values(cases: Mapping[str, SilentCase], silenced: Mapping[str, Silenced]) -> ValueTable:
    """The margin of every prompt, and the share of heads that it loses."""
    table = ValueTable(COLUMNS, SHARED)
    for key, case in cases.items():
        about = {"model": case.request.model.name, "task": key}
        test = case.request.task.split("test")
        table.name_examples([(e.id, *e.cluster) for e in test], **about)
        for (series, score, share), margins in silenced[key].values.items():
            how = {"series": series, "score": score, "count": share}
            table.put(margins, **about, **how, metric=MARGIN)
        for (score, share), lost in silenced[key].zeroed.items():
            how = {"series": PER_INPUT, "score": score, "count": share}
            table.put(lost, **about, **how, metric=ZEROED)
    return table


def _facts(
    model: Model,
    cases: Mapping[str, SilentCase],
    silenced: Mapping[str, Silenced],
    config: Config,
) -> dict[str, Any]:
    """What estimates need besides the values."""
    choice = get_logit_metric("choice")
    tests = {key: case.request.task.split("test") for key, case in cases.items()}
    chances = {key: chance_of(choice, test) for key, test in tests.items()}
    # A score that one task lacks, as where its passes do not fit into memory, is left out of all.
    refused = {score for result in silenced.values() for score in result.refused}
    every = [score for score in config.scores if score not in refused]
    return {
        "model": model.name,
        "total": model.layout.total,
        "tasks": {key: case.title for key, case in cases.items()},
        "scores": every,
        "shares": sorted(config.shares),
        CONSTANT: {str(share): fixed(share, model.layout) for share in config.shares},
        "ranked": {key: len(cases[key].request.task) - len(test) for key, test in tests.items()},
        "chance": {key: asdict(chance) for key, chance in chances.items() if chance},
    }


KIND = StudyKind(
    "silent-heads",
    describe,
    Config,
    PRESETS,
    check=check,
    estimate=estimate,
    draw=draw,
    one_model=True,
)
