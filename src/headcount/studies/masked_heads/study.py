"""Study `masked-heads`: mask the best heads for a cognitive function, or random heads.

After "Cognitive Mirrors" (Ma et al., NeurIPS 2025), Figure 3. For each function: rank the heads on
the ranking split; on the test split, mask the best K heads (TopK), K random heads (RandomK), and K
random heads of the same layers; let the model answer; compare its answers with the right answers,
and with those of the whole model.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from headcount.curves import Curve, CurveRequest, CurveSettings
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.write.writing import Writing
from headcount.errors import HeadcountError, counted, unknown
from headcount.heads import HeadLayout, check_counts
from headcount.lab import Lab
from headcount.metrics import TextMetric, Written, floor
from headcount.metrics.comet import find_program
from headcount.models.model import Model
from headcount.rankings import JOINT, RANKINGS, Ranking
from headcount.rankings.causal_gates import ROLES
from headcount.registry import settings_of
from headcount.report.estimates import plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.studies import StudyKind
from headcount.studies.description import (
    Description,
    Results,
    StudyRequest,
    Tolerated,
    only_model,
    text_metric,
)
from headcount.studies.masked_heads.config import FRACTIONS, PRESETS, Config
from headcount.studies.masked_heads.estimates import estimate
from headcount.studies.masked_heads.figure import draw
from headcount.studies.masked_heads.panels import AGAIN, ANYWHERE, COLUMNS, SERIES
from headcount.tasks import FUNCTIONS, Task, make_task, task_factory
from headcount.value_table import ValueTable


@dataclass(frozen=True, eq=False)
class FloorRequest:
    """A request for the floors: each metric on answers that were given to other questions."""

    model: Model
    task: Task
    metrics: tuple[TextMetric, TextMetric]
    scope: Any

    def _writing(self) -> Writing:
        whole = HeadSets.of(np.ones(self.model.layout.total), self.model.layout)
        return Writing(self.model, self.task, whole, scope=self.scope)

    def count(self, counter: Counter) -> None:
        """Count the answers of the whole model."""
        counter.writing(self._writing())

    def result(self, lab: Lab) -> tuple[float, float]:
        """The floors of both metrics."""
        test = self.task.split("test")
        texts = lab.write(self._writing()).of(0)
        written = Written.of(test, texts, texts, test.until)
        return floor(self.metrics[0], written), floor(self.metrics[1], written)


def describe(models: Sequence[Model], config: Config) -> Description:
    """Curves of every function by every ranking; controls and floors for the first ranking."""
    functions, rankings = check_functions(config.functions), _check_rankings(config.rankings)
    config = replace(config, functions=functions, rankings=rankings)
    study = _MaskedHeads(only_model(models, KIND.key), config)
    return Description(study.requests(), study.conclude)


def check(config: Config) -> None:
    """Refuse functions, rankings, metrics, counts and settings of tasks that do not exist."""
    if config.counts is not None and not any(check_counts(config.counts)):
        raise HeadcountError(
            "masked-heads compares masked heads with the whole model: name a count above 0."
        )
    for ranking in _check_rankings(config.rankings):
        RANKINGS[ranking].bind(**settings_of(config.ranking_settings, ranking))
    _metrics(config)
    for name in check_functions(config.functions):
        task_factory(name, **settings_of(config.task_settings, name))


def _metrics(config: Config) -> tuple[TextMetric, TextMetric]:
    """The two metrics of the figure."""
    second = config.similarity
    if second == "auto":
        second = "similarity"
        with suppress(HeadcountError):
            find_program()
            second = "comet"
    instead = "exact_match or published_accuracy"
    return text_metric(config.accuracy, instead), text_metric(second, instead)


def check_functions(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names of functions; "all" stands for all functions."""
    if list(names) == ["all"]:
        return tuple(FUNCTIONS)
    for name in names:
        if name not in FUNCTIONS:
            raise unknown("cognitive function", name, FUNCTIONS)
    return tuple(names)


def _check_rankings(names: Sequence[str]) -> tuple[str, ...]:
    """Check the names of rankings; "all" takes all but random, joint ones and learned gates."""
    if list(names) == ["all"]:
        every = [name for name in RANKINGS if name not in (*ROLES, *JOINT, "random")]
        return tuple(sorted(every, key="attribution".__ne__))  # it makes the figure
    return tuple(dict.fromkeys(RANKINGS[name].key for name in names))


class _MaskedHeads:
    """The study on one model: its tasks, requests and conclusions."""

    def __init__(self, model: Model, config: Config) -> None:
        self.model, self.config, self.metrics = model, config, _metrics(config)
        counts = published_counts(model.layout) if config.counts is None else config.counts
        self.counts = check_counts([0, *counts], model.layout)
        if 2 * self.counts[1] > model.layout.total:
            least = counted(self.counts[1], "head")
            instead = "choose a smaller count" if self.counts[1] > 1 else "choose another model"
            raise HeadcountError(
                f"RandomK needs {least} outside the top {self.counts[1]}, and {model.name} has "
                f"only {counted(model.layout.total, 'head')}: {instead}."
            )
        self.task_settings = {"n": config.n, **config.task_settings}
        self.tasks = {
            key: make_task(key, model.tokenizer, **settings_of(self.task_settings, key))
            for key in config.functions
        }

    def requests(self) -> dict[Hashable, StudyRequest]:
        config, accuracy = self.config, self.metrics[0]
        first, *others = config.rankings
        requests: dict[Hashable, StudyRequest] = {}
        for key, task in self.tasks.items():
            for metric in self.metrics:
                requests[key, first, metric.key] = self._curve(task, first, metric, SERIES)
                if config.rerankings:
                    how: dict[str, Any] = {"seeds": config.rerankings, "counts": self.counts[1:]}
                    again = self._curve(task, first, metric, (AGAIN,), **how)
                    requests[key, AGAIN, metric.key] = again
            if config.anywhere:
                how = {"seeds": config.anywhere, "counts": [self._ranked_count]}
                requests[key, ANYWHERE] = self._curve(task, first, accuracy, (ANYWHERE,), **how)
            requests[key, "floors"] = FloorRequest(self.model, task, self.metrics, config.scope)
            for by in others:
                # A ranking may not suit every task; its refusal must not end the study.
                request = self._curve(task, by, accuracy, SERIES[:1])
                requests[key, by, accuracy.key] = Tolerated(self._ranking(task, by), request)
        return requests

    @property
    def _ranked_count(self) -> int:
        """The count at which TopK is ranked among random draws: nearest to 32 of 1,024 heads."""
        wanted = FRACTIONS[1] * self.model.layout.total
        return min(self.counts[1:], key=lambda count: abs(math.log(count / wanted)))

    def _curve(
        self, task: Task, by: str, metric: TextMetric, series: Sequence[str], **how: Any
    ) -> CurveRequest:
        settings = CurveSettings(
            series=series,
            scope=self.config.scope,  # type: ignore[arg-type]  # the measurement refuses others
            epsilon=self.config.epsilon,
            **{"counts": self.counts, "seeds": self.config.seeds, **how},
        )
        return CurveRequest(self.model, task, self._ranking(task, by), metric, settings)

    def _ranking(self, task: Task, by: str) -> Ranking:
        settings = settings_of(self.config.ranking_settings, by)
        return Ranking.of(self.model, task, by, **settings)

    def conclude(self, results: Results) -> Study:
        """Make estimates, figures and tables of heads from the results."""
        config, name, second = self.config, self.model.name, self.metrics[1]
        values, notes = self._values(results)
        facts = plain_facts(self._facts(results))
        found = estimate(values, facts)
        scores = {
            (key, by): results[key, by, self.metrics[0].key].scores
            for key in config.functions
            for by in values.names("ranking", task=key)
        }
        heads: list[dict[str, Any]] = []
        for key, task in self.tasks.items():
            own = {by: score for (of, by), score in scores.items() if of == key}
            heads += head_rows(name, key, own, clusters=task.split("ranking").clusters)
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
                "counts": self.counts,
                "similarity": {"key": second.key, "identity": second.identity()},
                "task": self.task_settings,
            },
            model=models,
            scores={f"{key}-{by}": score for (key, by), score in scores.items()},
            heads=heads,
            notes=[*found.notes, *notes, *self._differences()],
            tables=found.tables,
            values=values,
            facts=facts,
        )

    def _values(self, results: Results) -> tuple[ValueTable, list[str]]:
        """The value of every item under every head set, and notes on curves that are missing."""
        values, notes = ValueTable(COLUMNS, ("model", "task")), []
        for key, task in self.tasks.items():
            about: dict[str, Any] = {"model": self.model.name, "task": key}
            test = task.split("test")
            values.name_examples([(e.id, *e.cluster) for e in test], **about)
            for asked, curve in results.items():
                of, which, *_ = asked if isinstance(asked, tuple) else (asked, "")
                if of != key or which == "floors":
                    continue
                by = self.config.rankings[0] if which in (AGAIN, ANYWHERE) else which
                if not isinstance(curve, Curve):
                    notes.append(f"{FUNCTIONS[key].name}: no ranking by {by}: {curve}")
                    continue
                notes += [f"{FUNCTIONS[key].name}: {text}" for text in curve.left_out]
                about |= {"ranking": by, "metric": curve.metric.key}
                for (series, count), table in curve.raw.items():
                    if count or series == "top":  # with no head masked, all series are one
                        values.put(table, **about, series=series, count=count)
        return values, notes

    def _facts(self, results: Results) -> dict[str, Any]:
        """What estimates need besides the values."""
        first, accuracy = self.config.rankings[0], self.metrics[0].key
        curves = {key: results[key, first, accuracy] for key in self.tasks}
        metrics = {metric.key: metric for metric in self.metrics}
        chances = {key: curve.values.chance for key, curve in curves.items()}
        return {
            "model": self.model.name,
            "total": self.model.layout.total,
            "functions": {key: FUNCTIONS[key].name for key in self.tasks},
            "metrics": [
                {
                    "key": metric.key,
                    "name": metric.name,
                    "binary": metric.binary,
                    "most": metric.most,
                }
                for metric in metrics.values()
            ],
            "floors": {
                key: dict(zip(metrics, results[key, "floors"], strict=False)) for key in self.tasks
            },
            "chance": {key: asdict(chance) for key, chance in chances.items() if chance},
            "unmatched": {
                key: {p.count: p.unmatched for p in curve.series("matched") if p.unmatched}
                for key, curve in curves.items()
            },
        }

    def _items(self) -> str:
        """Whose items are asked, as a sentence."""
        given = [settings_of(self.task_settings, key) for key in self.tasks]
        paths = {str(own.get(name, "")) for own in given for name in ("path", "test")} - {""}
        if not paths:
            return "The items are our own: a short question with one short answer each."
        return f"The items are those of {' and '.join(sorted(paths))}."

    def _differences(self) -> list[str]:
        """Notes for readers of the paper: how this run differs from it."""
        config, second, total = self.config, self.metrics[1], self.model.layout.total
        shares = ", ".join(f"{100 * count / total:.1f} %" for count in self.counts if count)
        notes = [
            "The published figure is of Llama-3.1-8B-Instruct with 1,024 heads. "
            f"{self.model.name} has {total} heads, and the counts are {shares} of them.",
            f"{self._items()} Random heads are drawn from the heads outside TopK, in "
            f"{counted(config.seeds, 'draw')}.",
            f"The outputs of masked heads are multiplied by {config.epsilon:g} (in the paper by "
            "0.001, in its code by 0.0001).",
        ]
        if second.key != "comet":
            notes.append(
                f"The second metric is {second.name}, not COMET, so its values cannot be compared "
                "with the published ones."
            )
        if config.scope == "decode":
            notes.append(
                "Heads are masked only in decoding steps: the first new token comes from the whole "
                "model, so answers of a single token cannot change."
            )
        if not config.rerankings:
            notes.append("Intervals hold the ranking fixed: other ranking prompts were not tried.")
        return notes


KIND = StudyKind(
    "masked-heads",
    describe,
    Config,
    PRESETS,
    check=check,
    estimate=estimate,
    draw=draw,
    one_model=True,
)


def published_counts(layout: HeadLayout) -> list[int]:
    """The published fractions of the heads, as the nearest powers of two.

    >>> published_counts(HeadLayout((9,) * 30))
    [4, 8, 16, 32]
    """
    wanted = [2 ** round(math.log2(max(1, layout.total * share))) for share in FRACTIONS]
    return sorted({count for count in wanted if count <= layout.total})
