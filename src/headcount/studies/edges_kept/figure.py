"""The figures of `edges-kept`, and what their captions must say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headcount.curves.keep import RANDOM
from headcount.errors import span_text
from headcount.figures.kept import KeptLine, KeptPanel, plot_kept, plot_ratios
from headcount.figures.style import PALETTE
from headcount.report.estimates import Estimates
from headcount.studies.heads_kept.figure import kept_panel, ratios
from headcount.studies.heads_kept.panels import TaskPanel

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(
    panels: Sequence[TaskPanel], found: Estimates, facts: Mapping[str, Any]
) -> tuple[dict[str, Figure], dict[str, str]]:
    """The published figure, and the ratio at every threshold."""
    drawn = [kept_panel(panel) for panel in panels]
    figures = {"figure": plot_kept(drawn, threshold=panels[0].threshold, edges=True)}
    captions = {"figure": _caption(panels, facts)}
    base = panels[0].models[0]
    orders = [o for o in panels[0].orders(base, panels[0].ablations[0]) if o != RANDOM]
    if len(orders) > 1:
        by_order = [_orders(panel, base, orders) for panel in panels]
        figures["orders"] = plot_kept(by_order, threshold=panels[0].threshold, edges=True)
        captions["orders"] = (
            f"The same in {base} by each order of the edges. Signed orders drop edges that work "
            "against the answer until last, so their curves pass 1. Bands are 95 % intervals."
        )
    if len(panels[0].models) > 1:
        base, other = panels[0].models[:2]
        figures["ratios"] = plot_ratios(ratios(panels, found, facts))
        captions["ratios"] = (
            f"Edges needed by {base} over edges needed by {other}, for every explained effect τ, "
            "by order of the edges: above 1 the second model needs fewer. Hollow: a curve does not "
            "reach τ before all edges. Bands are 95 % intervals."
        )
    return figures, captions


def _orders(panel: TaskPanel, model: str, orders: Sequence[str]) -> KeptPanel:
    lines = []
    for order, colour in zip(orders, PALETTE, strict=False):
        curve = panel.curve(model, "", order)
        points = [(count, at.value, at.low, at.high) for count, at in curve.points]
        lines.append(KeptLine(order, colour, points))
    return KeptPanel(panel.title, lines)


def _caption(panels: Sequence[TaskPanel], facts: Mapping[str, Any]) -> str:
    order = panels[0].first[1]
    n = span_text([panel.items(panel.models[0]).n for panel in panels])
    models = "; ".join(f"{name}, {total} heads" for name, total in facts["models"].items())
    per = "each prompt" if facts["per"] == "prompt" else "all prompts of one template and length"
    return (
        f"{models}. Attention edges (layer, head, query, key) kept in the order of {order}, ranked "
        f"for {per}; all others say what they say on the corrupted prompt; {n} prompts. Bands are "
        "95 % intervals over prompts and templates, with the ranking held fixed. Dashed: explained "
        f"effect {panels[0].threshold:g}."
    )
