"""From what was kept to panels, tables and notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headcount.curves.explained import Explained, ratio_of_counts
from headcount.curves.keep import RANDOM, Kept
from headcount.rankings.agreement import agreement
from headcount.report.curve_study import value_rows
from headcount.stats import Interval
from headcount.studies.heads_kept.cases import Case
from headcount.studies.heads_kept.config import Config

CaseResults = Sequence[tuple[Case, Kept]]
Rows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class TaskCurves:
    """One task with one ablation: curves by the name of the model."""

    key: str
    title: str
    ablation: str
    threshold: float
    top: dict[str, Explained]  # by the headline ranking
    random: dict[str, Explained]  # in random order, where that was measured

    @cached_property
    def needed(self) -> dict[str, float]:
        """The heads that each model needs."""
        return {model: curve.first(self.threshold).value for model, curve in self.top.items()}

    @cached_property
    def ratio(self) -> Interval | None:
        """Heads needed by the first model over those needed by the second, where there is one."""
        if len(self.top) < 2:
            return None
        one, other = self.top.values()
        return ratio_of_counts(one, other, self.threshold)


def curves_by_task(measured: CaseResults, config: Config) -> list[TaskCurves]:
    """The panels of the figures, task by task and within a task ablation by ablation."""
    panels = []
    for key, title in {case.key: case.title for case, _ in measured}.items():
        kept = {case.model: kept for case, kept in measured if case.key == key}
        for ablation in next(iter(kept.values())).values:
            top, random = (
                {
                    model: curves.explained[ablation, order]
                    for model, curves in kept.items()
                    if (ablation, order) in curves.explained
                }
                for order in (config.rankings[0], RANDOM)
            )
            panels.append(TaskCurves(key, title, ablation, config.threshold, top, random))
    return panels


def curve_rows(case: Case, kept: Kept) -> Rows:
    """One row for each ablation, order and count."""
    return [
        {
            "model": case.model,
            "task": case.key,
            "series": "random" if order == RANDOM else "top",
            "metric": "explained_effect",
            "count": count,
            "value": interval.value,
            "low": interval.low,
            "high": interval.high,
            "n": case.request.prompts,
            "draws": len(values := kept.values[ablation].of((order, count))),
            "ranking": order,
            "ablation": ablation,
            "mean_metric": float(values.mean()),
        }
        for (ablation, order), curve in kept.explained.items()
        for count, interval in curve.points
    ]


def tables(
    measured: CaseResults, panels: Sequence[TaskCurves], threshold: float
) -> dict[str, Rows]:
    """Heads needed, ratios, and how far rankings agree; tables without rows are left out."""
    filled = {
        "Heads needed": [row for pair in measured for row in _needed(*pair, threshold)],
        "Ratio of the heads needed": [
            {
                "task": panel.title,
                "ablation": panel.ablation,
                **panel.needed,
                "ratio": panel.ratio.value,
                "low": panel.ratio.low,
                "high": panel.ratio.high,
            }
            for panel in panels
            if panel.ratio is not None
        ],
        "Agreement of the rankings": [row for pair in measured for row in _agreement(*pair)],
    }
    return {title: rows for title, rows in filled.items() if rows}


def _needed(case: Case, kept: Kept, threshold: float) -> Rows:
    total, rows = case.request.model.layout.total, []
    for (ablation, order), curve in kept.explained.items():
        first, last = curve.first(threshold), curve.last(threshold)
        rows.append(
            {
                "task": case.title,
                "model": case.model,
                "ablation": ablation,
                "order": order,
                "first crossing": first.value,
                "low": first.low,
                "high": first.high,
                "last crossing": last.value,
                "last low": last.low,
                "last high": last.high,
                "of": total,
                "metric": case.request.metric.key,
                "all heads": float(kept.values[ablation].of((order, total)).mean()),
                "no head": float(kept.values[ablation].of((order, 0)).mean()),
                "n": case.request.prompts,
            }
        )
    return rows


def _agreement(case: Case, kept: Kept) -> Rows:
    """How far each further ranking agrees with the first."""
    first, *others = kept.scores
    counts = [count for count in (8, 16, 32, 64) if count <= case.request.model.layout.total]
    rows = []
    for other in others:
        agreed = agreement({name: kept.scores[name] for name in (first, other)}, counts)
        common = {f"top {overlap.count} in common": overlap.share for overlap in agreed.overlaps}
        rankings, spearman = f"{first} / {other}", float(agreed.correlation[0, 1])
        who = {"task": case.title, "model": case.model, "rankings": rankings}
        rows.append({**who, "Spearman": spearman, **common})
    return rows


def notes(case: Case, kept: Kept) -> list[str]:
    """What a reader must know about one task and model."""
    first, *_ = kept.scores
    said = [
        f"with the ablation {ablation} the whole model does no better than the one without heads, "
        "so there is no effect to explain."
        for ablation in kept.values
        if not kept.explained[ablation, first].known
    ]
    said.append(f"the ablation is the {kept.values['mean'].ablation}.")
    if case.left_out:
        said.append(
            f"{case.left_out} test prompts were left out, because the ranking split has too few of "
            "their template and length for a mean by position."
        )
    for name, (asked, there) in case.missing.items():
        said.append(
            f"{name} is {there} and not {asked}, because the task has no more such prompts."
        )
    return [f"{case.title}, {case.model}: {text}" for text in said]


def kept_values(case: Case, kept: Kept) -> list[dict[str, Any]]:
    """The metric of every prompt behind the curves of one task and model."""
    rows = []
    for ablation, values in kept.values.items():
        for order, counts in kept.request.orders(ablation).items():
            series = "random" if order == RANDOM else "top"
            raw = {(series, count): values.of((order, count)) for count in counts}
            facts = {"model": case.model, "task": case.key, "ranking": order, "ablation": ablation}
            rows += value_rows(raw, values.clusters, **facts)
    return rows
