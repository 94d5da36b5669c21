"""Standard benchmarks under head sets as a `Study`: points, differences, and a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.figures.masked import CONTROLS, MaskedLine, plot_masked
from headcount.figures.style import SERIES, Row, points_of
from headcount.heads import HeadScores
from headcount.metrics.chance import Chance
from headcount.models.model import Model
from headcount.models.weights import about_models
from headcount.report.estimates import Estimates, plain_facts
from headcount.report.study import Study
from headcount.stats import Interval, Resampling, share_interval
from headcount.value_table import ValueTable

COLUMNS, SHARED = ("model", "task", "series", "metric", "count"), ("model", "task")
GUESSED = ("acc", "acc_norm", "acc_bytes")  # scores that guessing among the choices has a share of
# What is compared at each count; the whole model has a count of its own.
COMPARED = (("top", ""), ("top", "random"), ("top", "matched"), ("random", ""), ("matched", ""))


def benchmark_study(
    values: ValueTable,
    model: Model,
    scores: HeadScores,
    settings: Mapping[str, Any],
    *,
    chances: Mapping[str, float],
    notes: Sequence[str],
) -> Study:
    """Make a `Study` of the value of every document; `chances` are the shares of right guesses."""
    keep = bool(settings["keep"])
    facts = plain_facts({"whole": model.layout.total if keep else 0, "chances": dict(chances)})
    found = estimate_benchmarks(values, facts)
    tasks = values.names("task")
    kept, models = "kept" if keep else "masked", {model.name: model.facts}
    return Study(
        name="lm-eval",
        title=f"benchmarks · {', '.join(tasks)} · {model.name}",
        rows=found.rows,
        claims=(),
        figures={"figure": _figure(found.rows, facts, kept)},
        settings=settings,
        model=models,
        scores={scores.ranking.replace(" ", "-"): scores},
        notes=[*found.notes, *notes],
        tables=found.tables,
        values=values,
        facts=facts,
        captions={
            "figure": f"{about_models(models)}. Scores of lm-eval with the K best heads of "
            f"{scores.ranking} {kept}, and with random heads outside these; bands are 95 % "
            "intervals, one at a time."
        },
    )


def estimate_benchmarks(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """The points of all benchmarks and scores, and what is between them at each count."""
    rows: list[Row] = []
    differences: list[Row] = []
    notes: list[str] = []
    (model,) = values.names("model")
    for task in values.names("task"):
        items = Resampling(values.clusters(model=model, task=task))
        notes.append(f"{task}: intervals over {items.words}; the ranking is held fixed.")
        for metric in values.names("metric", task=task):
            about = {"model": model, "task": task, "metric": metric}
            tables = {
                (one["series"], one["count"]): values.get(**one) for one in values.facts(**about)
            }
            shares = all(np.isin(table, (0, 1)).all() for table in tables.values())
            for (series, count), table in tables.items():
                estimate = items.estimate(table)
                found = share_interval(estimate, items) if shares else estimate.interval
                ends = {"value": found.value, "low": found.low, "high": found.high}
                size = {"n": table.shape[1], "draws": len(table)}
                rows.append({**about, "series": series, "count": count, **ends, **size})
                if count == facts["whole"] and series == "top":
                    notes.append(_at_chance(about, found, facts))
            differences += _differences(items, tables, facts["whole"], about)
    return Estimates(rows, (), {"Differences": differences}, [*filter(None, notes)])


def _at_chance(about: Mapping[str, Any], whole: Interval, facts: Mapping[str, Any]) -> str:
    """One sentence if the whole model does not clearly beat guessing, else an empty text."""
    chance = facts["chances"].get(about["task"])
    if not chance or about["metric"] not in GUESSED:
        return ""
    guessing = Chance(chance, "guessing among the choices")
    return guessing.sentence(whole, f"{about['task']}, {about['metric']},")


def _differences(
    items: Resampling,
    tables: Mapping[tuple[str, int], np.ndarray],
    whole: int,
    about: Mapping[str, Any],
) -> list[Row]:
    """The paired differences between series, and between each series and the whole model."""
    rows: list[Row] = []
    none = next(table for (_, count), table in tables.items() if count == whole)[:1]
    for count in dict.fromkeys(count for _, count in tables if count != whole):
        for one, other in COMPARED:
            first = tables.get((one, count))
            second = tables.get((other, count)) if other else none
            if first is None or second is None:
                continue
            gap = items.difference(first, second).interval
            name = f"{SERIES[one]} minus {SERIES[other] if other else 'whole model'}"
            ends = {"value": gap.value, "low": gap.low, "high": gap.high}
            rows.append({**about, "difference": name, "count": count, **ends})
    return rows


def _figure(rows: Sequence[Row], facts: Mapping[str, Any], kept: str) -> Any:
    panels: dict[str, list[MaskedLine]] = {}
    lost = set()
    for row in rows:
        title, series = f"{row['task']}\n{row['metric']}", str(row["series"])
        lines = panels.setdefault(title, [])
        if series not in [line.series for line in lines]:
            own = [
                one for one in rows if (one["task"], one["metric"]) == (row["task"], row["metric"])
            ]
            lines.append(
                MaskedLine(series, SERIES[series], CONTROLS[series], points_of(own, series))
            )
        if row["count"] == facts["whole"] and series == "top":
            whole = Interval(row["value"], low=row["low"], high=row["high"], n=row["n"])
            lost |= {title} if _at_chance(row, whole, facts) else set()
    shares = all(0 <= row["value"] <= 1 for row in rows)
    return plot_masked(panels, label="Score", heads=kept.title(), shares=shares, at_chance=lost)
