"""The panels of `token-insertion`: the values of one model on one task, and their estimates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
from jaxtyping import Bool, Float

from headcount.metrics.chance import Chance
from headcount.stats import Estimate, Interval, Resampling, constant, mcnemar, share_interval
from headcount.studies.token_insertion.internals import UNIFORM
from headcount.value_table import ValueTable

SHARED = ("model", "task", "sample")
COLUMNS = (*SHARED, "series", "metric", "count", "place", "queries", "where")
PROBLEMS, PROMPTS = "problems", "prompts"  # the two samples: graded, and read
WITHOUT = "w/o"


@dataclass(frozen=True, eq=False)
class InsertPanel:
    """One model on one task: grades of its problems, and internals on some of its prompts."""

    model: str
    task: str
    values: ValueTable
    facts: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What reasons and notes call the panel."""
        label = self.facts["tasks"][self.task]
        return label if len(self.facts["models"]) == 1 else f"{label} ({self.model})"

    @property
    def _own(self) -> dict[str, Any]:
        return {"model": self.model, "task": self.task}

    def _resampling(self, sample: str, chosen: Bool[np.ndarray, "examples"]) -> Resampling:
        """Resamples of some examples; the same examples of two models are resampled alike."""
        about = {**self._own, "sample": sample}
        ids = [one[0] for one in self.values.examples(**about)]
        seed = crc32("".join(np.array(ids)[chosen]).encode())
        return Resampling(self.values.clusters(**about)[chosen], seed=seed)

    # Grades

    @cached_property
    def graded(self) -> dict[str, list[dict[str, Any]]]:
        """What was graded, by series: those of the sweep have several lengths or places."""
        found: dict[str, list[dict[str, Any]]] = {}
        for about in self.values.facts(**self._own, sample=PROBLEMS):
            found.setdefault(about["series"], []).append(about)
        return found

    @property
    def changed(self) -> list[str]:
        """The series that are compared with w/o."""
        return [s for s, of in self.graded.items() if s != WITHOUT and not self.swept(of[0])]

    def swept(self, about: Mapping[str, Any]) -> bool:
        """Whether these grades belong to the sweep."""
        sweep = self.facts["sweep"]
        return bool(sweep) and str(about["series"]).endswith(f", by {sweep}")

    def right(self, series: str) -> Float[np.ndarray, "runs problems"]:
        """The grades of a series outside the sweep."""
        return self.values.get(**self.graded[series][0])

    @cached_property
    def problems(self) -> Resampling:
        """Resamples of the problems."""
        count = len(self.values.examples(**self._own, sample=PROBLEMS))
        return self._resampling(PROBLEMS, np.ones(count, dtype=bool))

    def accuracy(self, about: Mapping[str, Any]) -> Interval:
        """The share of right answers."""
        return share_interval(self.problems.estimate(self.values.get(**about)), self.problems)

    @cached_property
    def without(self) -> Interval:
        """The share of right answers without an insert."""
        return self.accuracy(self.graded[WITHOUT][0])

    @cached_property
    def differences(self) -> dict[str, Estimate]:
        """The accuracy of each series minus that without an insert, paired by problem."""
        base = self.right(WITHOUT)
        return {s: self.problems.difference(self.right(s), base) for s in self.changed}

    def p_value(self, series: str) -> float:
        """McNemar's exact test of a series against w/o; NaN for several runs of a problem."""
        one, other = self.right(series), self.right(WITHOUT)
        return mcnemar(one, other) if len(one) == len(other) == 1 else math.nan

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the answers without an insert are not clearly better than chance."""
        known = self.facts["chance"].get(self.model, {}).get(self.task)
        return Chance(**known).sentence(self.without, "accuracy") if known else ""

    # Internals

    @cached_property
    def _read(self) -> dict[tuple[str, ...], Float[np.ndarray, "prompts"]]:
        return {
            (a["series"], a["metric"], a["queries"], a["where"]): self.values.get(**a)[0]
            for a in self.values.facts(**self._own, sample=PROMPTS)
        }

    @property
    def inside(self) -> dict[str, Any]:
        """The facts of the internals: head, layer, layers and choosing; empty if not read."""
        return dict(self.facts["inside"][self.model]) if self._read else {}

    @property
    def inserts(self) -> list[str]:
        """The series with an insert whose internals were read."""
        return list(dict.fromkeys(series for series, metric, *_ in self._read if metric == "peak"))

    def has(self, series: str, metric: str, where: str, queries: str = "all") -> bool:
        """Whether these internals were read."""
        return (series, metric, queries, where) in self._read

    def judged(self, where: str) -> Bool[np.ndarray, "prompts"]:
        """The prompts on which this is judged: for a head that was chosen, the other half."""
        prompts = np.ones(len(self.values.examples(**self._own, sample=PROMPTS)), dtype=bool)
        if where == self.inside["head"]:
            prompts[list(self.inside["choosing"])] = False
        return prompts

    def means(
        self,
        series: str,
        wanted: Sequence[tuple[str, str]],
        queries: str = "all",
        prompts: Bool[np.ndarray, "prompts"] | None = None,
    ) -> list[Estimate]:
        """The mean of each (metric, where) over the prompts on which all of them are known."""
        tables = [self._read[series, metric, queries, where] for metric, where in wanted]
        return self._means(tables, self.judged(wanted[0][1]) if prompts is None else prompts)

    def _means(
        self, tables: Sequence[Float[np.ndarray, "prompts"]], prompts: Bool[np.ndarray, "prompts"]
    ) -> list[Estimate]:
        known = prompts & ~np.isnan(tables).any(0)
        if not known.any():
            return [constant(math.nan) for _ in tables]
        if (key := known.tobytes()) not in self._resamplings:
            self._resamplings[key] = self._resampling(PROMPTS, known)
        return [self._resamplings[key].estimate(table[known]) for table in tables]

    @cached_property
    def _resamplings(self) -> dict[bytes, Resampling]:
        return {}

    def mean(self, series: str, metric: str, where: str, queries: str = "all") -> Estimate:
        """The mean of one metric over prompts."""
        return self.means(series, [(metric, where)], queries)[0]

    def ratio(
        self, series: str, metrics: tuple[str, str], where: str, queries: str = "all"
    ) -> tuple[Estimate, Estimate, Estimate]:
        """The ratio of two effects, that of a uniform reader, and the one over the other.

        All are ratios of means over the same prompts.
        """
        wanted = [(metric, place) for place in (where, UNIFORM) for metric in metrics]
        top, bottom, even_top, even_bottom = self.means(series, wanted, queries)
        measured, uniform = top.over(bottom), even_top.over(even_bottom)
        return measured, uniform, measured.over(uniform)

    def unevenness(self, series: str, where: str, queries: str = "all") -> Estimate:
        """How unevenly inserted tokens are attended: 0 as by a uniform reader, 1 as original ones.

        By the coefficient of variation over tokens, on the mean over prompts.
        """
        wanted = [("span_spread", where), ("span_spread", UNIFORM), ("original_spread", where)]
        span, uniform, original = self.means(series, wanted, queries)
        return (span - uniform).over(original - uniform)

    def change(self, series: str, metric: str, where: str) -> tuple[Estimate, Estimate]:
        """A statistic of activations without an insert, and its change by the insert."""
        tables = [self._read[s, metric, "", where] for s in (WITHOUT, series)]
        before, after = self._means(tables, self.judged(where))
        return before, after - before


def panels_of(values: ValueTable, facts: Mapping[str, Any]) -> list[InsertPanel]:
    """All panels of a result: the tasks of each model in turn."""
    return [
        InsertPanel(model, task, values, facts)
        for model in facts["models"]
        for task in facts["tasks"]
    ]


def drawn(panels: Sequence[InsertPanel]) -> list[InsertPanel]:
    """The panels of the first task, which make the figure and the claims."""
    return [panel for panel in panels if panel.task == panels[0].task]
