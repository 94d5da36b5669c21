"""Run a study by its name, or count what the study would measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.engine.measure.cost import Cost
from headcount.lab import Lab, lab_for
from headcount.models.model import Model, load_model
from headcount.registry import settings_of
from headcount.report.study import Study
from headcount.studies import study_kind
from headcount.studies.description import Description

Models = Model | str | Sequence[Model | str] | None


def describe_study(
    name: str, models: Models = None, *, preset: str = "quick", **settings: Any
) -> Description:
    """Describe what a study would measure; `settings` replace those of the preset."""
    kind = study_kind(name)
    config = kind.configure(preset, **settings)  # refuses before a model is loaded
    named = kind.preset(preset)
    given = [models] if isinstance(models, Model | str) else models or named.models or kind.models
    named.check_models([model for model in given if isinstance(model, str)])
    loaded = [
        load_model(model, **settings_of(named.loading, model)) if isinstance(model, str) else model
        for model in given
    ]
    for model in loaded:
        model.notice_changes()
    return kind.describe(loaded, config)


def run_study(
    name: str,
    models: Models = None,
    *,
    preset: str = "quick",
    lab: Lab | None = None,
    **settings: Any,
) -> Study:
    """Run a study by its name, on one model or several; `settings` replace those of the preset.

    >>> from headcount import load_model, run_study
    >>> model = load_model("smollm2-135m-q4")
    >>> study = run_study("masked-heads", model, functions=["syntactic"], n=8, counts=[4], seeds=1)
    >>> sorted({row["series"] for row in study.rows})
    ['matched', 'random', 'top']
    >>> study.claims[0].verdict in ("supported", "refuted", "undecided")
    True

    `study.save(folder)` writes the figures, tables, claims and the report.
    """
    study = describe_study(name, models, preset=preset, **settings).carry_out(lab_for(lab))
    return study_kind(name).preset(preset).told(study, preset)


def study_cost(name: str, models: Models = None, *, lab: Lab | None = None, **more: Any) -> Cost:
    """An upper bound of what `run_study` would measure with these arguments; it runs nothing."""
    return describe_study(name, models, **more).cost(lab_for(lab))
