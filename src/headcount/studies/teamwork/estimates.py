"""What is estimated from the values of `teamwork`: pairs, sets, self-repair, and claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.curves.teamwork import RANDOM, TOP, HeadsOff
from headcount.report.estimates import Estimates
from headcount.stats import Interval, simultaneous
from headcount.studies.description import columns
from headcount.studies.teamwork.claims import judge_claims, pair_verdict
from headcount.studies.teamwork.panels import TeamPanel, panels_of
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]
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
    together = simultaneous(list(panel.interactions.values()))
    for pair, found, wide in zip(panel.pairs, panel.interactions.values(), together, strict=True):
        one, other = pair
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
                "verdict": pair_verdict(wide),
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
    """Every head: its loss in the whole model and, where it has backups, with these off."""
    rows, losses = [], panel.losses
    for place, head in enumerate(panel.heads):
        backups = panel.backups.get(place, ())
        without = losses.without(place, backups) if backups else None
        repaired = losses.repaired(place, backups) if backups else None
        others = panel.by_others(place) if backups else None
        share = repaired.over(without) if repaired and without else None
        found = {
            "loss without backups": without,
            "repaired": repaired,
            "share repaired": share,
            "by others": others,
        }
        ends: dict[str, float] = {}
        for name, one in found.items():
            ends |= _ends(name, one.interval if one else UNKNOWN)
        rows.append(
            {
                "model": panel.facts["model"],
                "task": panel.key,
                "head": head,
                "backups": " ".join(panel.heads[other] for other in backups),
                **_ends("loss", losses.of(place).interval),
                **ends,
                "n": panel.items.n,
            }
        )
    return rows


def pairs_called(rows: Sequence[Mapping[str, Any]], task: str, verdict: str) -> list[str]:
    """The pairs of a task with this verdict, the largest interaction first.

    >>> row = {"task": "ioi", "one": "9.1", "other": "8.0", "verdict": "backup", "interaction": 0.2}
    >>> pairs_called([row], "ioi", "backup")
    ['9.1 and 8.0']
    """
    found = [row for row in rows if (row["task"], row["verdict"]) == (task, verdict)]
    found.sort(key=lambda row: -abs(row["interaction"]))
    return [f"{row['one']} and {row['other']}" for row in found]
