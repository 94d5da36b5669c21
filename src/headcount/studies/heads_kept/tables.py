"""The panels, tables and notes of `heads-kept`, made from the results of its cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from headcount.curves.explained import Explained, ratio_of_counts
from headcount.curves.keep import RANDOM, Kept
from headcount.errors import counted
from headcount.rankings.agreement import agreement
from headcount.report.curve_study import value_rows
from headcount.stats import Interval
from headcount.studies.heads_kept.cases import Case
from headcount.studies.heads_kept.config import Config

CaseResults = Sequence[tuple[Case, Kept]]
Rows = list[dict[str, Any]]


@dataclass(frozen=True, eq=False)
class TaskCurves:
    """The curves of one task with one ablation, by the name of the model."""

    key: str
    title: str
    ablation: str
    threshold: float
    top: dict[str, Explained]  # heads kept in the order of the first ranking
    random: dict[str, Explained]  # heads kept in random order, if that was measured
    at_chance: Mapping[str, str] = field(default_factory=dict)  # a sentence by model, where it is

    @cached_property
    def needed(self) -> dict[str, float]:
        """The number of heads that each model needs to reach the threshold."""
        return {model: curve.first(self.threshold).value for model, curve in self.top.items()}

    @cached_property
    def ratio(self) -> Interval | None:
        """The heads needed by the first model over those of the second; None with one model."""
        if len(self.top) < 2:
            return None
        first, second = self.top.values()
        return ratio_of_counts(first, second, self.threshold)


def curves_by_task(measured: CaseResults, config: Config) -> list[TaskCurves]:
    """The panels of the figures, one for each task and ablation."""
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
            sentences = {model: curves.at_chance for model, curves in kept.items()}
            at_chance = {model: sentence for model, sentence in sentences.items() if sentence}
            about = key, title, ablation, config.threshold
            panels.append(TaskCurves(*about, top, random, at_chance))
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
    """Heads needed, their ratios, and the agreement of rankings, without empty tables."""
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
    """The agreement of each further ranking with the first one."""
    first, *others = kept.scores
    counts = [count for count in (8, 16, 32, 64) if count <= case.request.model.layout.total]
    rows = []
    for other in others:
        agreed = agreement({name: kept.scores[name] for name in (first, other)}, counts)
        common = {f"top {overlap.count} in common": overlap.share for overlap in agreed.overlaps}
        rankings, spearman = f"{first} / {other}", float(agreed.correlation[0, 1])
        about = {"task": case.title, "model": case.model, "rankings": rankings}
        rows.append({**about, "Spearman": spearman, **common})
    return rows


def notes(case: Case, kept: Kept) -> list[str]:
    """What a reader must know about one task and model."""
    first, *_ = kept.scores
    texts = [kept.at_chance] * bool(kept.at_chance)
    texts += [
        f"with the ablation {ablation}, the model does no better with all heads than with none, so "
        "there is no effect to explain."
        for ablation in kept.values
        if not kept.explained[ablation, first].known
    ]
    texts.append(f"the mean ablation is the {kept.values['mean'].ablation}.")
    if case.left_out:
        texts.append(
            f"this case leaves out {counted(case.left_out, 'test prompt')}, because the ranking "
            "split has too few prompts of the same template and length for a mean by position."
        )
    for name, (asked, there) in case.missing.items():
        texts.append(
            f"{name} is {there} and not {asked}, because the task has no more such prompts."
        )
    return [f"{case.title}, {case.model}: {text}" for text in texts]


def kept_values(case: Case, kept: Kept) -> list[dict[str, Any]]:
    """The metric of every prompt, from which the curves of one task and model are made."""
    rows = []
    for ablation, values in kept.values.items():
        for order, counts in kept.request.orders(ablation).items():
            series = "random" if order == RANDOM else "top"
            raw = {(series, count): values.of((order, count)) for count in counts}
            facts = {"model": case.model, "task": case.key, "ranking": order, "ablation": ablation}
            rows += value_rows(raw, values.clusters, **facts)
    return rows
