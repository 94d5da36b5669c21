"""The figures of the study `masked-heads`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.errors import counted, span_text
from headcount.figures.layout import both_widths
from headcount.figures.masked import CONTROLS, MaskedLine, plot_heat, plot_masked
from headcount.figures.style import COLUMN, METRICS, SERIES, points_of
from headcount.models.weights import about_models
from headcount.rankings import RANKINGS
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.masked_heads.panels import AGAIN, FunctionPanel, panels_of
from headcount.value_table import ValueTable

# The second metric in legends. Only COMET itself may be called COMET.
SHORT = {"comet": "Comet", "similarity": "Similarity (MiniLM)"}


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """The published figure, one with both controls, and with several rankings a heat map."""
    panels = panels_of(values, facts)
    first, second = panels[0].accuracy, panels[0].similarity
    short = {first: "Accuracy"}
    if second != first:
        short[second] = SHORT.get(second, second)
    at_chance = [panel.name for panel in panels if panel.at_chance]

    def rows(panel: FunctionPanel, metric: str) -> list[Any]:
        own = {"task": panel.key, "metric": metric, "ranking": panel.rankings[0]}
        return [row for row in found.rows if own.items() <= row.items()]

    published = {
        panel.name: [
            MaskedLine(
                series, f"{SERIES[series]} {name}", colour, points_of(rows(panel, m), series)
            )
            for (m, name), colour in zip(short.items(), METRICS, strict=False)
            for series in ("top", "random")
        ]
        for panel in panels
    }
    controls = {
        panel.name: [
            MaskedLine(series, SERIES[series], colour, points_of(rows(panel, first), series))
            for series, colour in CONTROLS.items()
        ]
        for panel in panels
    }
    figures = {
        **both_widths("figure", plot_masked, published, label="Score", at_chance=at_chance),
        "controls": plot_masked(controls, label="Accuracy", at_chance=at_chance, width=COLUMN),
    }
    about = about_models(models)
    captions = {"figure": _caption(panels, facts, about), "controls": _controls(about)}
    rankings = list(dict.fromkeys(ranking for panel in panels for ranking in panel.rankings))
    if len(rankings) > 1:
        heat = {RANKINGS[name].name: _means(panels, name) for name in rankings}
        names = [panel.name for panel in panels]
        figures["rankings"] = plot_heat(heat, label="TopK accuracy", columns=names)
        captions["rankings"] = (
            "Accuracy with TopK masked, on the mean over counts, by each ranking: the lower, the "
            f"better the ranking finds the heads that a function needs. {about}."
        )
    return figures, captions


def _means(panels: Sequence[FunctionPanel], ranking: str) -> dict[str, float]:
    """TopK accuracy on the mean over counts, by function."""
    return {
        panel.name: float(
            np.mean([panel.table("top", c, "", ranking).mean() for c in panel.counts("top")])
        )
        for panel in panels
        if ranking in panel.rankings
    }


def _caption(panels: Sequence[FunctionPanel], facts: Mapping[str, Any], about: str) -> str:
    ranked = panels[0].rankings[0]
    draws = max(len(panels[0].table("random", c)) for c in panels[0].counts("random") or [0])
    again = any(panel.has(AGAIN, count) for panel in panels for count in panel.counts("top"))
    ranking = "the ranking included" if again else "with the ranking held fixed"
    n = span_text([panel.items.n for panel in panels])
    names = " and ".join(metric["name"] for metric in facts["metrics"])
    chance = "At chance: " + ", ".join(p.name for p in panels if p.at_chance) + ". "
    return (
        f"{about}. Heads ranked by {ranked}, zero ablation; {names}; {n} items a panel; "
        f"RandomK is the mean of {counted(draws, 'draw')} outside TopK. Bands, hatched for "
        f"RandomK, are 95 % intervals over items and draws, {ranking}; a triangle at the frame "
        f"marks one that goes beyond it. {chance * any(p.at_chance for p in panels)}"
        "0, which a log axis cannot show, stands apart, and equal lines are drawn apart."
    )


def _controls(about: str) -> str:
    return (
        "Accuracy with TopK masked beside two controls: random heads outside TopK, and random "
        f"heads with as many in each layer as TopK has. {about}. Bands are 95 % intervals."
    )
