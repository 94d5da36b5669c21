"""What is estimated from the values of `token-insertion`: points, tables and claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.report.estimates import Estimates
from headcount.stats import Estimate, Interval, simultaneous
from headcount.studies.description import columns
from headcount.studies.token_insertion.activations import STATISTICS
from headcount.studies.token_insertion.attention import AFFINE
from headcount.studies.token_insertion.claims import WEIGHT, judge_claims
from headcount.studies.token_insertion.internals import HEIGHT, OTHERS, QUERIES, UNIFORM
from headcount.studies.token_insertion.panels import WITHOUT, InsertPanel, drawn, panels_of
from headcount.tasks.maths.token_classes import CLASSES
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = panels_of(values, facts)
    read = [panel for panel in panels if panel.inside]
    tables = {
        "Answers that change": change_of_answer_rows(panels),
        "Against a uniform reader": [row for p in read for row in uniform_rows(p)],
        "Choice of the head": [row for p in read for row in choice_rows(p)],
        "Affine check": [row for p in read for row in affine_rows(p)],
        "Activations of layer 0": [row for p in read for row in activation_rows(p)],
    }
    notes = [f"{p.model}, {p.task}: {p.at_chance}" for p in panels if p.at_chance]
    notes += [
        f"{p.model}, {p.task}: {p.problems.words.replace('examples', 'problems')}." for p in panels
    ]
    return Estimates(
        rows=[row for panel in panels for row in point_rows(panel)],
        claims=judge_claims(drawn(panels)),
        tables={title: rows for title, rows in tables.items() if rows},
        notes=notes,
    )


def point_rows(panel: InsertPanel) -> Rows:
    """The tidy table of a panel: accuracies, differences to no insert, and the sweep."""
    truncated = {
        (one["series"], one["count"], one["place"]): one["truncated"]
        for one in panel.facts["truncated"]
        if (one["model"], one["task"]) == (panel.model, panel.task)
    }

    def row(about: Mapping[str, Any], interval: Interval, **own: Any) -> dict[str, Any]:
        runs, problems = panel.values.get(**about).shape
        return {
            "model": panel.model,
            "task": panel.task,
            "series": about["series"],
            "metric": about["metric"],
            "count": about["count"],
            "place": about["place"],
            **columns(interval),
            "n": problems,
            "seeds": runs,
            "truncated": 0,
            "p": math.nan,
            **own,
        }

    def accuracy(about: Mapping[str, Any]) -> dict[str, Any]:
        cut = truncated[about["series"], about["count"], about["place"]]
        return row(about, panel.accuracy(about), truncated=cut)

    every = [about for of_series in panel.graded.values() for about in of_series]
    rows = [accuracy(about) for about in every if not panel.swept(about)]
    for series, difference in panel.differences.items():
        own = {"series": f"{series} minus {WITHOUT}", "p": panel.p_value(series)}
        rows.append(row(panel.graded[series][0], difference.interval, **own))
    return rows + [accuracy(about) for about in every if panel.swept(about)]


def change_of_answer_rows(panels: Sequence[InsertPanel]) -> Rows:
    """How many answers turn right and wrong, with McNemar's exact test and two intervals.

    The first interval holds its own truth 95 times in 100, the second those of all rows together.
    """
    members = [
        (panel, series)
        for panel in panels
        for series in panel.changed
        if not math.isnan(panel.p_value(series))
    ]
    found = [panel.differences[series] for panel, series in members]
    rows: Rows = []
    for (panel, series), one, together in zip(members, found, simultaneous(found), strict=True):
        changes = (panel.right(series) - panel.right(WITHOUT)).ravel()
        rows.append(
            {
                "model": panel.model,
                "task": panel.task,
                "series": series,
                "turn right": int((changes > 0).sum()),
                "turn wrong": int((changes < 0).sum()),
                **columns(one.interval),
                "low together": together.low,
                "high together": together.high,
                "detectable": one.interval.detectable,
                "p": panel.p_value(series),
                "n": len(changes),
            }
        )
    return rows


def uniform_rows(panel: InsertPanel) -> Rows:
    """Peaks, weights and evenness beside those of a uniform reader on the same prompts."""
    rows: Rows = []
    inside = panel.inside
    for series in panel.inserts:
        for queries in QUERIES:
            for where in (inside["head"], f"layer {inside['layer']}", OTHERS):
                if not panel.has(series, HEIGHT[0], where, queries):
                    continue
                about = {"model": panel.model, "series": series, "queries": queries}
                for measure, estimates in _measures(panel, series, where, queries).items():
                    measured, uniform, over = (e.interval for e in estimates)
                    rows.append(
                        {
                            **about,
                            "where": where,
                            "measure": measure,
                            **columns(measured),
                            "uniform reader": uniform.value,
                            "over uniform": over.value,
                            "over low": over.low,
                            "over high": over.high,
                            "prompts": measured.n,
                        }
                    )
    return rows


def _measures(
    panel: InsertPanel, series: str, where: str, queries: str
) -> dict[str, tuple[Estimate, Estimate, Estimate]]:
    """Each measure: as measured, of a uniform reader, and the one over the other."""
    found = {
        "peaks, with the insert / without": panel.ratio(series, HEIGHT, where, queries),
        "weight, inserted / original tokens": panel.ratio(series, WEIGHT, where, queries),
    }
    for metric, name in (
        ("span_spread", "variation over inserted tokens"),
        ("original_spread", "variation over original tokens"),
        ("timing", "correlation of the profiles"),
    ):
        wanted = [(metric, where), (metric, UNIFORM)]
        measured, uniform = panel.means(series, wanted, queries)
        found[name] = measured, uniform, measured.over(uniform)
    return found


def choice_rows(panel: InsertPanel) -> Rows:
    """How far inserts change each head of the layer: on the choosing prompts, and on the others."""
    inside = panel.inside
    if not inside["choosing"]:
        return []
    series = panel.inserts
    metric = "change"
    about: dict[str, Any] = {"model": panel.model, "task": panel.task, "metric": metric}
    heads = [
        where
        for where in panel.values.names("where", **about, queries="all")
        if where.startswith(f"{inside['layer']}.")
    ]
    others = panel.judged(inside["head"])
    rows: Rows = []
    for head in sorted(heads, key=lambda head: int(head.partition(".")[2])):
        halves = [
            float(
                np.mean([panel.means(s, [(metric, head)], prompts=half)[0].value for s in series])
            )
            for half in (~others, others)
        ]
        rows.append(
            {
                "model": panel.model,
                "head": head,
                "change, prompts that choose": halves[0],
                "change, prompts that judge": halves[1],
                "chosen": "yes" if head == inside["head"] else "",
            }
        )
    return rows


def affine_rows(panel: InsertPanel) -> Rows:
    """One row for each insert and layer: the mean over heads of λ, bias, R², spread and peaks."""
    rows: Rows = []
    names = ("lambda", "added direction", "R2", "spread")
    for series in panel.inserts:
        for layer in range(panel.inside["layers"]):
            where = f"layer {layer}"
            found = panel.means(series, [(entry, where) for entry in AFFINE], "")
            if math.isnan(found[0].value):  # all heads of the layer are silent
                continue
            factor, *others = (e.interval for e in found)
            values = dict(zip(names, [factor.value, *(o.value for o in others)], strict=True))
            peaks = panel.ratio(series, HEIGHT, where)[0].interval
            rows.append(
                {
                    "model": panel.model,
                    "series": series,
                    "layer": layer,
                    **values,
                    "lambda low": factor.low,
                    "lambda high": factor.high,
                    "spread low": others[-1].low,
                    "spread high": others[-1].high,
                    "peaks": peaks.value,
                    "peaks low": peaks.low,
                    "peaks high": peaks.high,
                    "prompts": factor.n,
                }
            )
    return rows


def activation_rows(panel: InsertPanel) -> Rows:
    """Each statistic by class of token, without an insert, and its change by each insert."""
    rows: Rows = []
    for series in panel.inserts:
        for tokens in CLASSES:
            for statistic in STATISTICS:
                if not panel.has(series, statistic, tokens, ""):
                    continue
                before, change = (e.interval for e in panel.change(series, statistic, tokens))
                if before.n > 1:
                    rows.append(
                        {
                            "model": panel.model,
                            "series": series,
                            "tokens": tokens,
                            "statistic": statistic,
                            WITHOUT: before.value,
                            "change": change.value,
                            "low": change.low,
                            "high": change.high,
                            "prompts": before.n,
                        }
                    )
    return rows
