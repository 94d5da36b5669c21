"""What is estimated from the values of `teamwork`: pairs, sets, self-repair, and claims."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from headcount.curves.teamwork import RANDOM, TOP, HeadsOff
from headcount.report.estimates import Estimates
from headcount.stats import Estimate, Interval
from headcount.studies.description import columns
from headcount.studies.teamwork.claims import judge_claims, pair_verdict
from headcount.studies.teamwork.panels import TeamPanel, panels_of
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]
REPAIR = ("loss without repairers", "repaired", "share repaired", "by others")
UNKNOWN = Interval(math.nan, math.nan, math.nan, 0)


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = panels_of(values, facts)
    fit = [panel for panel in panels if not panel.at_chance]
    tables = {
        "Pairs": [row for panel in fit for row in pair_rows(panel)],
        "Sets": [row for panel in fit for row in set_rows(panel)],
        "Self-repair": [row for panel in fit for row in repair_rows(panel)],
    }
    left_out = [f"{p.name} is left out of claims and tables: {p.at_chance}" for p in panels]
    return Estimates(
        rows=[row for panel in panels for row in point_rows(panel)],
        claims=judge_claims(panels),
        tables={title: rows for title, rows in tables.items() if rows},
        notes=[
            *(note for note, panel in zip(left_out, panels, strict=True) if panel.at_chance),
            *(f"{panel.name}: {panel.items.words}." for panel in panels),
        ],
    )


def point_rows(panel: TeamPanel) -> Rows:
    """The mean of the metric with each set of heads off."""
    rows = []
    for about in panel.values.facts(model=panel.facts["model"], task=panel.key):
        table = panel.values.get(**about)
        places = [int(place) - 1 for place in about["places"].split()]
        names = " ".join(panel.heads[p] for p in places) if about["series"] == TOP else ""
        found = panel.items.estimate(table, RANDOM).interval
        more = {"heads": names, "n": panel.items.n, "draws": len(table)}
        rows.append({**about, **columns(found), **more})
    return rows


def _ends(name: str, found: Interval) -> dict[str, float]:
    """An interval as columns of this name."""
    return {name: found.value, f"{name} low": found.low, f"{name} high": found.high}


def pair_rows(panel: TeamPanel) -> Rows:
    """Every pair: joint loss, the sum of the single ones, and the interaction.

    The interaction has an interval of its own, and one that holds together with those of all pairs
    of the task, by which it is judged.
    """
    rows, losses = [], panel.losses
    for pair, found in panel.interactions.items():
        (one, other), wide = pair, panel.together[pair]
        rows.append(
            {
                "model": panel.facts["model"],
                "task": panel.key,
                "one": panel.heads[one],
                "other": panel.heads[other],
                "loss of one": losses.of(one).value,
                "loss of other": losses.of(other).value,
                "joint loss": losses.of(*pair).value,
                **_ends("interaction", found.interval),
                "low together": wide.low,
                "high together": wide.high,
                "verdict": pair_verdict(wide, panel.helping(pair)),
                "n": panel.items.n,
            }
        )
    return rows


def set_rows(panel: TeamPanel) -> Rows:
    """The loss of the best heads together, over and minus the sum of their single ones."""
    rows, losses = [], panel.losses
    for series in (TOP, RANDOM):
        for count in panel.counts:
            places = tuple(range(count))
            joint, alone = losses.of(*places, series=series), losses.singles(places, series)
            beyond = losses.beyond(places, series)
            rows.append(
                {
                    "model": panel.facts["model"],
                    "task": panel.key,
                    "series": series,
                    "count": count,
                    **_ends("joint loss", joint.interval),
                    **_ends("sum of single losses", alone.interval),
                    **_ends("ratio", joint.over(alone).interval),
                    **_ends("difference", beyond.interval),
                    "n": panel.items.n,
                    "draws": len(losses.tables[HeadsOff(series, places)]),
                }
            )
    return rows


def repair_rows(panel: TeamPanel) -> Rows:
    """Every head: its loss in the whole model and, where it has repairers, with these off."""
    rows, losses = [], panel.losses
    for place, head in enumerate(panel.heads):
        repairers = panel.roles.repairers.get(place, ())
        found: dict[str, Estimate | None] = dict.fromkeys(REPAIR)
        if repairers:
            without, repaired = losses.without(place, repairers), losses.repaired(place, repairers)
            several = without, repaired, repaired.over(without), panel.by_others(place)
            found = dict(zip(REPAIR, several, strict=True))
        ends: dict[str, float] = {}
        for name, one in found.items():
            ends |= _ends(name, one.interval if one else UNKNOWN)
        rows.append(
            {
                "model": panel.facts["model"],
                "task": panel.key,
                "head": head,
                "against": "yes" if place in panel.roles.against else "no",
                **_ends("loss", losses.of(place).interval),
                "repairers": " ".join(panel.heads[other] for other in repairers),
                **ends,
                "n": panel.items.n,
            }
        )
    return rows
