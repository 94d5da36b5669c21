"""What is estimated from the values of `contrast`: changes, what the model can do, and claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from headcount.report.estimates import Estimates
from headcount.stats import Interval
from headcount.studies.contrast.claims import judge_claims
from headcount.studies.contrast.config import FORMS
from headcount.studies.contrast.fits import CONTROLS, LEARNED, METRICS, WHOLE
from headcount.studies.contrast.panels import (
    SkillPanel,
    accuracy_of,
    chance_in,
    items_of,
    panels_of,
)
from headcount.studies.description import columns
from headcount.value_table import ValueTable

Rows = list[dict[str, Any]]


def estimate(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """All points, tables and claims."""
    panels = panels_of(values, facts)
    tables = {"Whole model": whole_rows(values, facts), "Differences": difference_rows(panels)}
    notes = [f"{panel.name}: {panel.at_chance}" for panel in panels if panel.at_chance]
    notes += [
        f"{panel.name}, {form}: {panel.items[form].words}." for panel in panels for form in FORMS
    ]
    return Estimates(
        rows=[row for panel in panels for row in point_rows(panel)],
        claims=judge_claims(panels),
        tables={title: rows for title, rows in tables.items() if rows},
        notes=list(dict.fromkeys([*left_out(facts), *notes])),
    )


def point_rows(panel: SkillPanel) -> Rows:
    """The change of each form under each series, by both metrics."""
    return [
        _row(panel, form, metric, series, panel.change(form, series, metric).interval)
        for metric in METRICS
        for form in FORMS
        for series in (*LEARNED, *CONTROLS)
    ]


def difference_rows(panels: Sequence[SkillPanel]) -> Rows:
    """The learned gates and head sets minus either control, in each form, by log-probability."""
    return [
        _row(panel, form, METRICS[0], f"{series} minus {control}", found.interval)
        for panel in panels
        for form in FORMS
        for series in LEARNED
        for control in CONTROLS
        for found in [panel.minus(form, series, control, METRICS[0])]
    ]


def whole_rows(values: ValueTable, facts: Mapping[str, Any]) -> Rows:
    """What the whole model can do, on ranking prompts (which decide) and on test prompts."""
    rows = []
    for own in facts["able"]:
        skill, form = own["task"], own["form"]
        items = items_of(values, facts, skill, form)
        found = accuracy_of(values, facts, skill, form, items)
        about = {"model": facts["model"], "task": skill, "form": form, "kept": ""}
        logprob = values.get(**about, metric=METRICS[0], series=WHOLE, count=0)
        rows.append(
            {
                "model": facts["model"],
                "task": skill,
                "form": form,
                "above chance": "yes" if own["able"] else "no",
                "accuracy to rank": own["accuracy"],
                **columns(found),
                "n": items.n,
                "chance": chance_in(facts, skill, form).level,
                "log-probability per token": float(logprob.mean()),
            }
        )
    return rows


def left_out(facts: Mapping[str, Any]) -> Iterator[str]:
    """One sentence about the skills that the whole model cannot do in both forms."""
    unable = [one for one in facts["able"] if not one["able"]]
    if unable:
        named = ", ".join(f"{facts['names'][one['task']]} ({one['form']})" for one in unable)
        yield (
            f"{facts['model']} is not clearly above chance on ranking prompts of {named}: these "
            "skills are in no fit, and are not tested."
        )


def _row(panel: SkillPanel, form: str, metric: str, series: str, found: Interval) -> dict[str, Any]:
    return {
        "model": panel.facts["model"],
        "task": panel.skill,
        "series": series,
        "metric": metric,
        "count": panel.count,
        **columns(found),
        "n": panel.items[form].n,
        "form": form,
        "kept": panel.kept,
        "role": "kept" if form == panel.kept else "forgotten",
    }
