"""Study `transfer`: rank heads on one task, mask them, test on another, for all pairs of tasks.

Heads that matter for a task are heads *of* that task only if others need them less. Published for
the eight cognitive functions of "Cognitive Mirrors" (Ma et al., NeurIPS 2025), whose functions of
the low level are said to feed those of the high one.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from headcount.curves.transfer import TransferRequest
from headcount.engine.measure.sweep import Values
from headcount.errors import HeadcountError, counted
from headcount.heads import HeadScores, check_counts
from headcount.metrics import Metric, TextMetric, get_metric
from headcount.metrics.chance import Chance, chance_of
from headcount.models.model import Model
from headcount.rankings import RANKINGS, Ranking
from headcount.rankings.random_draws import draw_matched
from headcount.registry import settings_of
from headcount.report.estimates import plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import Description, Results, StudyRequest, only_model
from headcount.studies.masked_heads.study import published_counts
from headcount.studies.transfer.config import PRESETS, Config
from headcount.studies.transfer.estimates import estimate
from headcount.studies.transfer.figure import draw
from headcount.studies.transfer.panels import COLUMNS, SHARED
from headcount.tasks import FUNCTIONS, TASKS, Task, make_task, task_factory
from headcount.value_table import ValueTable


def describe(models: Sequence[Model], config: Config) -> Description:
    """One request for each tested task, which ranks the heads on all tasks."""
    study = _Transfer(only_model(models, KIND.key), config)
    requests = dict(study.rankings)
    requests |= {("tested", key): request for key, request in study.requests.items()}
    return Description(requests, study.conclude)


def check(config: Config) -> None:
    """Refuse tasks, rankings, metrics, counts and settings of tasks that do not exist."""
    _ = RANKINGS[config.ranking]
    _scalable(config.metric)
    if config.counts is not None and (0 in config.counts or not check_counts(config.counts)):
        raise HeadcountError("transfer masks heads: name counts above 0.")
    for key in task_keys(config.tasks):
        task_factory(key, **own_settings(key, config.task_settings))
    for name in settings_of(config.task_settings, ""):
        if not any(name in _known(key) for key in task_keys(config.tasks)):
            task_factory(task_keys(config.tasks)[0], **{name: config.task_settings[name]})


def _scalable(name: str) -> Metric | TextMetric:
    """The metric of this name; one without a known level of chance is refused."""
    metric = get_metric(name)
    difference = metric.key.removesuffix("_per_token").endswith("_difference")
    if not (metric.binary or difference or metric.key == "logprob"):
        raise HeadcountError(
            f"transfer divides each loss by what can be lost, and nobody knows what {metric.key} "
            "is by chance: choose exact_match, accuracy, choice, logit_difference or logprob."
        )
    return metric


def chance_level(metric: Metric | TextMetric, task: Task) -> Chance:
    """What a model reaches on a task that knows nothing about the question.

    By log-probability that is a model that knows how often each answer is right, and no more.
    """
    if known := chance_of(metric, task):
        return known
    targets = [example.target.strip() for example in task]
    shares = [targets.count(target) / len(targets) for target in targets]
    level = sum(map(math.log, shares)) / len(shares)
    return Chance(level, "knowing only how often each answer is right")


def task_keys(names: Sequence[str]) -> tuple[str, ...]:
    """The tasks in order, each once; "all" stands for the eight cognitive functions."""
    keys = [key for name in names for key in (FUNCTIONS if name == "all" else [name])]
    return tuple(dict.fromkeys(map(str, keys)))


def _known(key: str) -> Mapping[str, Any]:
    entry = key if key in TASKS else "circuit" if key.endswith(".json") else "jsonl"
    return TASKS[entry].defaults()


def own_settings(key: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the settings for all tasks that a task has, and those under its name."""
    for_all = settings_of(settings, "")
    own = {name: value for name, value in for_all.items() if name in _known(key)}
    return own | dict(settings.get(key, {}))


class _Transfer:
    """The study on one model: its tasks, requests and conclusions."""

    def __init__(self, model: Model, config: Config) -> None:
        self.model, self.config, self.metric = model, config, _scalable(config.metric)
        asked = published_counts(model.layout) if config.counts is None else config.counts
        self.counts = check_counts(asked, model.layout)
        if 2 * self.counts[-1] > model.layout.total:
            raise HeadcountError(
                f"Layer-matched controls need {counted(self.counts[-1], 'head')} outside the best "
                f"{self.counts[-1]}, and {model.name} has only "
                f"{counted(model.layout.total, 'head')}: choose smaller counts."
            )
        self.tasks = {key: self._task(key) for key in task_keys(config.tasks)}
        rankings = {
            key: Ranking.of(model, task, config.ranking) for key, task in self.tasks.items()
        }
        self.rankings: dict[Hashable, StudyRequest] = {
            ("ranking", key): ranking for key, ranking in rankings.items()
        }
        how = self.metric, self.counts, config.seeds, config.scope, config.epsilon
        self.requests = {
            key: TransferRequest(model, rankings, key, *how)  # type: ignore[arg-type]
            for key in self.tasks
        }

    def _task(self, key: str) -> Task:
        settings = own_settings(key, self.config.task_settings)
        task = make_task(key, self.model.tokenizer, **settings)
        return task.subset(min(self.config.n, len(task))) if self.config.n else task

    def conclude(self, results: Results) -> Study:
        """Make estimates, figures and tables of heads from the results."""
        config, name = self.config, self.model.name
        scores = {key: results["ranking", key] for key in self.tasks}
        values = self._values(results)
        facts = plain_facts(self._facts(scores))
        found = estimate(values, facts)
        heads: list[dict[str, Any]] = []
        for key, task in self.tasks.items():
            clusters = task.split("ranking").clusters
            heads += head_rows(name, key, {config.ranking: scores[key]}, clusters=clusters)
        models = {name: self.model.facts}
        figures, captions = draw(values, facts, found, models)
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {name}",
            rows=found.rows,
            claims=found.claims,
            figures=figures,
            captions=captions,
            settings={
                **asdict(config),
                "tasks": list(self.tasks),
                "counts": [0, *self.counts],
                "task": dict(config.task_settings),
            },
            model=models,
            scores={f"{key}-{config.ranking}": score for key, score in scores.items()},
            heads=heads,
            notes=[*found.notes, *self._notes(scores)],
            tables=found.tables,
            values=values,
            facts=facts,
        )

    def _values(self, results: Results) -> ValueTable:
        """The value of every item under every head set."""
        table = ValueTable(COLUMNS, SHARED)
        for key, task in self.tasks.items():
            about = {"model": self.model.name, "task": key}
            table.name_examples([(e.id, *e.cluster) for e in task.split("test")], **about)
            values: Values = results["tested", key]
            for label in self.requests[key].labels:
                how = {**asdict(label), "metric": self.metric.key}
                table.put(values.of(label), **about, **how)
        return table

    def _facts(self, scores: Mapping[str, HeadScores]) -> dict[str, Any]:
        """What estimates need besides the values."""
        return {
            "model": self.model.name,
            "total": self.model.layout.total,
            "tasks": {key: self._name(key) for key in self.tasks},
            "levels": {key: FUNCTIONS[key].level for key in self.tasks if key in FUNCTIONS},
            "ranking": self.config.ranking,
            "counts": self.counts,
            "seeds": self.config.seeds,
            "metric": {
                "key": self.metric.key,
                "name": self.metric.name,
                "binary": self.metric.binary,
            },
            "chance": {
                key: asdict(chance_level(self.metric, task)) for key, task in self.tasks.items()
            },
            "best": {
                key: {count: list(map(str, score.top(count))) for count in self.counts}
                for key, score in scores.items()
            },
        }

    @staticmethod
    def _name(key: str) -> str:
        return TASKS[key].name if key in TASKS else Path(key).stem

    def _notes(self, scores: Mapping[str, HeadScores]) -> list[str]:
        config, total = self.config, self.model.layout.total
        shares = ", ".join(f"{100 * count / total:.1f} %" for count in self.counts)
        notes = [
            f"Heads were ranked by {config.ranking} on the ranking split of each task, and outputs "
            f"of masked heads are multiplied by {config.epsilon:g}. The counts are {shares} of "
            f"{total} heads.",
            "Intervals hold the rankings fixed: other ranking prompts were not tried.",
            "Heads high on another task are those among its K best, and heads that are left out "
            "make room for the next best ones†.",
        ]
        if config.scope == "decode":
            notes.append(
                "Heads are masked only in decoding steps: the first new token comes from the whole "
                "model, so answers of a single token cannot change."
            )
        for key, score in scores.items():
            draws = [
                draw_matched(self.model.layout, score.best(count).tolist(), seed=seed)[1]
                for count in self.counts
                for seed in range(config.seeds)
            ]
            if unmatched := float(np.mean(draws)):
                notes.append(
                    f"{self._name(key)}: {100 * unmatched:.0f} % of the layer-matched heads had to "
                    "come from another layer."
                )
        return notes


KIND = StudyKind(
    "transfer", describe, Config, PRESETS, check=check, estimate=estimate, draw=draw, one_model=True
)
