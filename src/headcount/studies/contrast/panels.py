"""The panels of `contrast`: a skill that was left out of a fit, under the gates of that fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

from headcount.metrics.chance import Chance
from headcount.stats import Estimate, Interval, Resampling, share_interval
from headcount.studies.contrast.config import FORMS, other_form
from headcount.studies.contrast.fits import CONTROLS, WHOLE
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "form", "kept", "metric", "series", "count")
SHARED = ("model", "task", "form")


@dataclass(frozen=True, eq=False)
class SkillPanel:
    """A skill under gates that were fitted to other skills, to keep one form of them."""

    values: ValueTable
    facts: Mapping[str, Any]
    skill: str
    kept: str
    items: Mapping[str, Resampling]  # the prompts of each form, which both kept forms share

    @property
    def name(self) -> str:
        """The skill."""
        return str(self.facts["names"][self.skill])

    @property
    def forgotten(self) -> str:
        """The form that the gates forget."""
        return other_form(self.kept)

    @cached_property
    def count(self) -> int:
        """How many heads the gates shut, on the mean of fits."""
        return int(self.facts["shut"][f"{self.skill} {self.kept}"])

    def table(self, form: str, series: str, metric: str) -> np.ndarray:
        """The values of a series, (draws, prompts)."""
        whole = series == WHOLE
        return self.values.get(
            model=self.facts["model"],
            task=self.skill,
            form=form,
            kept="" if whole else self.kept,
            metric=metric,
            series=series,
            count=0 if whole else self.count,
        )

    def change(self, form: str, series: str, metric: str) -> Estimate:
        """The mean change from the whole model."""
        return self.minus(form, series, WHOLE, metric)

    def minus(self, form: str, series: str, other: str, metric: str) -> Estimate:
        """The mean of a series minus that of another one on the same prompts.

        All learned series have the same fits as draws; each control has draws of its own.
        """
        one, two = (self.table(form, name, metric) for name in (series, other))
        # Random draws are named apart by direction, since the fits that they belong to are others.
        first, second = (
            f"{name if name in CONTROLS else 'fits'} {self.kept}" for name in (series, other)
        )
        found = self.items[form].difference(one, two, (first, second))
        return found.limited(-1, 1) if metric == "accuracy" else found

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is at chance in either form, else an empty text."""
        told = []
        for form in FORMS:
            share = accuracy_of(self.values, self.facts, self.skill, form, self.items[form])
            if sentence := chance_in(self.facts, self.skill, form).sentence(share, "Accuracy"):
                told.append(f"{form}: {sentence}")
        return " ".join(told)


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[SkillPanel]:
    """The panels of a result: each skill that was left out, by the form that is kept."""
    items: dict[str, dict[str, Resampling]] = {}
    panels = []
    for own in facts["panels"]:
        skill = own["task"]
        if skill not in items:
            items[skill] = {form: items_of(values, facts, skill, form) for form in FORMS}
        panels.append(SkillPanel(values, facts, skill, own["kept"], items[skill]))
    return panels


def items_of(values: ValueTable, facts: Mapping[str, Any], skill: str, form: str) -> Resampling:
    """Resamples of the test prompts of a skill and form."""
    clusters = values.clusters(model=facts["model"], task=skill, form=form)
    return Resampling(clusters, seed=crc32(f"{skill} {form}".encode()))


def accuracy_of(
    values: ValueTable, facts: Mapping[str, Any], skill: str, form: str, items: Resampling
) -> Interval:
    """The accuracy of the whole model on the test prompts of a skill and form."""
    about = {"model": facts["model"], "task": skill, "form": form, "kept": ""}
    right = values.get(**about, metric="accuracy", series=WHOLE, count=0)
    return share_interval(items.estimate(right), items)


def chance_in(facts: Mapping[str, Any], skill: str, form: str) -> Chance:
    """The level of chance of a skill in a form."""
    own = next(one for one in facts["able"] if (one["task"], one["form"]) == (skill, form))
    return Chance(**own["chance"])
