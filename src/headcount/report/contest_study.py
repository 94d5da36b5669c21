"""A contest of rankings as a `Study`, so that it gets the same folder and page as a study."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headcount.curves.contest import Contest
from headcount.curves.contest_tables import area_rows, needed_rows, point_rows
from headcount.figures.agreement import plot_agreement
from headcount.models.model import Model
from headcount.models.weights import about_models
from headcount.report.estimates import Estimates, plain_facts
from headcount.report.study import Study
from headcount.system.files import safe_name
from headcount.value_table import ValueTable

RECOVERED = (
    "AUROC: how often a head of the planted circuit ranks above another one (dashed: by chance), "
    "to keep (▲) and to mask (▼), filled where exactly the right heads are found. "
)


def contest_study(
    contest: Contest,
    model: Model,
    settings: Mapping[str, Any],
    agreements: Mapping[str, Mapping[str, Any]] | None = None,
) -> Study:
    """Make a `Study` of a contest; `agreements` are drawn: `Agreement.to_json` of each task."""
    facts = plain_facts(contest.facts)
    found, models = estimate_contest(contest.values, facts), {model.name: model.facts}
    figures = {"figure": contest.figure()}
    tasks = contest.values.names("task")
    for task, found_alike in (agreements or {}).items():
        name = "agreement" if len(tasks) == 1 else f"agreement-{safe_name(task)}"
        figures[name] = plot_agreement(found_alike, title=f"{task} · {model.name}")
    scores = {}
    for (task, name, goal), one in contest.scores.items():
        both = contest.scores[task, name, "keep"] is contest.scores[task, name, "mask"]
        own = name if both else f"{name}-{goal}"
        scores[own if len(tasks) == 1 else f"{task}/{own}"] = one
    return Study(
        name="contest",
        title=f"contest of rankings · {', '.join(tasks)} · {model.name}",
        rows=found.rows,
        claims=(),
        figures=figures,
        settings={**settings, "counts": contest.values.names("count")},
        model=models,
        scores=scores,
        notes=found.notes,
        tables={**found.tables, **({"Recovery": contest.recovery} if contest.truth else {})},
        values=contest.values,
        facts=facts,
        captions={
            "figure": "Each ranking's areas on the test split with 95 % intervals, one at a time, "
            "the ranking held fixed; dashed: random orders; right: its cost. "
            f"{RECOVERED if contest.truth else ''}"
            f"{about_models(models)}."
        },
    )


def estimate_contest(values: ValueTable, facts: Mapping[str, Any]) -> Estimates:
    """The points of all curves, the areas, and the heads needed."""
    notes = list(dict.fromkeys(filter(None, facts["at_chance"].values())))
    tables = {"Areas": area_rows(values, facts), "Heads needed": needed_rows(values)}
    return Estimates(point_rows(values), (), tables, notes)
