"""The tables of a contest: all points, areas, and heads needed, from the values of examples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headcount.curves.explained import AXES, Explained, explained_effect, two_sided_ratio
from headcount.heads import GOALS
from headcount.stats import Resampling
from headcount.value_table import ValueTable

RANDOM_ORDERS = "random orders"  # the name of the baseline
MEASURES = {"keep": "explained effect", "mask": "effect gone"}
AREAS = ("CPR", "CMD", "masking area")

Rows = list[dict[str, Any]]


def curves_of(
    values: ValueTable, items: Mapping[str, Resampling], task: str, name: str, goal: str
) -> Explained:
    """The curve of a ranking: the explained effect of kept heads, or the effect that is gone."""
    sign = 1 if goal == "keep" else -1  # masked heads lower the metric; what is gone rises
    tables = {
        facts["count"]: sign * values.get(**facts)
        for facts in values.facts(task=task, series=name, goal=goal)
    }
    return explained_effect(tables, items[task], draws=name)


def resamplings(values: ValueTable) -> dict[str, Resampling]:
    """The examples of each task, resampled alike for all rankings."""
    first = {facts["task"]: facts for facts in values.facts()}
    return {
        task: Resampling(values.clusters(**facts), seed=number)
        for number, (task, facts) in enumerate(first.items())
    }


def point_rows(values: ValueTable) -> Rows:
    """The tidy table of all curves."""
    items, rows = resamplings(values), []
    for task, resampled in items.items():
        for name in values.names("series", task=task):
            for goal in GOALS:
                about = {"model": values.names("model")[0], "task": task, "series": name}
                for count, found in curves_of(values, items, task, name, goal).points:
                    ends = {"value": found.value, "low": found.low, "high": found.high}
                    rows.append(
                        {
                            **about,
                            "metric": MEASURES[goal],
                            "count": count,
                            **ends,
                            "n": resampled.n,
                        }
                    )
    return rows


def area_rows(values: ValueTable, facts: Mapping[str, Any]) -> Rows:
    """The areas of every ranking with intervals, minus those of random orders, and its cost."""
    items, rows = resamplings(values), []
    for task in items:
        names = values.names("series", task=task)
        curves = {n: [curves_of(values, items, task, n, goal) for goal in GOALS] for n in names}
        for axis in AXES:
            areas = {
                n: (kept.cpr(axis), kept.cmd(axis), gone.cpr(axis))
                for n, (kept, gone) in curves.items()
            }
            for name in names:
                goals = dict.fromkeys(facts["goals"].get(name, {}).values())
                row = {"task": task, "ranking": name, "made_for": ", ".join(filter(None, goals))}
                row["axis"] = axis
                for label, area, random in zip(
                    AREAS, areas[name], areas.get(RANDOM_ORDERS, areas[name]), strict=True
                ):
                    row |= _ends(label, area.interval)
                    if name != RANDOM_ORDERS and RANDOM_ORDERS in areas:
                        row |= _ends(f"{label} minus random", (area - random).interval)
                    elif RANDOM_ORDERS in areas:
                        row |= _ends(f"{label} minus random", None)
                passes = facts["passes"][task].get(name)
                row["passes"] = float("nan") if passes is None else passes
                rows.append(row)
    return rows


def _ends(label: str, interval: Any) -> dict[str, float]:
    low = high = value = float("nan")
    if interval is not None:
        value, low, high = interval.value, interval.low, interval.high
    return {label: value, f"{label} low": low, f"{label} high": high}


def needed_rows(values: ValueTable) -> Rows:
    """The heads that every ranking needs, kept, to stay within 1 ± 0.1, beside random orders.

    The ratio to random orders has an interval of its own and one that holds together with those of
    the other tasks.
    """
    items, rows = resamplings(values), []
    for task in items:
        names = values.names("series", task=task)
        curves = {name: curves_of(values, items, task, name, "keep") for name in names}
        for name in (name for name in names if name != RANDOM_ORDERS):
            row = {"task": task, "ranking": name, **_ends("heads", curves[name].two_sided())}
            row["of"] = curves[name].total
            if (random := curves.get(RANDOM_ORDERS)) is not None:
                row |= _ends("random orders", random.two_sided())
                row |= _ends("ratio", two_sided_ratio(curves[name], random))
                together = two_sided_ratio(curves[name], random, members=len(items))
                row |= {"low together": together.low, "high together": together.high}
            rows.append(row)
    return rows
