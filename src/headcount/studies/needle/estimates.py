"""What is estimated from the values of `needle`: points, differences, depths and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.errors import counted
from headcount.report.estimates import Estimates
from headcount.stats import Resampling, simultaneous
from headcount.studies.description import columns
from headcount.studies.needle.claims import judge_claims
from headcount.studies.needle.panels import (
    CONTROLS,
    METRICS,
    POSITIONS,
    SERIES,
    NeedlePanel,
    interval_of,
    panels_of,
)
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = panels_of(values, facts)
    return Estimates(
        rows=[row for panel in panels for row in point_rows(panel)],
        claims=judge_claims(panels),
        tables={"Differences": difference_rows(panels), "Depths": depth_rows(panels)},
        notes=notes(panels, facts),
    )


def point_rows(panel: NeedlePanel) -> Rows:
    """The tidy table of a length."""
    rows: Rows = []
    for metric in METRICS:
        points = [(POSITIONS[0], "top", 0)]
        points += [(p, s, c) for p in POSITIONS for s in SERIES for c in panel.counts]
        for positions, series, count in points:
            drawn = len(panel.table(metric, positions, series, count))
            unmatched = panel.facts["unmatched"].get(str(count), 0.0)
            rows.append(
                {
                    **_about(panel),
                    "positions": positions,
                    "series": series,
                    "metric": metric,
                    "count": count,
                    **columns(panel.interval(metric, positions, series, count)),
                    "n": len(panel.facts["depths"]),
                    "draws": drawn,
                    "unmatched": unmatched * (series == "matched"),
                }
            )
    return rows


def difference_rows(panels: Sequence[NeedlePanel]) -> Rows:
    """The best heads minus each control, with an interval that stands for itself and a joint one.

    Joint intervals hold all lengths and counts of one metric, place of the gates and control.
    """
    rows: Rows = []
    for metric in METRICS:
        for positions in POSITIONS:
            for control in CONTROLS:
                where = [(panel, count) for panel in panels for count in panel.counts]
                found = [p.difference(metric, positions, control, c) for p, c in where]
                for (panel, count), one, together in zip(
                    where, found, simultaneous(found), strict=True
                ):
                    rows.append(
                        {
                            **_about(panel),
                            "metric": metric,
                            "positions": positions,
                            "difference": f"top minus {control}",
                            "count": count,
                            **columns(one.interval),
                            "low together": together.low,
                            "high together": together.high,
                            "n": len(panel.facts["depths"]),
                        }
                    )
    return rows


def depth_rows(panels: Sequence[NeedlePanel]) -> Rows:
    """Accuracy and log-probability of the whole model by length and depth."""
    rows: Rows = []
    for panel in panels:
        depths = np.array(panel.facts["depths"])
        clusters = panel.values.clusters(model=panel.facts["model"], task=panel.key)
        for depth in sorted({*depths.tolist()}):
            there = depths == depth
            items = Resampling(clusters[there], seed=2)
            for metric in METRICS:
                found = items.estimate(panel.table(metric, POSITIONS[0], "top", 0)[:, there])
                interval = interval_of(metric, found, items)
                about = {**_about(panel), "depth": depth, "metric": metric}
                rows.append({**about, **columns(interval), "n": int(there.sum())})
    return rows


def notes(panels: Sequence[NeedlePanel], facts: Mapping[str, Any]) -> list[str]:
    """Lengths at chance, what is resampled, and how many heads look at the needle."""
    told = [f"{panel.name}: {panel.at_chance}" for panel in panels if panel.at_chance]
    told.append(
        f"{panels[0].asked} at every length, the same needles everywhere. Resampled are needles: "
        f"{panels[0].items.words.replace('example', 'needle')}."
    )
    told.append(
        f"Heads are ranked by {facts['ranking']} at {facts['ranked_at']:,} tokens, on "
        f"{counted(facts['ranked_on'], 'example')} with other needles."
    )
    if known := facts["retrieving"]:
        told.append(
            f"{counted(known['heads'], 'head')} of {facts['total']} have a retrieval score of at "
            f"least {known['threshold']:g}; a head that looks at any position by chance would have "
            f"{known['uniform']:.2g}."
        )
    return told


def _about(panel: NeedlePanel) -> dict[str, Any]:
    return {"model": panel.facts["model"], "task": panel.key, "length": panel.length}
