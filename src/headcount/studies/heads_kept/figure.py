"""The figures of `heads-kept`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.curves.explained import Explained, ratio_of_needed
from headcount.curves.keep import RANDOM
from headcount.errors import counted, span_text
from headcount.figures.kept import (
    MODELS,
    KeptLine,
    KeptPanel,
    plot_areas,
    plot_kept,
    plot_ratios,
)
from headcount.figures.layout import both_widths
from headcount.figures.style import COLUMN, PALETTE
from headcount.models.weights import about_models, display_names
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.heads_kept.panels import TaskPanel, panels_of
from headcount.value_table import ValueTable

APART = 1.03  # the ratio of neighbouring counts that are drawn: one head more would be a cliff
CLIPPED = "A triangle at the frame marks a band that goes beyond it."


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """All figures by file name, and their captions."""
    panels, names, about = panels_of(values, facts), display_names(models), about_models(models)
    bases, threshold = list(dict.fromkeys(p.models[0] for p in panels)), panels[0].threshold
    drawn = [kept_panel(panel, names) for panel in panels]
    areas = _areas(found, facts, names)
    figures = {
        **both_widths("figure", plot_kept, drawn, threshold=threshold),
        "areas": plot_areas(areas, label="CMD (0: as all heads)", width=COLUMN),
    }
    captions = {"figure": _caption(panels, facts, about), "areas": _areas_caption(panels, about)}
    if len(panels[0].ablations) > 1:
        drawn = [_ablations(panel, panel.models[0]) for panel in panels]
        figures["ablations"] = plot_kept(drawn, threshold=threshold, width=COLUMN)
        captions["ablations"] = (
            f"The same order of heads, {panels[0].first[1]}, in {about_models(models, bases)}, "
            "with other replacements of absent heads: means over corrupted or clean prompts, "
            f"another prompt's output, zero. Bands are 95 % intervals over prompts. {CLIPPED}"
        )
    if all(len(panel.models) > 1 for panel in panels):
        figures["ratios"] = plot_ratios(ratios(panels, found, facts))
        captions["ratios"] = f"{ratio_words(panels, 'heads')} {about}."
    return figures, captions


def ratio_words(panels: Sequence[TaskPanel], units: str) -> str:
    """What the caption of a figure of ratios says."""
    base, other = panels[0].models[:2]
    if len({tuple(panel.models[:2]) for panel in panels}) > 1:
        base, other = "the first model", "the second model of each panel"
    return (
        f"{units.capitalize()} needed by {base} over {units} needed by {other}, for every "
        f"explained effect τ, by order of the {units}: above 1 the second model needs fewer. "
        f"Hollow: a curve does not reach τ before all {units}. Bands are 95 % intervals; equal "
        "lines are drawn a little apart."
    )


def _points(curve: Explained) -> list[tuple[float, float, float, float]]:
    """The points of a curve; of counts that are nearly equal, one is drawn."""
    points: list[tuple[float, float, float, float]] = []
    for count, at in curve.points:
        if not points or count >= APART * points[-1][0]:
            points.append((count, at.value, at.low, at.high))
    return points


def kept_panel(panel: TaskPanel, names: Mapping[str, str]) -> KeptPanel:
    """The lines of a task: of each model, ranked and in random order, by their names in figures."""
    lines, random, needed = [], [], []
    for model in panel.models:
        curve, colour = panel.curve(model), MODELS[panel.place(model)]
        lines.append(KeptLine(names[model], colour, _points(curve)))
        needed.append(curve.needed(panel.threshold).value)
        if panel.has_random(model):
            points = _points(panel.curve(model, "", RANDOM))
            random.append(KeptLine(f"{names[model]}, random order", colour, points, random=True))
    words = ""
    if needed[0] == needed[0]:
        words = f"{counted(int(needed[0]), panel.unit)} for {panel.threshold:g}"
    if len(panel.models) > 1:
        one, two = (panel.curve(model) for model in panel.models[:2])
        ((_, ratio, _),) = ratio_of_needed(one, two, [panel.threshold])
        if ratio.known:
            words = f"{ratio.value:.2g}x [{ratio.low:.2g}, {ratio.high:.2g}]"
    at_chance = [names[model] for model in panel.models if panel.at_chance(model)]
    return KeptPanel(panel.title, [*lines, *random], needed, words, at_chance)


def _ablations(panel: TaskPanel, model: str) -> KeptPanel:
    lines = [
        KeptLine(ablation, colour, _points(panel.curve(model, ablation, panel.first[1])))
        for ablation, colour in zip(panel.ablations, PALETTE, strict=False)
    ]
    return KeptPanel(panel.title, lines)


def _areas(found: Estimates, facts: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """CMD on the linear axis by task, order and model."""
    areas: dict[str, Any] = {title: {} for title in facts["tasks"].values()}
    first = facts["ablation"]
    for row in found.tables["Areas"]:
        if row["ablation"] == first and row["axis"] == "linear":
            rows = areas[facts["tasks"][row["task"]]].setdefault(row["order"], {})
            rows[names[row["model"]]] = row["CMD"], row["CMD low"], row["CMD high"]
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


def _caption(panels: Sequence[TaskPanel], facts: Mapping[str, Any], about: str) -> str:
    ablation, order = panels[0].first
    n = span_text([panel.items(panel.models[0]).n for panel in panels])
    return (
        f"{about}. Heads kept in the order of {order} (ranked per {facts['per']}), all others "
        f"replaced by {facts['words'].get(ablation, ablation)}; {n} prompts. On a linear axis, as "
        "published, and on a log axis. Bands, hatched for random orders, are 95 % intervals over "
        f"prompts and templates, with the ranking held fixed. {CLIPPED} Black dashes: explained "
        f"effect {panels[0].threshold:g}. Of counts within 3 % of each other one is drawn."
    )


def _areas_caption(panels: Sequence[TaskPanel], about: str) -> str:
    return (
        f"{about}. "
        "CMD, the mean of |1 − explained effect| over the share of heads kept, by order of the "
        f"heads (ablation {panels[0].first[0]}): 0 if any number of heads does what all do. "
        "Whiskers are 95 % intervals over prompts. Random order is what knows nothing."
    )
