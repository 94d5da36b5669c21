"""Study `masked-heads`: mask the heads that matter for a cognitive function, and random ones.

After "Cognitive Mirrors" (Ma et al., NeurIPS 2025), Figure 3. For each function: rank the heads on
one part of its items; on the other part mask the best K, K random ones, and K random ones of the
same layers; let the model answer; score the answers against gold and against what the whole model
answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from headcount.curves import Curve, CurveRequest, CurveSettings
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.write.writing import Writing
from headcount.errors import HeadcountError
from headcount.heads import HeadLayout, check_counts
from headcount.lab import Lab
from headcount.metrics import TextMetric, Written, floor
from headcount.models.model import Model
from headcount.rankings import Ranking
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.stats import paired_difference
from headcount.studies.description import Description, Results, StudyKind, Tolerated, only_model
from headcount.studies.masked_heads.claims import Panel, judge_claims
from headcount.studies.masked_heads.config import FRACTIONS, PRESETS, Config
from headcount.studies.masked_heads.figure import draw
from headcount.studies.masked_heads.metrics import (
    check_functions,
    check_rankings,
    second_metric,
    text_metric,
)
from headcount.tasks import FUNCTIONS, Task, make_task

SERIES = ("top", "random", "matched")


@dataclass(frozen=True, eq=False)
class FloorRequest:
    """What each metric gives for answers of the right kind to the wrong question."""

    model: Model
    task: Task
    metrics: tuple[TextMetric, TextMetric]
    scope: str

    def _writing(self) -> Writing:
        whole = HeadSets.of(np.ones(self.model.layout.total), self.model.layout)
        return Writing(self.model, self.task, whole, scope=self.scope)  # type: ignore[arg-type]

    def count(self, counter: Counter) -> None:
        """The whole model's answers."""
        counter.writing(self._writing())

    def result(self, lab: Lab) -> tuple[float, float]:
        """The floors of both metrics."""
        test = self.task.part("test")
        texts = lab.write(self._writing()).of(0)
        golds = [example.target.strip() for example in test]
        written = Written(texts, golds, texts, [example.prompt for example in test])
        return floor(self.metrics[0], written), floor(self.metrics[1], written)


def describe(models: Sequence[Model], config: Config) -> Description:
    """Curves of every function by every ranking; of the first one with controls and floors."""
    model = only_model(models, "masked-heads")
    config = replace(
        config,
        functions=check_functions(config.functions),
        rankings=check_rankings(config.rankings),
    )
    study = _MaskedHeads(model, config)
    requests: dict[Any, Any] = {}
    for key in config.functions:
        task = study.tasks[key]
        for method in config.rankings:
            ranking = Ranking.of(model, task, method)
            if method == config.rankings[0]:
                for metric in study.metrics:
                    chosen = study.curve_settings(SERIES)
                    requests[key, method, metric.key] = CurveRequest(
                        model, task, ranking, metric, chosen
                    )
                requests[key, "floors"] = FloorRequest(model, task, study.metrics, config.scope)
            else:
                # Some rankings suit some tasks; the others' figures are not to be lost for it.
                first, chosen = study.metrics[0], study.curve_settings(("top",))
                request = CurveRequest(model, task, ranking, first, chosen)
                requests[key, method, first.key] = Tolerated(request)
    return Description(requests, study.conclude)


class _MaskedHeads:
    """The study on one model: its tasks, and what is made of its curves."""

    def __init__(self, model: Model, config: Config) -> None:
        self.model, self.config = model, config
        self.metrics = text_metric(config.accuracy), second_metric(config.similarity)
        counts = published_counts(model.layout) if config.counts is None else config.counts
        self.counts = check_counts([0, *counts], model.layout)
        if 2 * self.counts[1] > model.layout.total:
            raise HeadcountError(
                f"Random controls need as many heads outside the top {self.counts[1]}, and "
                f"{model.name} has {model.layout.total} in all: choose a smaller count."
            )
        self.task_settings = {"n": config.n, **config.task_settings}
        self.tasks = {
            key: make_task(key, model.tokenizer, **self.task_settings) for key in config.functions
        }

    def curve_settings(self, series: Sequence[str]) -> CurveSettings:
        config = self.config
        return CurveSettings(
            counts=self.counts,
            series=series,
            seeds=config.seeds,
            scope=config.scope,  # type: ignore[arg-type]
            epsilon=config.epsilon,
        )

    def conclude(self, results: Results) -> Study:
        """Rows, claims and figures."""
        config, (first, second) = self.config, self.metrics
        headline = config.rankings[0]
        notes: list[str] = []
        panels: list[Panel] = []
        rows: list[dict[str, Any]] = []
        by_ranking: dict[str, dict[str, Curve]] = {}
        for key in config.functions:
            name, curves = FUNCTIONS[key].name, by_ranking.setdefault(FUNCTIONS[key].name, {})
            for method in config.rankings:
                curve = results[key, method, first.key]
                if isinstance(curve, HeadcountError):
                    notes.append(f"{name}: no ranking by {method}: {curve}")
                    continue
                curves[method] = curve
                drawn = [curve]
                if method == headline:
                    drawn.append(results[key, method, second.key])
                    notes += [f"{name}: {text}" for text in curve.left_out]
                    panels.append(Panel(name, drawn[0], drawn[1], results[key, "floors"]))
                rows += [{**asdict(p), "ranking": method} for one in drawn for p in one.points]
        return Study(
            name="masked-heads",
            title=f"masked-heads · {self.model.name}",
            rows=rows,
            claims=judge_claims(panels, self.counts, self.model.layout.total),
            figures=draw(panels, by_ranking, self.metrics, config, self.model),
            settings={
                **asdict(config),
                "counts": self.counts,
                "similarity": {"key": second.key, "identity": second.identity()},
                "task": self.task_settings,
            },
            model={self.model.name: self.model.facts},
            scores=self._scores(by_ranking),
            heads=self._heads(by_ranking),
            notes=[*notes, *self._differences()],
            tables={"differences": paired_rows(panels, by_ranking)},
        )

    def _scores(self, by_ranking: Mapping[str, Mapping[str, Curve]]) -> dict[str, Any]:
        return {
            f"{key}-{method}": curve.scores
            for key in self.config.functions
            for method, curve in by_ranking[FUNCTIONS[key].name].items()
        }

    def _heads(self, by_ranking: Mapping[str, Mapping[str, Curve]]) -> list[dict[str, Any]]:
        rows = []
        for key, task in self.tasks.items():
            curves = by_ranking[FUNCTIONS[key].name]
            scores = {method: curve.scores for method, curve in curves.items()}
            clusters = task.part("ranking").clusters
            rows += head_rows(self.model.name, key, scores, clusters=clusters)
        return rows

    def _differences(self) -> list[str]:
        """What a reader of the paper must know."""
        config, second, total = self.config, self.metrics[1], self.model.layout.total
        shares = ", ".join(f"{100 * count / total:.1f} %" for count in self.counts if count)
        notes = [
            f"Published for Llama-3.1-8B-Instruct with 1,024 heads; {self.model.name} has {total}: "
            f"the counts are {shares} of them.",
            "Items are our own, a short question with one short answer each; random heads are "
            "drawn from those outside TopK, several times.",
            f"Masked heads are multiplied by {config.epsilon:g} (paper 0.001, its code 0.0001).",
        ]
        if second.key != "comet":
            notes.append(f"The second metric is not COMET but: {second.name}.")
        if config.scope == "decode":
            notes.append(
                "Only decoding steps are masked: the first new token comes from the whole model, "
                "so answers of one token cannot change."
            )
        return notes


KIND = StudyKind("masked-heads", Config, PRESETS, ("smollm2-135m",), describe)


def paired_rows(
    panels: Sequence[Panel], by_ranking: Mapping[str, Mapping[str, Curve]]
) -> list[dict[str, Any]]:
    """TopK minus each control at each count, item by item.

    Controls are those of the first ranking: heads outside its TopK, and of its layers. Other
    rankings are set against the former only, as what any heads do.
    """
    rows = []
    for panel in panels:
        first, *others = by_ranking[panel.name]
        pairs: list[tuple[str, Curve, Curve, Sequence[str]]] = [
            (first, panel.accuracy, panel.accuracy, SERIES[1:])
        ]
        if panel.similarity.metric.key != panel.accuracy.metric.key:
            pairs.append((first, panel.similarity, panel.similarity, SERIES[1:]))
        for method in others:
            pairs.append((method, by_ranking[panel.name][method], panel.accuracy, SERIES[1:2]))
        for method, best, controls, wanted in pairs:
            for control, count in controls.raw:
                if control in wanted and count:
                    row = _paired_row(method, best, controls, control, count)
                    rows.append({**row, "control_of": first})
    return rows


def _paired_row(
    method: str, best: Curve, controls: Curve, control: str, count: int
) -> dict[str, Any]:
    top, other = best.values.of(("top", count)), controls.values.of((control, count))
    difference = paired_difference(top, other, clusters=best.clusters)
    return {
        "model": best.points[0].model,
        "task": best.points[0].task,
        "ranking": method,
        "metric": best.metric.key,
        "difference": f"top less {control}",
        "control_of": "",
        "count": count,
        "value": difference.value,
        "low": difference.low,
        "high": difference.high,
        "n": top.shape[-1],
    }


def published_counts(layout: HeadLayout) -> list[int]:
    """The published fractions of the heads, as the nearest powers of two.

    >>> published_counts(HeadLayout((9,) * 30))
    [4, 8, 16, 32]
    """
    wanted = [2 ** round(math.log2(max(1, layout.total * share))) for share in FRACTIONS]
    return sorted({count for count in wanted if count <= layout.total})
