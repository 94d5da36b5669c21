"""Rankings by causal gates: by how much each head facilitates, is irrelevant, or interferes.

Each is the mean over seeds, with one sample per seed, fitted on the ranking part as `fit_gates`
does. With a store all three share one fit.
"""

from __future__ import annotations

from dataclasses import asdict

from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import FitSettings, GateFit, RoleSettings
from headcount.tasks import Task


def facilitation(model: Model, task: Task, settings: RoleSettings, *, lab: Lab) -> HeadScores:
    """Learned gates: how open a head stays when pushed shut."""
    return _ranking(model, task, "facilitation", settings, lab)


def irrelevance(model: Model, task: Task, settings: RoleSettings, *, lab: Lab) -> HeadScores:
    """Learned gates: how freely a head opens and shuts."""
    return _ranking(model, task, "irrelevance", settings, lab)


def interference(model: Model, task: Task, settings: RoleSettings, *, lab: Lab) -> HeadScores:
    """Learned gates: how shut a head stays when pushed open."""
    return _ranking(model, task, "interference", settings, lab)


def _ranking(model: Model, task: Task, role: str, settings: RoleSettings, lab: Lab) -> HeadScores:
    return GateFit(model, task, FitSettings(**asdict(settings))).result(lab).ranking(role)
