"""The studies: each composes tasks, rankings, curves and claims, and leaves one folder behind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headcount.lab import Lab
from headcount.models.model import Model, load_model
from headcount.studies.description import STUDIES, study_kind
from headcount.studies.head_roles.study import KIND as HEAD_ROLES
from headcount.studies.study import Study

__all__ = ["STUDIES", "Study", "run_study"]

STUDIES.update({kind.key: kind for kind in (HEAD_ROLES,)})


def run_study(
    name: str,
    models: Model | str | Sequence[Model | str] | None = None,
    *,
    preset: str = "quick",
    lab: Lab | None = None,
    **settings: Any,
) -> Study:
    """Run a study by its name, on one model or several; settings go over those of the preset.

    >>> from headcount import load_model, run_study
    >>> model = load_model("smollm2-135m")
    >>> study = run_study("head-roles", model, tasks=("syntax",), n=8, counts=(4,), seeds=1)
    >>> sorted({row["series"] for row in study.rows})
    ['facilitation', 'interference', 'irrelevance']
    >>> study.claims[0].verdict in ("supported", "refuted", "undecided")
    True

    `study.save(folder)` writes figures, tables, claims and report.
    """
    kind = study_kind(name)
    config = kind.configure(preset, **settings)
    several = [models] if isinstance(models, Model | str) else models or kind.models
    loaded = [load_model(model) if isinstance(model, str) else model for model in several]
    return kind.describe(loaded, config).carry_out(lab or Lab())
