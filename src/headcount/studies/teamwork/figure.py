"""The figure of `teamwork`, and what its caption must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from headcount.curves.teamwork import MARGIN, RANDOM, TOP
from headcount.errors import counted, span_text
from headcount.figures.style import Row
from headcount.figures.teamwork import TeamMap, plot_teamwork
from headcount.report.estimates import Estimates
from headcount.studies.teamwork.panels import TeamPanel

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAMES = {TOP: "best heads", RANDOM: "random heads"}
JUDGED = ("backup", "overlap")


def draw(
    panels: Sequence[TeamPanel], found: Estimates, facts: Mapping[str, Any]
) -> tuple[dict[str, Figure], dict[str, str]]:
    """A map and a curve for each task on which the model is better than chance."""
    fit = [panel for panel in panels if not panel.at_chance]
    if not fit:
        return {}, {}
    maps = [_map(panel, found.tables) for panel in fit]
    left_out = ", ".join(panel.name for panel in panels if panel.at_chance)
    caption = _caption(fit, facts) + (f" At chance and left out: {left_out}." if left_out else "")
    return {"figure": plot_teamwork(maps)}, {"figure": caption}


def _map(panel: TeamPanel, tables: Mapping[str, Sequence[Row]]) -> TeamMap:
    pairs, sets, repair = (
        [row for row in tables[title] if row["task"] == panel.key]
        for title in ("Pairs", "Sets", "Self-repair")
    )
    many = len(panel.heads)
    interactions = np.full((many, many), np.nan)
    sure = []
    for (one, other), row in zip(panel.pairs, pairs, strict=True):
        interactions[other, one] = row["interaction"]
        sure += [(other, one)] * (row["verdict"] in JUDGED)
    return TeamMap(
        panel.name,
        panel.heads,
        [_ends(row, "loss") for row in repair],
        interactions,
        sure,
        {
            name: [
                (row["count"], *_ends(row, "ratio"))
                for row in sets
                if row["series"] == series and (series == TOP or row["count"] > 1)
            ]
            for series, name in NAMES.items()
        },
    )


def _ends(row: Row, column: str) -> tuple[float, float, float]:
    return row[column], row[f"{column} low"], row[f"{column} high"]


def _caption(panels: Sequence[TeamPanel], facts: Mapping[str, Any]) -> str:
    n = span_text([panel.items.n for panel in panels])
    draws = counted(len(next(iter(facts["random"].values()))), "random order")
    return (
        "Above: what each of the best heads costs alone, as a share of the metric, and for each "
        "pair the joint loss minus the sum of the single ones; red: backup, blue: overlap; a dot: "
        f"more than {MARGIN:g} by intervals that hold together over all pairs. Below: the joint "
        f"loss of the k best heads over the sum of their single losses, and that of {draws} of "
        "other heads where their sum is clearly above 0; bands are 95 % intervals over prompts, "
        "templates and random orders, rankings held fixed. "
        f"{facts['model']}, {facts['total']} heads, ranked by {facts['ranking']}; off: "
        f"{facts['ablation']}; {n} test prompts."
    )
