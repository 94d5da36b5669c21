"""What is estimated from the values of `masked-heads`: points, differences, ranks and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.report.estimates import Estimates
from headcount.stats import rank_probability, simultaneous
from headcount.studies.masked_heads.claims import judge_claims
from headcount.studies.masked_heads.panels import ANYWHERE, SERIES, FunctionPanel, panels_of
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = panels_of(values, facts)
    tables = {"Differences": difference_rows(panels), "Rank of TopK": rank_rows(panels)}
    notes = [f"{panel.name}: {panel.at_chance}" for panel in panels if panel.at_chance]
    notes += [f"{panel.name}: {panel.items.words}." for panel in panels]
    return Estimates(
        rows=[row for panel in panels for row in point_rows(panel)],
        claims=judge_claims(panels, facts),
        tables={title: rows for title, rows in tables.items() if rows},
        notes=[*notes, *against_the_direction(panels)],
    )


def point_rows(panel: FunctionPanel) -> Rows:
    """The tidy table of a panel."""
    rows = []
    unmatched = panel.facts["unmatched"].get(panel.key, {})
    for ranking, metric in panel.curves:
        for series in SERIES:
            counts = panel.counts(series, metric, ranking)
            for count in [0, *counts] if counts else []:
                found = panel.interval(series, count, metric, ranking)
                rows.append(
                    {
                        "model": panel.model,
                        "task": panel.key,
                        "series": series,
                        "metric": metric,
                        "count": count,
                        "value": found.value,
                        "low": found.low,
                        "high": found.high,
                        "n": panel.items.n,
                        "draws": len(panel.table(series, count, metric, ranking)),
                        "unmatched": unmatched.get(str(count), 0.0) * (series == "matched"),
                        "ranking": ranking,
                    }
                )
    return rows


def difference_rows(panels: Sequence[FunctionPanel]) -> Rows:
    """TopK minus each control at each count, paired by item, with two intervals.

    The first holds its own truth 95 times in 100, the second those of all rows of its kind (of one
    metric, ranking and control) together.
    """
    rows: Rows = []
    families: dict[tuple[str, str, str], list[tuple[FunctionPanel, int]]] = {}
    for panel in panels:
        first = panel.rankings[0]
        for ranking, metric in panel.curves:
            for control in SERIES[1:] if ranking == first else SERIES[1:2]:
                for count in panel.counts(control, metric, first):
                    families.setdefault((ranking, metric, control), []).append((panel, count))
    for (ranking, metric, control), members in families.items():
        found = [panel.difference(control, count, metric, ranking) for panel, count in members]
        for (panel, count), one, together in zip(members, found, simultaneous(found), strict=True):
            alone = one.interval
            rows.append(
                {
                    "model": panel.model,
                    "task": panel.key,
                    "ranking": ranking,
                    "metric": metric,
                    "difference": f"top minus {control}",
                    "control_of": panel.rankings[0],
                    "count": count,
                    "value": alone.value,
                    "low": alone.low,
                    "high": alone.high,
                    "low together": together.low,
                    "high together": together.high,
                    "n": panel.items.n,
                }
            )
    return rows


def against_the_direction(panels: Sequence[FunctionPanel]) -> list[str]:
    """Notes on differences whose own interval says that TopK is better than a control."""
    notes = []
    for panel in panels:
        for control, words in (("random", "random"), ("matched", "layer-matched random")):
            for count in panel.counts(control):
                found = panel.difference(control, count).interval
                if found.low > 0:
                    notes.append(
                        f"{panel.name}: with {count} heads masked, TopK has a higher accuracy than "
                        f"{words} heads, by {found} (this interval stands for itself)."
                    )
    return notes


def rank_rows(panels: Sequence[FunctionPanel]) -> Rows:
    """Where TopK stands among random draws from all heads: an exact test at one count."""
    rows: Rows = []
    for panel in panels:
        for count in panel.counts(ANYWHERE):
            draws = panel.table(ANYWHERE, count).mean(1)
            top = float(panel.table("top", count).mean())
            rows.append(
                {
                    "model": panel.model,
                    "task": panel.key,
                    "ranking": panel.rankings[0],
                    "metric": panel.accuracy,
                    "count": count,
                    "TopK": top,
                    "lowest draw": float(draws.min()),
                    "median draw": float(np.median(draws)),
                    "draws": len(draws),
                    "p": rank_probability(top, draws),
                    "n": panel.items.n,
                }
            )
    return rows
