"""What is estimated from the values of `head-roles`: points, end points and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, get_args

from headcount.report.estimates import Estimates
from headcount.studies.description import columns
from headcount.studies.head_roles.claims import judge_claims
from headcount.studies.head_roles.panels import METRICS, Reading, RolePanel, panels_of, peaks_of
from headcount.studies.head_roles.published import (
    END_POINTS,
    PEAKS,
    SHARES,
    Rows,
    description_rows,
    over_seed_rows,
    share_rows,
)
from headcount.studies.head_roles.toggling import SERIES
from headcount.value_table import ValueTable


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = panels_of(values, facts)
    soft = [panel for panel in panels if panel.base == "soft"]
    claims = judge_claims(soft)
    tables = {
        "End points": end_rows(soft),
        "Peaks of interference": peak_rows(soft),
        "Role shares": [row for p in soft for row in share_rows(p.model, p.task, p.roles)],
        "Roles over seeds": [row for p in soft for row in over_seed_rows(p.model, p.task, p.roles)],
    }
    if claims:
        tables["Two descriptions"] = description_rows(claims)
    notes = [f"{panel.name}: {panel.at_chance}" for panel in soft if panel.at_chance]
    notes += [f"{panel.name}: {panel.prompts.words}." for panel in soft]
    return Estimates(
        rows=[row for panel in panels for row in point_rows(panel)],
        claims=claims,
        tables={title: rows for title, rows in tables.items() if rows},
        notes=notes,
    )


def point_rows(panel: RolePanel) -> Rows:
    """The tidy table of a panel, in both readings."""
    rows = []
    readings: tuple[Reading, ...] = get_args(Reading)
    for reading in readings:
        for role in SERIES:
            curve = panel.curve(role, reading)
            ends = zip(panel.counts, curve.value, *curve.ends(), strict=True)
            for count, value, low, high in ends:
                rows.append(
                    {
                        "model": panel.model,
                        "task": panel.task,
                        "series": role,
                        "metric": METRICS[panel.base, reading],
                        "count": count,
                        "value": float(value),
                        "low": float(low),
                        "high": float(high),
                        "n": panel.prompts.n,
                        "seeds": len(panel.changes(role, count)),
                        "share": round(count / panel.heads, 4),
                        "carriers": panel.carries(role),
                    }
                )
    return rows


def end_rows(panels: Sequence[RolePanel]) -> Rows:
    """Δ at the published shares of the heads, beside the published end points.

    Each published model has its own share, 50 of its heads. `of the fall` is the ratio to the fall
    of facilitation: that of random orders is what any heads do, whatever their role.
    """
    return [
        row
        for panel in panels
        if any(panel.counts)
        for role in SERIES
        for row in _ends_of_role(panel, role)
    ]


def peak_rows(panels: Sequence[RolePanel]) -> Rows:
    """The peak of interference in each panel, with two intervals.

    The first holds together over the counts of the panel, the second over those of all panels.
    """
    panels = [panel for panel in panels if any(panel.counts)]
    rows = []
    for panel, (_, together) in zip(panels, peaks_of(panels), strict=True):
        ((count, own),) = peaks_of([panel])
        rows.append(
            {
                "model": panel.model,
                "task": panel.task,
                "count": count,
                "share": round(count / panel.heads, 4),
                **columns(own),
                "low together": together.low,
                "high together": together.high,
                "n": panel.prompts.n,
                "published": ", ".join(f"{peak:+g}" for peak in PEAKS.get(panel.task, ())),
            }
        )
    return rows


def _ends_of_role(panel: RolePanel, role: str) -> Iterator[dict[str, Any]]:
    known = {"facilitation": END_POINTS, "interference": PEAKS}.get(role, {})
    published = dict(zip(SHARES, known.get(panel.task, ()), strict=False))
    for model, share in SHARES.items():
        count = panel.nearest(share)
        found = panel.at(role, count).interval
        fall = -panel.at("facilitation", count).value
        what = "end point" if role == "facilitation" else "peak"
        yield {
            "model": panel.model,
            "task": panel.task,
            "series": role,
            "count": count,
            "share": round(count / panel.heads, 4),
            **columns(found),
            "n": panel.prompts.n,
            "of the fall": found.value / fall if fall > 0 else float("nan"),
            "published model": model,
            "published share": round(share, 4),
            "published": f"{what} {published[model]:+g}" if model in published else "",
        }
