"""The figure of the study `pruned`, and what its caption must say."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headcount.curves.pruned import BEST, HEALED, RANDOM, PrunedHeads
from headcount.errors import counted
from headcount.figures.pruned import PrunedLine, plot_pruned
from headcount.models.groups import GROUPS, HEADS
from headcount.models.weights import about_models
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.pruned.config import TEXT
from headcount.studies.pruned.estimates import MEAN
from headcount.studies.pruned.panels import ACCURACY, LOSS, PrunedPanels, share_kept
from headcount.value_table import ValueTable

LABELS = {ACCURACY: "Accuracy, mean over tasks", LOSS: "Loss, nats per token"}
AXES = {
    GROUPS: "Key/value groups kept (%)\n= share of the cache",
    HEADS: "Query heads of each group kept (%)\nthe cache stays whole",
}


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """Accuracy and loss against the share of groups, and of query heads, that is kept."""
    panels = PrunedPanels(values, facts)
    kinds = list(dict.fromkeys(size["kept"] for size in panels.sizes))
    grid = {
        label: {
            AXES[kind]: (_lines(panels, found, metric, kind), _whole(found, metric))
            for kind in kinds
        }
        for metric, label in LABELS.items()
    }
    return {"figure": plot_pruned(grid)}, {"figure": _caption(panels, facts, models)}


def _row(found: Estimates, metric: str, heads: PrunedHeads) -> Mapping[str, Any]:
    wanted = {"task": TEXT if metric == LOSS else MEAN, "metric": metric, **vars(heads)}
    return next(row for row in found.rows if wanted.items() <= row.items())


def _whole(found: Estimates, metric: str) -> float:
    return float(_row(found, metric, PrunedHeads())["value"])


def _lines(panels: PrunedPanels, found: Estimates, metric: str, kind: str) -> list[PrunedLine]:
    sizes = [size for size in panels.sizes if size["kept"] == kind]
    lines = []
    for series in (BEST, RANDOM):
        for treatment in panels.treatments(sizes[0], series):
            points = []
            for size in sizes:
                heads = PrunedHeads(series, treatment, kind, size["count"])
                row = _row(found, metric, heads)
                points.append((100 * share_kept(size), row["value"], row["low"], row["high"]))
            lines.append(PrunedLine(series, treatment, points))
    return lines


def _caption(panels: PrunedPanels, facts: Mapping[str, Any], models: Models) -> str:
    names = ", ".join(panel.name for panel in panels.of(ACCURACY))
    lost = ", ".join(panel.name for panel in panels.tasks if panel.at_chance)
    draws = len(
        panels.text.table(next(p for p in panels.points(panels.sizes[0]) if p.series == RANDOM))
    )
    healed = ""
    if HEALED in panels.treatments(panels.sizes[0]):
        few = len(facts["healed_draws"])
        healed = f" Healed: {facts['healing']}; {counted(few, 'random draw')} of each size."
    return (
        f"{about_models(models)}; {facts['geometry']}. Above: mean over {names} "
        f"({panels.n(ACCURACY)} examples). Below: {facts['tasks'][TEXT]}, {panels.n(LOSS)} "
        f"blocks. Best heads by {facts['rankings']}; random ones are the mean of "
        f"{counted(draws, 'draw')}. Rescaled: one factor for each head that is kept.{healed} "
        "Upright lines are 95 % intervals over examples and draws, with the ranking held fixed."
        f"{_chance(lost)}"
    )


def _chance(lost: str) -> str:
    return f" At chance and left out: {lost}." if lost else ""
