"""The panels of `heads-kept`: one task each, with the curves of all models on the same prompts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from zlib import crc32

from headcount.curves.explained import Explained, explained_effect, two_sided_ratio
from headcount.curves.keep import RANDOM
from headcount.stats import Interval, Resampling
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "split", "ablation", "order", "count")
SHARED = ("model", "task", "split")
TEST, VALIDATION = "test", "validation"


@dataclass(frozen=True, eq=False)
class TaskPanel:
    """One task: the values of its prompts in each model, and what estimates need besides them."""

    key: str
    values: ValueTable
    facts: Mapping[str, Any]

    @property
    def title(self) -> str:
        """The task's name for readers."""
        return str(self.facts["tasks"][self.key])

    @property
    def models(self) -> list[str]:
        """The models that it shows, the one that others are compared with first."""
        every = list(self.facts["models"])
        return list(self.facts.get("shown", {}).get(self.key, every))

    def place(self, model: str) -> int:
        """The place of a model among all models of the figure, which decides its colour."""
        return list(self.facts["models"]).index(model)

    @property
    def threshold(self) -> float:
        """The explained effect that counts as enough."""
        return float(self.facts["threshold"])

    @property
    def unit(self) -> str:
        """What is kept: "head", or "edge" in the study `edges-kept`."""
        return str(self.facts.get("unit", "head"))

    def total(self, model: str) -> int:
        """The number of a model's heads."""
        return int(self.facts["models"][model])

    def at_chance(self, model: str) -> str:
        """One sentence if a model is not clearly better than chance, else an empty text."""
        return str(self.facts["at_chance"].get(f"{model} {self.key}", ""))

    @cached_property
    def ablations(self) -> list[str]:
        """The ablations, the one of the figure first."""
        return self.values.names("ablation", task=self.key, split=TEST)

    def orders(self, model: str, ablation: str, split: str = TEST) -> list[str]:
        """The orders of heads that were measured, that of the figure first."""
        about = {"model": model, "task": self.key, "ablation": ablation, "split": split}
        return self.values.names("order", **about)

    @property
    def first(self) -> tuple[str, str]:
        """The ablation and the order of the figure."""
        return self.ablations[0], self.orders(self.models[0], self.ablations[0])[0]

    def items(self, model: str, split: str = TEST) -> Resampling:
        """Resamples of the prompts: models that have the same prompts share them."""
        key = tuple(self.values.examples(model=model, task=self.key, split=split))
        return _resampling(key, crc32(repr(key).encode()))

    def curve(
        self, model: str, ablation: str = "", order: str = "", split: str = TEST
    ) -> Explained:
        """The explained effect against heads kept."""
        ablation, order = ablation or self.first[0], order or self.first[1]
        return self._curve(model, ablation, order, split)

    @cached_property
    def _curves(self) -> dict[tuple[str, ...], Explained]:
        return {}

    def _curve(self, *which: str) -> Explained:
        if which not in self._curves:
            model, ablation, order, split = which
            about = {"model": model, "task": self.key, "split": split, "ablation": ablation}
            counts = self.values.names("count", **about, order=order)
            tables = {n: self.values.get(**about, order=order, count=n) for n in counts}
            draws = RANDOM if order == RANDOM else ""
            self._curves[which] = explained_effect(tables, self.items(model, split), draws)
        return self._curves[which]

    def has_random(self, model: str) -> bool:
        """Whether random orders were measured."""
        return RANDOM in self.orders(model, self.ablations[0])

    def against_random(self, model: str, members: int = 1) -> Interval:
        """The heads needed two-sidedly by the best order (or the first) over those of random order.

        The interval holds together with those of the other `members` of a family.
        """
        order = self.best_order(model) or self.first[1]
        one, random = (self.curve(model, "", which) for which in (order, RANDOM))
        return two_sided_ratio(one, random, members=members)

    def best_order(self, model: str) -> str | None:
        """The order with the smallest CMD on the validation prompts; None without any."""
        orders = self.orders(model, self.ablations[0], VALIDATION)
        if not orders:
            return None
        areas = {o: self.curve(model, "", o, VALIDATION).cmd().value for o in orders}
        return min(areas, key=lambda order: areas[order])


@cache
def _resampling(examples: tuple[tuple[str, str, str], ...], seed: int) -> Resampling:
    numbers: tuple[dict[str, int], dict[str, int]] = ({}, {})
    clusters = [
        [known.setdefault(name, len(known)) for known, name in zip(numbers, names, strict=True)]
        for _, *names in examples
    ]
    return Resampling(clusters, seed=seed)


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[TaskPanel]:
    """The panels of a result, in the order of its figure."""
    return [TaskPanel(key, values, facts) for key in facts["tasks"]]
