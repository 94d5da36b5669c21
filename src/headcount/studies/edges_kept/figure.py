"""The figures of `edges-kept`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.curves.keep import RANDOM
from headcount.errors import span_text
from headcount.figures.kept import KeptLine, KeptPanel, plot_kept, plot_ratios
from headcount.figures.layout import both_widths
from headcount.figures.style import COLUMN, PALETTE
from headcount.models.weights import about_models, display_names
from headcount.report.estimates import Drawn, Estimates, Models
from headcount.studies.heads_kept.figure import CLIPPED, kept_panel, ratio_words, ratios
from headcount.studies.heads_kept.panels import TaskPanel, panels_of
from headcount.value_table import ValueTable


def draw(values: ValueTable, facts: Mapping[str, Any], found: Estimates, models: Models) -> Drawn:
    """The published figure, and the ratio at every threshold."""
    panels, names = panels_of(values, facts), display_names(models)
    drawn = [kept_panel(panel, names) for panel in panels]
    how: dict[str, Any] = {"threshold": panels[0].threshold, "edges": True}
    figures = both_widths("figure", plot_kept, drawn, **how)
    captions = {"figure": _caption(panels, facts, about_models(models))}
    base = panels[0].models[0]
    orders = [o for o in panels[0].orders(base, panels[0].ablations[0]) if o != RANDOM]
    if len(orders) > 1:
        by_order = [_orders(panel, base, orders) for panel in panels]
        figures["orders"] = plot_kept(by_order, **how, width=COLUMN)
        captions["orders"] = (
            f"The same in {about_models(models, [base])}, by each order of the edges. Signed "
            "orders drop edges that work against the answer until last, so their curves pass 1. "
            f"Bands are 95 % intervals. {CLIPPED}"
        )
    if len(panels[0].models) > 1:
        figures["ratios"] = plot_ratios(ratios(panels, found, facts))
        captions["ratios"] = f"{ratio_words(panels, 'edges')} {about_models(models)}."
    return figures, captions


def _orders(panel: TaskPanel, model: str, orders: Sequence[str]) -> KeptPanel:
    lines = []
    for order, colour in zip(orders, PALETTE, strict=False):
        curve = panel.curve(model, "", order)
        points = [(count, at.value, at.low, at.high) for count, at in curve.points]
        lines.append(KeptLine(order, colour, points))
    return KeptPanel(panel.title, lines)


def _caption(panels: Sequence[TaskPanel], facts: Mapping[str, Any], about: str) -> str:
    order = panels[0].first[1]
    n = span_text([panel.items(panel.models[0]).n for panel in panels])
    per = "each prompt" if facts["per"] == "prompt" else "all prompts of one template and length"
    return (
        f"{about}. Attention edges (layer, head, query, key) kept in the order of {order}, ranked "
        f"for {per}; all others say what they say on the corrupted prompt; {n} prompts. Bands are "
        f"95 % intervals over prompts and templates, with the ranking held fixed. {CLIPPED} "
        f"Black dashes: explained effect {panels[0].threshold:g}."
    )
