"""The panels of `masked-heads`: the values of one function each, and estimates of their means."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

from headcount.metrics.chance import Chance
from headcount.stats import Estimate, Interval, Resampling, share_interval
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "ranking", "metric", "series", "count")
SERIES = ("top", "random", "matched")
AGAIN, ANYWHERE = "reranked", "anywhere"  # TopK of resampled rankings; heads drawn from all heads


@dataclass(frozen=True, eq=False)
class FunctionPanel:
    """One cognitive function: the values of its items, and what estimates need besides them.

    The first of `rankings` makes the figure and claims.
    """

    key: str
    name: str
    values: ValueTable
    facts: Mapping[str, Any]
    model: str

    @cached_property
    def rankings(self) -> list[str]:
        """The rankings that were measured."""
        return self.values.names("ranking", task=self.key)

    @property
    def accuracy(self) -> str:
        """The key of the first metric."""
        return str(self.facts["metrics"][0]["key"])

    @property
    def similarity(self) -> str:
        """The key of the second metric."""
        return str(self.facts["metrics"][-1]["key"])

    @property
    def floors(self) -> dict[str, float]:
        """Each metric of answers that were given to other questions."""
        return dict(self.facts["floors"][self.key])

    @cached_property
    def items(self) -> Resampling:
        """Resamples of the items; each panel has a seed of its own."""
        clusters = self.values.clusters(model=self.model, task=self.key)
        return Resampling(clusters, seed=crc32(self.key.encode()))

    def table(self, series: str, count: int, metric: str = "", ranking: str = "") -> np.ndarray:
        """The values of a series at a count, (draws, items); at 0 all are the whole model's."""
        series = series if count else "top"
        return self.values.get(**self._facts(series, count, metric, ranking))

    def has(self, series: str, count: int, metric: str = "", ranking: str = "") -> bool:
        """Whether a series was measured at a count."""
        return self.values.has(**self._facts(series if count else "top", count, metric, ranking))

    def _facts(self, series: str, count: int, metric: str, ranking: str) -> dict[str, Any]:
        metric, ranking = metric or self.accuracy, ranking or self.rankings[0]
        about = {"model": self.model, "task": self.key, "ranking": ranking, "metric": metric}
        return {**about, "series": series, "count": count}

    def counts(self, series: str, metric: str = "", ranking: str = "") -> list[int]:
        """The counts at which a series was measured, above 0."""
        about = self._facts(series, 0, metric, ranking)
        del about["count"]
        return sorted(count for count in self.values.names("count", **about) if count)

    def at(self, series: str, count: int, metric: str = "", ranking: str = "") -> Estimate:
        """The mean of a series at a count; that of TopK includes the chance of its ranking.

        The draws of a series are the same seeds at all counts, so they are resampled together.
        """
        again = None
        if series == "top" and count and self.has(AGAIN, count, metric, ranking):
            again = self.table(AGAIN, count, metric, ranking)
        table = self.table(series, count, metric, ranking)
        return self.items.estimate(table, draws=series, reranked=again)

    def interval(self, series: str, count: int, metric: str = "", ranking: str = "") -> Interval:
        """That mean with its interval, which for shares of right answers is Wilson's."""
        estimate = self.at(series, count, metric, ranking)
        if self.binary(metric):
            return share_interval(estimate, self.items)
        most = self._metric(metric).get("most")
        return estimate.limited(-math.inf, math.inf if most is None else most).interval

    def _metric(self, metric: str) -> dict[str, Any]:
        """The facts of a metric."""
        return next(m for m in self.facts["metrics"] if m["key"] == (metric or self.accuracy))

    def binary(self, metric: str = "") -> bool:
        """Whether answers are right or wrong by a metric, so that shares of them lie in 0 to 1."""
        return bool(self._metric(metric)["binary"])

    def difference(self, control: str, count: int, metric: str = "", ranking: str = "") -> Estimate:
        """TopK minus a control at a count, paired by item.

        The controls belong to the first ranking, also where TopK is of another one.
        """
        top = self.table("top", count, metric, ranking)
        found = self.items.difference(
            top, self.table(control, count, metric), draws=("top", control)
        )
        if self.binary(metric):
            found = found.limited(-1, 1)
        if not self.has(AGAIN, count, metric, ranking):
            return found
        whole = self.at("top", count, metric, ranking)
        ranked = {level: part for level, part in whole.parts.items() if level.name == "rankings"}
        shift = found.value - whole.value
        return replace(found, parts={**found.parts, **{k: v + shift for k, v in ranked.items()}})

    def scaled(self, metric: str, count: int) -> Estimate:
        """TopK at a count, scaled so that the floor is 0 and the unmasked value is 1."""
        return self.at("top", count, metric).scaled(self.floors[metric], self.at("top", 0, metric))

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        known = self.facts["chance"].get(self.key)
        if known is None:
            return ""
        return Chance(**known).sentence(self.interval("top", 0), self.facts["metrics"][0]["name"])

    @property
    def curves(self) -> Iterator[tuple[str, str]]:
        """Each ranking with its metrics: both of the first ranking, accuracy of the others."""
        for ranking in self.rankings:
            for metric in self.values.names("metric", task=self.key, ranking=ranking):
                yield ranking, metric


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[FunctionPanel]:
    """The panels of a result, in the order of its figure."""
    return [
        FunctionPanel(key, name, values, facts, facts["model"])
        for key, name in facts["functions"].items()
    ]
