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
from headcount.rankings import RANKINGS, Ranking
from headcount.rankings.causal_gates import ROLES
from headcount.report.curve_study import value_rows
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.stats import paired_difference
from headcount.studies import StudyKind
from headcount.studies.description import (
    Description,
    Results,
    StudyRequest,
    Tolerated,
    columns,
    only_model,
    text_metric,
)
from headcount.studies.masked_heads.claims import FunctionPanel, judge_claims
from headcount.studies.masked_heads.config import FRACTIONS, PRESETS, Config
from headcount.studies.masked_heads.figure import draw
from headcount.tasks import FUNCTIONS, Task, make_task, task_factory

SERIES = ("top", "random", "matched")


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
        written = Written.of(test, texts, texts)
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
    _check_rankings(config.rankings)
    _metrics(config)
    for name in check_functions(config.functions):
        task_factory(name, **config.task_settings)


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
    """Check the names of rankings; "all" stands for all but the learned gates and random."""
    if list(names) == ["all"]:
        every = [name for name in RANKINGS if name not in (*ROLES, "random")]
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
            key: make_task(key, model.tokenizer, **self.task_settings) for key in config.functions
        }

    def requests(self) -> dict[Hashable, StudyRequest]:
        first, *others = self.config.rankings
        requests: dict[Hashable, StudyRequest] = {}
        for key, task in self.tasks.items():
            for metric in self.metrics:
                requests[key, first, metric.key] = self._curve(task, first, metric, SERIES)
            scope = self.config.scope
            requests[key, "floors"] = FloorRequest(self.model, task, self.metrics, scope)
            for by in others:
                # A ranking may not suit every task; its refusal must not end the study.
                request = self._curve(task, by, self.metrics[0], SERIES[:1])
                ranking = Ranking.of(self.model, task, by)
                requests[key, by, self.metrics[0].key] = Tolerated(ranking, request)
        return requests

    def _curve(
        self, task: Task, by: str, metric: TextMetric, series: Sequence[str]
    ) -> CurveRequest:
        seeds, epsilon = self.config.seeds, self.config.epsilon
        scope: Any = self.config.scope  # the measurement refuses an unknown scope
        settings = CurveSettings(self.counts, series, seeds, scope=scope, epsilon=epsilon)
        ranking = Ranking.of(self.model, task, by)
        return CurveRequest(self.model, task, ranking, metric, settings)

    def conclude(self, results: Results) -> Study:
        """Make rows, claims and figures from the results."""
        config, name = self.config, self.model.name
        panels: dict[str, FunctionPanel] = {}
        notes: list[str] = []
        for key in config.functions:
            panels[key], left_out = self._panel(key, results)
            notes += left_out
        rows, values, heads = [], [], []
        for key, panel in panels.items():
            for by, curve in panel.curves:
                rows += [{**row, "ranking": by} for row in curve.rows]
                facts = {"model": name, "task": key, "metric": curve.metric.key, "ranking": by}
                values += value_rows(curve.raw, curve.clusters, **facts)
            scores = {by: curve.scores for by, curve in panel.by_ranking.items()}
            clusters = self.tasks[key].split("ranking").clusters
            heads += head_rows(name, key, scores, clusters=clusters)
        every, second = list(panels.values()), self.metrics[1]
        return Study(
            name=KIND.key,
            title=f"{KIND.key} · {name}",
            rows=rows,
            claims=judge_claims(every, self.counts, self.model.layout.total),
            figures=draw(every, config, self.model),
            settings={
                **asdict(config),
                "counts": self.counts,
                "similarity": {"key": second.key, "identity": second.identity()},
                "task": self.task_settings,
            },
            model={name: self.model.facts},
            scores={
                f"{key}-{by}": curve.scores
                for key, panel in panels.items()
                for by, curve in panel.by_ranking.items()
            },
            heads=heads,
            notes=[*notes, *self._differences()],
            tables={"differences": paired_rows(every)},
            values=values,
        )

    def _panel(self, key: str, results: Results) -> tuple[FunctionPanel, list[str]]:
        """The curves of a function, and notes on curves that are missing."""
        (first, *_), name = self.config.rankings, FUNCTIONS[key].name
        accuracy, similarity = self.metrics
        by_ranking = {by: results[key, by, accuracy.key] for by in self.config.rankings}
        curves = {by: curve for by, curve in by_ranking.items() if isinstance(curve, Curve)}
        second = results[key, first, similarity.key]
        notes = [f"{name}: {text}" for text in curves[first].notes]
        notes += [
            f"{name}: no ranking by {by}: {refusal}"
            for by, refusal in by_ranking.items()
            if by not in curves
        ]
        return FunctionPanel(name, curves, second, results[key, "floors"]), notes

    def _differences(self) -> list[str]:
        """Notes for readers of the paper: how this run differs from it."""
        config, second, total = self.config, self.metrics[1], self.model.layout.total
        shares = ", ".join(f"{100 * count / total:.1f} %" for count in self.counts if count)
        notes = [
            "The published figure is of Llama-3.1-8B-Instruct with 1,024 heads. "
            f"{self.model.name} has {total} heads, and the counts are {shares} of them.",
            "The items are our own: a short question with one short answer each. Random heads are "
            f"drawn from the heads outside TopK, in {counted(config.seeds, 'draw')}.",
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
        return notes


KIND = StudyKind("masked-heads", describe, Config, PRESETS, check=check)


def paired_rows(panels: Sequence[FunctionPanel]) -> list[dict[str, Any]]:
    """TopK minus each control at each count, paired by item.

    The controls belong to the first ranking: random heads outside its TopK, and random heads of the
    same layers. Other rankings are compared with the former only, since the latter are drawn from
    the layers of the first ranking.
    """
    rows = []
    for panel in panels:
        first = next(iter(panel.by_ranking))
        for by, curve in panel.curves:
            controls = curve if by == first else panel.accuracy
            wanted = SERIES[1:] if by == first else SERIES[1:2]
            for (control, count), values in controls.raw.items():
                if control in wanted and count:
                    top = curve.raw["top", count]
                    difference = paired_difference(top, values, clusters=curve.clusters)
                    rows.append(
                        {
                            "model": curve.points[0].model,
                            "task": curve.points[0].task,
                            "ranking": by,
                            "metric": curve.metric.key,
                            "difference": f"top minus {control}",
                            "control_of": first,
                            "count": count,
                            **columns(difference),
                            "n": top.shape[-1],
                        }
                    )
    return rows


def published_counts(layout: HeadLayout) -> list[int]:
    """The published fractions of the heads, as the nearest powers of two.

    >>> published_counts(HeadLayout((9,) * 30))
    [4, 8, 16, 32]
    """
    wanted = [2 ** round(math.log2(max(1, layout.total * share))) for share in FRACTIONS]
    return sorted({count for count in wanted if count <= layout.total})
