"""What is estimated from the values of `heads-kept`: curves, areas, heads needed and ratios."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headcount.curves.explained import AXES, ratio_of_needed
from headcount.curves.keep import RANDOM
from headcount.report.estimates import Estimates
from headcount.stats import Estimate, Interval, simultaneous
from headcount.studies.heads_kept.claims import judge_claims
from headcount.studies.heads_kept.panels import TEST, TaskPanel, panels_of
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]
Curve = tuple[TaskPanel, str, str, str]  # panel, model, ablation, order


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = panels_of(values, facts)
    tables = {
        "Areas": [row for curve in _curves(panels) for row in area_rows(*curve)],
        "Areas compared": difference_rows(panels),
        f"{panels[0].unit.title()}s needed": [needed_row(*curve) for curve in _curves(panels)],
        "Ratio by threshold": [row for panel in panels for row in ratio_rows(panel)],
        "Best order": [row for panel in panels for row in best_rows(panel)],
    }
    return Estimates(
        rows=[row for curve in _curves(panels) for row in point_rows(*curve)],
        claims=judge_claims(panels),
        tables={title: rows for title, rows in tables.items() if rows},
        notes=[note for panel in panels for note in notes(panel)],
    )


def _curves(panels: Sequence[TaskPanel]) -> Iterator[Curve]:
    for panel in panels:
        for model in panel.models:
            for ablation in panel.ablations:
                for order in panel.orders(model, ablation):
                    yield panel, model, ablation, order


def _about(panel: TaskPanel, model: str, ablation: str, order: str) -> dict[str, Any]:
    return {"model": model, "task": panel.key, "ablation": ablation, "order": order}


def point_rows(panel: TaskPanel, model: str, ablation: str, order: str) -> Rows:
    """The tidy table of one curve."""
    curve, rows = panel.curve(model, ablation, order), []
    about = {"model": model, "task": panel.key, "split": TEST}
    for count, found in curve.points:
        table = panel.values.get(**about, ablation=ablation, order=order, count=count)
        rows.append(
            {
                "model": model,
                "task": panel.key,
                "series": "random" if order == RANDOM else "top",
                "metric": "explained_effect",
                "count": count,
                **_ends(found),
                "n": table.shape[1],
                "draws": len(table),
                "ranking": order,
                "ablation": ablation,
                "mean_metric": float(table.mean()),
            }
        )
    return rows


def _ends(found: Interval, name: str = "value") -> dict[str, float]:
    before = "" if name == "value" else f"{name} "
    return {name: found.value, f"{before}low": found.low, f"{before}high": found.high}


def area_rows(panel: TaskPanel, model: str, ablation: str, order: str) -> Rows:
    """CPR and CMD of one curve, on both axes."""
    curve = panel.curve(model, ablation, order)
    return [
        {
            **_about(panel, model, ablation, order),
            "axis": axis,
            **_ends(curve.cpr(axis).interval, "CPR"),
            **_ends(curve.cmd(axis).interval, "CMD"),
            "n": curve.span.n,
        }
        for axis in AXES
    ]


def difference_rows(panels: Sequence[TaskPanel]) -> Rows:
    """The areas of the first model minus those of each other, paired by prompt.

    Two intervals each: one for itself, and one that holds together with those of the other tasks
    (of the same models, order, axis and area).
    """
    families: dict[tuple[str, ...], list[tuple[TaskPanel, Estimate]]] = {}
    for panel in panels:
        base, *others = panel.models
        for other in others:
            for ablation in panel.ablations:
                orders = panel.orders(base, ablation)
                for order in (o for o in orders if o in panel.orders(other, ablation)):
                    one, two = (panel.curve(m, ablation, order) for m in (base, other))
                    for axis in AXES:
                        for name in ("CPR", "CMD"):
                            gap = getattr(one, name.lower())(axis) - getattr(two, name.lower())(
                                axis
                            )
                            key = base, other, ablation, order, axis, name
                            families.setdefault(key, []).append((panel, gap))
    rows: Rows = []
    for (base, other, ablation, order, scale, name), members in families.items():
        together = simultaneous([gap for _, gap in members])
        for (panel, gap), wide in zip(members, together, strict=True):
            rows.append(
                {
                    "task": panel.key,
                    "first": base,
                    "other": other,
                    "ablation": ablation,
                    "order": order,
                    "axis": scale,
                    "area": name,
                    **_ends(gap.interval),
                    "low together": wide.low,
                    "high together": wide.high,
                    "n": gap.n,
                }
            )
    return rows


def needed_row(panel: TaskPanel, model: str, ablation: str, order: str) -> dict[str, Any]:
    """The heads (or edges) that a curve needs: at the threshold, and two-sidedly."""
    curve = panel.curve(model, ablation, order)
    needed, stays = curve.needed(panel.threshold), curve.two_sided()
    reached = bool(curve.effect.value[:-1].max() >= panel.threshold)
    about = {"model": model, "task": panel.key, "split": TEST, "ablation": ablation}
    ends = [
        float(panel.values.get(**about, order=order, count=count).mean())
        for count in (0, curve.total)
    ]
    return {
        **_about(panel, model, ablation, order),
        "threshold": panel.threshold,
        **_ends(needed, f"{panel.unit}s"),
        "reached": reached,
        **_ends(stays, "two-sided"),
        "of": curve.total,
        "highest": float(curve.effect.value.max()),
        f"no {panel.unit}": ends[0],
        f"all {panel.unit}s": ends[1],
        "n": curve.span.n,
    }


def ratio_rows(panel: TaskPanel) -> Rows:
    """The heads that the first model needs over those of each other, at every threshold."""
    base, *others = panel.models
    rows: Rows = []
    for other in others:
        for ablation in panel.ablations:
            for order in panel.orders(base, ablation):
                if order == RANDOM or order not in panel.orders(other, ablation):
                    continue
                one, two = (panel.curve(model, ablation, order) for model in (base, other))
                for threshold, ratio, censored in ratio_of_needed(one, two):
                    rows.append(
                        {
                            "task": panel.key,
                            "first": base,
                            "other": other,
                            "ablation": ablation,
                            "order": order,
                            "threshold": threshold,
                            **_ends(ratio, "ratio"),
                            "censored": censored,
                            "n": ratio.n,
                        }
                    )
    return rows


def best_rows(panel: TaskPanel) -> Rows:
    """The order that is best on validation prompts, and its areas on the test prompts."""
    rows: Rows = []
    for model in panel.models:
        order = panel.best_order(model)
        if order is not None:
            curve = panel.curve(model, "", order)
            rows.append(
                {
                    "model": model,
                    "task": panel.key,
                    "order": order,
                    **_ends(curve.cmd().interval, "CMD"),
                    **_ends(curve.cpr().interval, "CPR"),
                    **_ends(curve.needed(panel.threshold), f"{panel.unit}s"),
                    "of": curve.total,
                    **_ends(curve.two_sided(), "two-sided"),
                }
            )
            if panel.has_random(model):
                random = panel.curve(model, "", RANDOM).two_sided()
                rows[-1] |= _ends(random, "two-sided, random")
                rows[-1] |= _ends(panel.against_random(model), "two-sided over random")
    return rows


def notes(panel: TaskPanel) -> list[str]:
    """What a reader must know about a task."""
    texts = []
    for model in panel.models:
        if panel.at_chance(model):
            texts.append(f"{panel.title}, {model}: {panel.at_chance(model)}")
        for ablation in panel.ablations:
            order = panel.orders(model, ablation)[0]
            if not panel.curve(model, ablation, order).known:
                texts.append(
                    f"{panel.title}, {model}: with the ablation {ablation}, the model does no "
                    f"better with all {panel.unit}s than with none, so there is no effect to "
                    "explain."
                )
    return [*texts, f"{panel.title}: {panel.items(panel.models[0]).words}."]
