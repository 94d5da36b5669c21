"""What is estimated from the values of `pruned`: points, sizes, differences and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

from headcount.curves.pruned import BEST, RANDOM, PrunedHeads
from headcount.report.estimates import Estimates
from headcount.stats import Estimate, Interval, simultaneous
from headcount.studies.description import columns
from headcount.studies.pruned.claims import heads, judge_claims
from headcount.studies.pruned.panels import (
    ACCURACY,
    COLUMNS,
    LOSS,
    SPEED,
    SPEEDS,
    PrunedPanels,
    share_kept,
    words,
)
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]
MEAN = "mean over tasks"


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = PrunedPanels(values, facts)
    notes = [f"{panel.name}: {panel.at_chance}" for panel in panels.tasks if panel.at_chance]
    notes += [f"{panel.name}: {panel.items.words}." for panel in [*panels.tasks, panels.text]]
    return Estimates(
        rows=point_rows(panels),
        claims=judge_claims(panels),
        tables={
            "Sizes": size_rows(panels),
            "Differences": difference_rows(panels),
            "Kept in each layer": layer_rows(panels),
        },
        notes=notes,
    )


def point_rows(panels: PrunedPanels) -> Rows:
    """The tidy table: every task, the text, and the mean over tasks better than chance."""
    rows: Rows = []
    points = [PrunedHeads(), *(p for size in panels.sizes for p in panels.points(size))]
    for panel in [*panels.tasks, panels.text]:
        for point in points:
            found, draws = panel.interval(point), len(panel.table(point))
            rows.append(_point(panels, panel.key, panel.metric, point, found, draws))
    for point in points:
        draws = len(panels.tasks[0].table(point))
        mean = panels.mean(ACCURACY, point).limited(0, 1).interval
        rows.append(_point(panels, MEAN, ACCURACY, point, mean, draws, panels.n(ACCURACY)))
    for about in panels.values.facts(task=SPEED):
        found = panels.rounds.estimate(panels.values.get(**about)).interval
        rows.append({**about, **columns(found), "n": found.n, "draws": 1})
    return rows


def _point(
    panels: PrunedPanels,
    task: str,
    metric: str,
    point: PrunedHeads,
    found: Interval,
    draws: int,
    n: int | None = None,
) -> dict[str, Any]:
    fixed = {"model": panels.facts["model"], "task": task, "metric": metric}
    about = {name: {**fixed, **asdict(point)}[name] for name in COLUMNS}
    return {**about, **columns(found), "n": found.n if n is None else n, "draws": draws}


def size_rows(panels: PrunedPanels) -> Rows:
    """What each size saves: parameters, cache, and the time to read and to write."""
    rows: Rows = []
    whole = panels.facts["footprint"]
    for size in panels.sizes:
        row: dict[str, Any] = {
            "model": panels.facts["model"],
            "kept": size["kept"],
            "count": size["count"],
            "share kept": share_kept(size),
        }
        for what in ("parameters", "cache_bytes"):
            row[what] = size["footprint"][what]
            known = size["footprint"][what] and whole[what]
            row[f"{what} share"] = size["footprint"][what] / whole[what] if known else None
        for what in SPEEDS:
            found = panels.faster(what, size).interval
            row |= {what: found.value, f"{what} low": found.low, f"{what} high": found.high}
        rows.append(row)
    return rows


def layer_rows(panels: PrunedPanels) -> Rows:
    """The numbers of the groups, or query heads, that are kept in each layer, by size."""
    sizes = {words(size): size["layers"] for size in panels.sizes}
    layers = zip(*sizes.values(), strict=True)
    return [
        {"layer": number, **dict(zip(sizes, kept, strict=True))}
        for number, kept in enumerate(layers)
    ]


def difference_rows(panels: PrunedPanels) -> Rows:
    """Differences of means, each with an interval of its own and one that holds together.

    A family holds all sizes of one metric and comparison.
    """
    rows: Rows = []
    for metric in (ACCURACY, LOSS):
        families: dict[str, list[tuple[Mapping[str, Any], Estimate]]] = {}
        for size in panels.sizes:
            for name, one, other in _comparisons(panels, size):
                found = panels.difference(metric, one, other)
                families.setdefault(name, []).append((size, found))
        for name, members in families.items():
            together = simultaneous([found for _, found in members])
            for (size, found), wide in zip(members, together, strict=True):
                about = {"model": panels.facts["model"], "metric": metric, "difference": name}
                about |= {"kept": size["kept"], "count": size["count"]}
                ends = {"low together": wide.low, "high together": wide.high}
                rows.append(about | columns(found.interval) | ends | {"n": panels.n(metric)})
    return rows


def _comparisons(
    panels: PrunedPanels, size: Mapping[str, Any]
) -> Sequence[tuple[str, PrunedHeads, PrunedHeads]]:
    best, random = panels.treatments(size), panels.treatments(size, RANDOM)
    found = [(f"{t} best minus whole", heads(size, t), PrunedHeads()) for t in best]
    found += [
        (f"{t} best minus {t} random", heads(size, t, BEST), heads(size, t, RANDOM))
        for t in best
        if t in random
    ]
    found += [
        (f"{after} best minus {before} best", heads(size, after), heads(size, before))
        for before, after in pairwise(best)
    ]
    return found
