"""The figure of `teamwork`, and what its caption must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.curves.teamwork import MARGIN, RANDOM, TOP
from headcount.errors import counted, span_text
from headcount.figures.style import Row
from headcount.figures.teamwork import BEST, JOINT, OTHERS, SUM, TeamMap, plot_teamwork
from headcount.models.weights import about_models
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.teamwork.panels import TeamPanel, panels_of
from headcount.value_table import ValueTable

NAMES = {TOP: BEST, RANDOM: OTHERS}
LINES = {JOINT: "joint loss", SUM: "sum of single losses"}  # columns of the table
JUDGED = ("backup", "relief", "overlap")


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """A map and a curve for each task on which the model is better than chance."""
    panels = panels_of(values, facts)
    fit = [panel for panel in panels if not panel.at_chance]
    if not fit:
        return {}, {}
    maps = [_map(panel, found.tables) for panel in fit]
    left_out = ", ".join(panel.name for panel in panels if panel.at_chance)
    caption = _caption(fit, facts, models) + (
        f" At chance and left out: {left_out}." if left_out else ""
    )
    return {"figure": plot_teamwork(maps)}, {"figure": caption}


def _map(panel: TeamPanel, tables: Mapping[str, Sequence[Row]]) -> TeamMap:
    pairs, sets, repair = (
        [row for row in tables[title] if row["task"] == panel.key]
        for title in ("Pairs", "Sets", "Self-repair")
    )
    many = len(panel.heads)
    interactions = np.full((many, many), np.nan)
    judged = []
    for row, (one, other) in zip(pairs, panel.pairs, strict=True):
        interactions[other, one] = row["interaction"]
        judged += [(other, one)] * (row["verdict"] in JUDGED)
    return TeamMap(
        panel.name,
        panel.heads,
        [row["head"] for row in repair if row["against"] == "yes"],
        [_ends(row, "loss") for row in repair],
        interactions,
        judged,
        [(row["count"], *_ends(row, "ratio")) for row in sets if row["series"] == TOP],
        {
            (name, what): [
                (row["count"], *_ends(row, column)) for row in sets if row["series"] == series
            ]
            for series, name in NAMES.items()
            for what, column in LINES.items()
        },
    )


def _ends(row: Row, column: str) -> tuple[float, float, float]:
    return row[column], row[f"{column} low"], row[f"{column} high"]


def _caption(panels: Sequence[TeamPanel], facts: Mapping[str, Any], models: Models) -> str:
    n = span_text([panel.items.n for panel in panels])
    draws = counted(len(next(iter(facts["random"].values()))), "random order")
    return (
        "Above: what each of the best heads costs alone, as a share of the metric, and for each "
        "pair the joint loss minus the sum of the single ones: red is backup or, with a head that "
        "works against the answer (orange), relief; blue is overlap. A dot: beyond "
        f"{MARGIN:g}, by intervals that hold together over all pairs. Below: the joint loss of the "
        f"k best heads over the sum of their single losses, and both, beside {draws} of other "
        "heads; bands are 95 % intervals over prompts, templates and random orders, with rankings "
        f"and roles held fixed. {about_models(models)}; ranked by "
        f"{facts['ranking']}; off: {facts['ablation']}; {n} test prompts."
    )
