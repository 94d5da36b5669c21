"""The figures of the study `needle`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.errors import counted
from headcount.figures.lengths import LengthLine, plot_lengths
from headcount.figures.masked import CONTROLS as COLOURS
from headcount.figures.masked import plot_heat
from headcount.figures.style import SERIES as NAMES
from headcount.models.weights import about_models
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.needle.panels import METRICS, POSITIONS, SERIES, NeedlePanel, panels_of
from headcount.value_table import ValueTable

LABELS = {"accuracy": "Accuracy", "logprob": "Log-probability"}
WHERE = {"all": "masked everywhere", "answer": "masked at the answer"}


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """Score against length for each place of the gates and count, and depth against length."""
    panels, about = panels_of(values, facts), about_models(models)
    grid = {
        LABELS[metric]: {
            f"{counted(count, 'head')} {WHERE[positions]}": _lines(found, metric, positions, count)
            for count in panels[0].counts
            for positions in POSITIONS
        }
        for metric in METRICS
    }
    at_chance = [panel.length for panel in panels if panel.at_chance]
    heat: dict[str, dict[str, float]] = {}
    for row in found.tables["Depths"]:
        if row["metric"] == "accuracy":
            depth, length = f"depth {100 * row['depth']:g} %", f"{row['length']:,} tokens"
            heat.setdefault(depth, {})[length] = row["value"]
    figures = {
        "figure": plot_lengths(grid, shares=[LABELS["accuracy"]], at_chance=at_chance),
        "depths": plot_heat(heat, label="Accuracy, all heads", columns=[p.name for p in panels]),
    }
    return figures, {
        "figure": _caption(panels, facts, about),
        "depths": _depths(panels, about),
    }


def _lines(found: Estimates, metric: str, positions: str, count: int) -> list[LengthLine]:
    def points(series: str, where: str, heads: int) -> list[tuple[float, float, float, float]]:
        wanted = {"metric": metric, "positions": where, "series": series, "count": heads}
        rows = [row for row in found.rows if wanted.items() <= row.items()]
        return [(row["length"], row["value"], row["low"], row["high"]) for row in rows]

    whole = LengthLine("whole", "all heads", "#000000", points("top", POSITIONS[0], 0))
    return [
        whole,
        *(LengthLine(s, NAMES[s], COLOURS[s], points(s, positions, count)) for s in SERIES),
    ]


def _caption(panels: Sequence[NeedlePanel], facts: Mapping[str, Any], about: str) -> str:
    draws = len(panels[0].table("accuracy", POSITIONS[0], "random", panels[0].counts[0]))
    chance = ", ".join(panel.name for panel in panels if panel.at_chance)
    return (
        f"Needle in a haystack against the number of tokens. {about}; {panels[0].asked} at each "
        f"length. Heads ranked by {facts['ranking']} at {facts['ranked_at']:,} tokens on other "
        f"needles, zero ablation; RandomK is the mean of {counted(draws, 'draw')} outside TopK. "
        "Upright lines are 95 % intervals over templates, needles and draws, with the ranking "
        "held fixed."
        f"{f' Grey, at chance: {chance}.' if chance else ''}"
    )


def _depths(panels: Sequence[NeedlePanel], about: str) -> str:
    return (
        "Accuracy of the whole model by the depth of the needle (0 % is the beginning of the text) "
        f"and the number of tokens. {about}; {panels[0].asked} at each length, an equal share at "
        "each depth; depths.csv has the intervals."
    )
