"""A single curve as a `Study`, so that it gets the same folder and page as a study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from headcount.claims import Claim, judge
from headcount.curves import Curve
from headcount.figures.style import SERIES
from headcount.metrics.chance import Chance
from headcount.models.model import Model
from headcount.models.weights import about_models
from headcount.report.cache_budget import TITLE, cache_at_equal_score
from headcount.report.estimates import Estimates, plain_facts
from headcount.report.head_rows import head_rows
from headcount.report.study import Study
from headcount.stats import Resampling, share_interval
from headcount.tasks import Task
from headcount.value_table import ValueTable

LONG = 200  # characters of a prompt that a caption shows
COLUMNS = ("model", "task", "series", "metric", "count")


def curve_study(
    curve: Curve,
    model: Model,
    task: Task,
    settings: Mapping[str, Any],
    comparisons: Sequence[Mapping[str, Any]] = (),
) -> Study:
    """Make a `Study` of a curve; the settings the curve was made with override `settings`.

    `comparisons` become claims: each names two series, `one` and `other`, that are compared at a
    `count`, the bound that their difference must lie `below`, and the words of the `claim`.
    """
    scores = {curve.scores.ranking: curve.scores}
    values, facts = _values(curve, task), plain_facts(_facts(curve, comparisons))
    found, models = estimate_curve(values, facts), {model.name: model.facts}
    return Study(
        name="curve",
        title=f"curve · {task.name} · {model.name}",
        rows=found.rows,
        claims=found.claims,
        figures={"figure": curve.figure()},
        captions={"figure": f"{about_models(models)}; {_caption(curve, task)}"},
        settings={
            **settings,
            "task": {
                "name": task.name,
                "version": task.version,
                "settings": dict(task.parameters),
                "bos": task.bos,
                "prefix": model.prefix_of(task),
                "chat": task.chat,
                "ranking examples": len(task.split("ranking")),
                "test examples": len(task.split("test")),
            },
            "metric": curve.metric.key,
            "ablation": curve.ablation,
            "counts": sorted({point.count for point in curve.points}),
        },
        model=models,
        scores=scores,
        tables=found.tables,
        heads=head_rows(model.name, task.name, scores, clusters=task.split("ranking").clusters),
        notes=[*found.notes, *curve.left_out],
        values=values,
        facts=facts,
    )


def _caption(curve: Curve, task: Task) -> str:
    """What the figure shows, and one of the prompts."""
    verb = "masked" if curve.mode == "mask" else "kept"
    heads = {
        "top": f"the heads that rank highest by {curve.scores.ranking} are {verb}",
        "bottom": f"those that rank lowest by {curve.scores.ranking}",
        "random": "as many drawn at random from the other heads",
        "matched": "drawn at random with as many in each layer as the best have there",
    }
    shown = [f"{SERIES[name]}: {words}" for name, words in heads.items() if curve.series(name)]
    example = task.split("test").examples[0]
    prompt = example.prompt if len(example.prompt) < LONG else f"… {example.prompt[-LONG:]}"
    return (
        f"{task.name}, {curve.metric.name}. {'; '.join(shown)}. One of the prompts: "
        f"“{prompt.strip()}” → “{example.target.strip()}”."
    )


def _values(curve: Curve, task: Task) -> ValueTable:
    values, first = ValueTable(COLUMNS, ("model", "task")), curve.points[0]
    about = {"model": first.model, "task": first.task}
    values.name_examples([(e.id, *e.cluster) for e in task.split("test")], **about)
    for (series, count), table in curve.raw.items():
        values.put(table, **about, series=series, metric=first.metric, count=count)
    return values


def _facts(curve: Curve, comparisons: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    chance = curve.values.chance
    total = curve.scores.layout.total
    every, none = (0, total) if curve.mode == "mask" else (total, 0)
    ends = {"ends": [["top", every], ["top", none]]}
    return {
        "metric": curve.metric.name,
        "binary": curve.metric.binary,
        "whole": ["top", every],
        "chance": None if chance is None else asdict(chance),
        "at_chance": curve.at_chance,
        "unmatched": {p.count: p.unmatched for p in curve.points if p.unmatched},
        "comparisons": [dict(comparison) for comparison in comparisons],
        **({} if curve.cache is None else {"cache": curve.cache.to_json() | ends}),
    }


def estimate_curve(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """The points of a curve, and its claims."""
    rows, notes, claims = [], [], []
    first = next(values.facts())
    items = Resampling(values.clusters(**first))
    shares = facts.get("cache", {}).get("shares", {})
    for about in values.facts():
        table = values.get(**about)
        estimate = items.estimate(table)
        found = share_interval(estimate, items) if facts["binary"] else estimate.interval
        if [about["series"], about["count"]] == facts["whole"] and facts["chance"]:
            notes.append(Chance(**facts["chance"]).sentence(found, facts["metric"]))
        unmatched = facts["unmatched"].get(str(about["count"]), 0.0)
        share = shares.get(about["series"], {}).get(str(about["count"]))
        rows.append(
            {
                **about,
                "value": found.value,
                "low": found.low,
                "high": found.high,
                "n": table.shape[1],
                "draws": len(table),
                "unmatched": unmatched * (about["series"] == "matched"),
                **({} if share is None else {"cache": share}),
            }
        )
    at_chance = next(filter(None, notes), facts["at_chance"])
    for asked in facts["comparisons"]:
        one, other = (
            values.get(**{**first, "series": asked[side], "count": asked["count"]})
            for side in ("one", "other")
        )
        apart = items.difference(one, other)
        gap = (apart.limited(-1, 1) if facts["binary"] else apart).interval
        claim = Claim.of(asked["claim"], None, gap, judge(gap, below=asked["below"]))
        claims.append(claim.because(at_chance, "not comparable") if at_chance else claim)
    words = f"Intervals: {items.words}; the ranking is held fixed."
    tables = {TITLE: cache_at_equal_score(values, facts)} if shares else {}
    return Estimates(rows, claims, tables, [*filter(None, [at_chance]), words])
