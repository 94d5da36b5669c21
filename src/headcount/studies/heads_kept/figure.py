"""The figures of `heads-kept`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.curves.explained import Explained, ratio_of_needed
from headcount.curves.keep import RANDOM
from headcount.errors import span_text
from headcount.figures.kept import (
    MODELS,
    KeptLine,
    KeptPanel,
    plot_areas,
    plot_kept,
    plot_ratios,
)
from headcount.figures.style import PALETTE, model_label
from headcount.report.estimates import Estimates
from headcount.studies.heads_kept.panels import TaskPanel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    panels: Sequence[TaskPanel], found: Estimates, facts: Mapping[str, Any]
) -> tuple[dict[str, Figure], dict[str, str]]:
    """All figures by file name, and their captions."""
    pairs = {tuple(panel.models[:2]) for panel in panels}
    base = panels[0].models[0] if len({one for one, *_ in pairs}) == 1 else "the first model"
    figures = {
        "figure": plot_kept([kept_panel(panel) for panel in panels], threshold=panels[0].threshold),
        "areas": plot_areas(_areas(found, facts), label="CMD (0: as all heads)"),
    }
    captions = {"figure": _caption(panels, facts), "areas": _areas_caption(panels)}
    if len(panels[0].ablations) > 1:
        drawn = [_ablations(panel, panel.models[0]) for panel in panels]
        figures["ablations"] = plot_kept(drawn, threshold=panels[0].threshold)
        captions["ablations"] = (
            f"The same order of heads, {panels[0].first[1]}, in {base}, with other replacements of "
            "absent heads: means over corrupted or clean prompts, another prompt's output, zero. "
            "Bands are 95 % intervals over prompts."
        )
    if all(len(panel.models) > 1 for panel in panels):
        second = panels[0].models[1] if len(pairs) == 1 else "the second model of each panel"
        figures["ratios"] = plot_ratios(ratios(panels, found, facts))
        captions["ratios"] = (
            f"Heads needed by {base} over heads needed by {second}, for every "
            "explained effect τ, by order of the heads: above 1 the second model needs fewer. "
            "Hollow: a curve does not reach τ before all heads. Bands are 95 % intervals."
        )
    return figures, captions


def _points(curve: Explained) -> list[tuple[float, float, float, float]]:
    return [(count, at.value, at.low, at.high) for count, at in curve.points]


def kept_panel(panel: TaskPanel) -> KeptPanel:
    """The lines of a task: of each model, ranked and in random order."""
    lines, needed = [], []
    for model in panel.models:
        curve, colour = panel.curve(model), MODELS[panel.place(model)]
        label = model_label(model)
        lines.append(KeptLine(label, colour, _points(curve)))
        needed.append(curve.needed(panel.threshold).value)
        if panel.has_random(model):
            random = _points(panel.curve(model, "", RANDOM))
            lines.append(KeptLine(f"{label}, random order", colour, random, random=True))
    words = f"{needed[0]:.0f} {panel.unit}s" if needed[0] == needed[0] else ""
    if len(panel.models) > 1:
        one, two = (panel.curve(model) for model in panel.models[:2])
        ((_, ratio, _),) = ratio_of_needed(one, two, [panel.threshold])
        if ratio.known:
            words = f"{ratio.value:.2g}x [{ratio.low:.2g}, {ratio.high:.2g}]"
    at_chance = [model_label(model) for model in panel.models if panel.at_chance(model)]
    return KeptPanel(panel.title, lines, needed, words, at_chance)


def _ablations(panel: TaskPanel, model: str) -> KeptPanel:
    lines = [
        KeptLine(ablation, colour, _points(panel.curve(model, ablation, panel.first[1])))
        for ablation, colour in zip(panel.ablations, PALETTE, strict=False)
    ]
    return KeptPanel(panel.title, lines)


def _areas(found: Estimates, facts: Mapping[str, Any]) -> dict[str, Any]:
    """CMD on the linear axis by task, order and model."""
    areas: dict[str, Any] = {title: {} for title in facts["tasks"].values()}
    first = facts["ablation"]
    for row in found.tables["Areas"]:
        if row["ablation"] == first and row["axis"] == "linear":
            rows = areas[facts["tasks"][row["task"]]].setdefault(row["order"], {})
            rows[row["model"]] = row["CMD"], row["CMD low"], row["CMD high"]
    return areas


def ratios(
    panels: Sequence[TaskPanel], found: Estimates, facts: Mapping[str, Any]
) -> dict[str, Any]:
    """The ratio at every threshold by task and order, against the second model of its panel."""
    by_task: dict[str, Any] = {title: {} for title in facts["tasks"].values()}
    second = {panel.key: panel.models[1] for panel in panels}
    for row in found.tables["Ratio by threshold"]:
        if row["ablation"] == facts["ablation"] and row["other"] == second[row["task"]]:
            points = by_task[facts["tasks"][row["task"]]].setdefault(row["order"], [])
            ends = row["ratio"], row["ratio low"], row["ratio high"]
            points.append((row["threshold"], *ends, row["censored"]))
    return by_task


def _caption(panels: Sequence[TaskPanel], facts: Mapping[str, Any]) -> str:
    ablation, order = panels[0].first
    n = span_text([panel.items(panel.models[0]).n for panel in panels])
    models = "; ".join(f"{name}, {total} heads" for name, total in facts["models"].items())
    return (
        f"{models}. Heads kept in the order of {order} (ranked per {facts['per']}), all others "
        f"replaced by {facts['words'].get(ablation, ablation)}; {n} prompts. Above on a linear "
        "axis, as published, below on a log axis. Bands are 95 % intervals over prompts and "
        f"templates, with the ranking held fixed. Dashed: explained effect {panels[0].threshold:g}."
    )


def _areas_caption(panels: Sequence[TaskPanel]) -> str:
    return (
        "CMD, the mean of |1 − explained effect| over the share of heads kept, by order of the "
        f"heads (ablation {panels[0].first[0]}): 0 if any number of heads does what all do. "
        "Whiskers are 95 % intervals over prompts. Random order is what knows nothing."
    )
