"""What is estimated from the values of `transfer`: points, tables of pairs, and claims."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from headcount.rankings.agreement import chance_overlap
from headcount.report.estimates import Estimates
from headcount.stats import Estimate, Interval, simultaneous
from headcount.studies.description import columns
from headcount.studies.transfer.claims import beyond_matched, judge_claims
from headcount.studies.transfer.panels import (
    Transfer,
    column_mean,
    interaction,
    row_mean,
    specificity,
    transfer_of,
)
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]
UNKNOWN = Interval(math.nan, math.nan, math.nan, 0)


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    transfer = transfer_of(values, facts)
    tables = {
        "Transfer": pair_rows(transfer),
        "Specificity": specificity_rows(transfer),
        "Without shared heads": exclusion_rows(transfer),
        "Overlap": overlap_rows(transfer),
    }
    tested = transfer.tasks.values()
    notes = [f"{task.name}: {task.at_chance}" for task in tested if task.at_chance]
    notes += [f"{task.name}: {task.items.words}." for task in tested]
    return Estimates(
        rows=point_rows(transfer),
        claims=judge_claims(transfer),
        tables={title: rows for title, rows in tables.items() if rows},
        notes=notes,
    )


def point_rows(transfer: Transfer) -> Rows:
    """The mean of the metric under every head set."""
    rows = []
    for task in transfer.tasks.values():
        for about in task.values.facts(task=task.key):
            masked = (about["series"], about["ranked"], about["count"], about["without"])
            found = transfer.interval(task.key, *masked)
            table = task.values.get(**about)
            row = {**about, **columns(found), "n": task.items.n, "draws": len(table)}
            rows.append(row)
    return rows


def _ends(name: str, found: Interval) -> dict[str, float]:
    """An interval as columns of this name."""
    return {name: found.value, f"{name} low": found.low, f"{name} high": found.high}


def pair_rows(transfer: Transfer) -> Rows:
    """The matrix: losses by TopK and by layer-matched heads, and their difference.

    Its first interval stands for itself; the second holds together with those of all other pairs.
    """
    tested = {key: transfer.tasks[key] for key in transfer.usable}
    pairs = [(one, other) for one in transfer.tasks for other in tested]
    found = {pair: transfer.beyond(*pair) for pair in pairs}
    together = dict(zip(found, simultaneous(list(found.values())), strict=True))
    rows = []
    for one in transfer.tasks:
        for other, task in transfer.tasks.items():
            pair = (one, other)
            known = pair in found
            top = transfer.top(*pair).interval if known else UNKNOWN
            matched = transfer.matched(*pair).interval if known else UNKNOWN
            beyond = found[pair].interval if known else UNKNOWN
            wide = together.get(pair, UNKNOWN)
            rows.append(
                {
                    "model": transfer.facts["model"],
                    "ranked on": one,
                    "tested on": other,
                    **_ends("loss", top),
                    **_ends("layer-matched", matched),
                    **_ends("difference", beyond),
                    "low together": wide.low,
                    "high together": wide.high,
                    "n": task.items.n,
                }
            )
    return rows


def specificity_rows(transfer: Transfer) -> Rows:
    """Each task's own loss, the means of its row and column, and what is specific of it."""
    beyond, rows = beyond_matched(transfer), []
    together = simultaneous(list(beyond.values())) if beyond else []
    for (key, difference), wide in zip(beyond.items(), together, strict=True):
        others = [other for other in beyond if other != key]
        alone: Estimate | None = interaction(transfer.beyond, key, others)
        rows.append(
            {
                "model": transfer.facts["model"],
                "task": key,
                "own loss": transfer.top(key, key).value,
                "others, its heads": row_mean(transfer.top, key, others).value,
                "it, others' heads": column_mean(transfer.top, key, others).value,
                **_ends("specificity", specificity(transfer.top, key, others).interval),
                **_ends("layer-matched", specificity(transfer.matched, key, others).interval),
                **_ends("difference", difference.interval),
                "low together": wide.low,
                "high together": wide.high,
                **_ends("interaction", UNKNOWN if alone is None else alone.interval),
                "n": transfer.tasks[key].items.n,
            }
        )
    return rows


def exclusion_rows(transfer: Transfer) -> Rows:
    """Losses with TopK of one task masked, and with TopK without heads that are high on another."""
    rows = []
    for one, other in transfer.sharing(transfer.usable):
        shared = [transfer.shared(one, other, count) for count in transfer.counts]
        rows.append(
            {
                "model": transfer.facts["model"],
                "ranked on": one,
                "without": other,
                "shared heads": " ".join(dict.fromkeys(head for heads in shared for head in heads)),
                "loss on the other": transfer.top(one, other).value,
                "without shared heads": transfer.without(one, other, other).value,
                **_ends("spared", transfer.spared(one, other).interval),
                "own loss": transfer.top(one, one).value,
                "own loss without shared heads": transfer.without(one, one, other).value,
                **_ends("given up", transfer.given_up(one, other).interval),
            }
        )
    return rows


def overlap_rows(transfer: Transfer) -> Rows:
    """How many of their best heads two tasks share, and how many two random draws would."""
    rows = []
    keys: Sequence[str] = list(transfer.tasks)
    for one, other in combinations(keys, 2):
        for count in transfer.counts:
            shared = transfer.shared(one, other, count)
            chance, low, high = chance_overlap(transfer.facts["total"], count)
            rows.append(
                {
                    "model": transfer.facts["model"],
                    "one": one,
                    "other": other,
                    "count": count,
                    "share": len(shared) / count,
                    "chance": chance,
                    "chance low": low,
                    "chance high": high,
                    "shared heads": " ".join(shared),
                }
            )
    return rows
