"""The matrix of `transfer`: what each task loses with the best heads of each task masked.

A loss is the share of what can be lost: (unmasked − masked) / (unmasked − chance), at most 1. It is
0 where masking changes nothing, and 1 where no more is left than a model has that knows nothing
about the question. All losses are means over the numbers of masked heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np

from headcount.curves.transfer import MATCHED, TOP, WHOLE, WITHOUT
from headcount.metrics.chance import Chance
from headcount.stats import (
    Estimate,
    Interval,
    Resampling,
    combine,
    constant,
    mean_of,
    share_interval,
)
from headcount.value_table import ValueTable

COLUMNS = ("model", "task", "ranked", "without", "series", "metric", "count")
SHARED = ("model", "task")
Cell = Callable[[str, str], Estimate]  # of the task that heads were ranked on, and the tested one


@dataclass(frozen=True, eq=False)
class TestedTask:
    """One task: its items, and its metric under each head set."""

    key: str
    name: str
    values: ValueTable
    facts: Mapping[str, Any]

    @property
    def about(self) -> dict[str, Any]:
        """The facts that all its values have in common."""
        metric = self.facts["metric"]["key"]
        return {"model": self.facts["model"], "task": self.key, "metric": metric}

    @cached_property
    def items(self) -> Resampling:
        """Resamples of the items; each task has a seed of its own."""
        clusters = self.values.clusters(model=self.facts["model"], task=self.key)
        return Resampling(clusters, seed=crc32(self.key.encode()))

    def table(self, series: str, ranked: str = "", count: int = 0, without: str = "") -> np.ndarray:
        """The values under one head set, (draws, items)."""
        how = {"series": series, "ranked": ranked, "without": without, "count": count}
        return self.values.get(**self.about, **how)

    @cached_property
    def whole(self) -> Estimate:
        """The mean with all heads."""
        return self.items.estimate(self.table(WHOLE))

    @property
    def chance(self) -> Chance:
        """What a model reaches that knows nothing about the question."""
        return Chance(**self.facts["chance"][self.key])

    @cached_property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        name, found = self.facts["metric"]["name"], self.whole.interval
        share = share_interval(self.whole, self.items) if self.facts["metric"]["binary"] else found
        return self.chance.sentence(share, name) or self.chance.sentence(found, name)

    def lost(self, table: np.ndarray, drawn: Resampling | None) -> Estimate:
        """What is lost under one head set, or on the mean over draws, of what can be lost."""
        fall = self.items.difference(self.table(WHOLE), table.mean(0))
        if drawn is not None:
            fall = fall - _over_draws(table, drawn)
        share = fall.over(self.whole - constant(self.chance.level))
        return combine(lambda value: np.minimum(value, 1.0), share).limited(-np.inf, 1.0)


def _over_draws(table: np.ndarray, drawn: Resampling) -> Estimate:
    """The chance of the draws alone: 0, and how far it may be off with other draws."""
    means = table.mean(1)[:, None]  # (draws, 1)
    return combine(lambda value: value[..., 0], drawn.columns(means - means.mean()))


@dataclass(frozen=True, eq=False)
class Transfer:
    """All tasks of a result, and the loss of each under the head sets of each."""

    tasks: Mapping[str, TestedTask]
    facts: Mapping[str, Any]
    _losses: dict[tuple[str, ...], Estimate] = field(default_factory=dict)
    _draws: dict[tuple[str, int], Resampling] = field(default_factory=dict)

    @property
    def counts(self) -> list[int]:
        """The numbers of masked heads."""
        return [int(count) for count in self.facts["counts"]]

    @cached_property
    def usable(self) -> list[str]:
        """The tasks on which the whole model is better than chance."""
        return [key for key, task in self.tasks.items() if not task.at_chance]

    def drawn(self, ranked: str, draws: int) -> Resampling | None:
        """Resamples of the draws for one ranking; None for a single head set.

        They are the same heads on every task and at every count, so they are resampled together.
        """
        if draws == 1:
            return None
        new = Resampling(range(draws), seed=crc32(f"draws for {ranked}".encode()))
        return self._draws.setdefault((ranked, draws), new)

    def interval(
        self, tested: str, series: str, ranked: str, count: int, without: str = ""
    ) -> Interval:
        """The mean of a task with its interval, which for shares of right answers is Wilson's."""
        task = self.tasks[tested]
        table = task.table(series, ranked, count, without)
        found = task.items.estimate(table)
        return (
            share_interval(found, task.items) if self.facts["metric"]["binary"] else found.interval
        )

    def loss(self, series: str, ranked: str, tested: str, without: str = "") -> Estimate:
        """The loss of a task under the head sets of a series, on the mean over counts."""
        key = series, ranked, tested, without
        if key not in self._losses:
            task = self.tasks[tested]
            tables = [task.table(series, ranked, count, without) for count in self.counts]
            drawn = self.drawn(ranked, len(tables[0]))
            self._losses[key] = mean_of([task.lost(table, drawn) for table in tables])
        return self._losses[key]

    def top(self, ranked: str, tested: str) -> Estimate:
        """A task's loss with the best heads of a task masked."""
        return self.loss(TOP, ranked, tested)

    def matched(self, ranked: str, tested: str) -> Estimate:
        """A task's loss with as many random heads of the same layers masked."""
        return self.loss(MATCHED, ranked, tested)

    def without(self, ranked: str, tested: str, without: str) -> Estimate:
        """A task's loss with the best heads of a task masked that are not those of another."""
        return self.loss(WITHOUT, ranked, tested, without)

    def beyond(self, ranked: str, tested: str) -> Estimate:
        """By how much the best heads cost more than the random heads of the same layers."""
        return self.top(ranked, tested) - self.matched(ranked, tested)

    def shared(self, one: str, other: str, count: int) -> list[str]:
        """The heads that are among the best of both tasks, in the order of the first."""
        best = self.facts["best"]
        return [head for head in best[one][str(count)] if head in best[other][str(count)]]

    def sharing(self, keys: Sequence[str]) -> list[tuple[str, str]]:
        """The ordered pairs of these tasks that have some of their best heads in common."""
        pairs = [(one, other) for one in keys for other in keys if one != other]
        return [pair for pair in pairs if any(self.shared(*pair, count) for count in self.counts)]

    def spared(self, ranked: str, tested: str) -> Estimate:
        """How much less the tested task loses if its own best heads are left out."""
        return self.top(ranked, tested) - self.without(ranked, tested, tested)

    def given_up(self, ranked: str, without: str) -> Estimate:
        """How much less the ranked task loses if the best heads of another are left out."""
        return self.top(ranked, ranked) - self.without(ranked, ranked, without)


def specificity(cell: Cell, key: str, others: Sequence[str]) -> Estimate:
    """The task's own loss minus the mean of its row and its column."""
    return cell(key, key) - (row_mean(cell, key, others) + column_mean(cell, key, others)) * 0.5


def row_mean(cell: Cell, key: str, others: Sequence[str]) -> Estimate:
    """The mean loss of the other tasks with this task's heads masked."""
    return mean_of([cell(key, other) for other in others])


def column_mean(cell: Cell, key: str, others: Sequence[str]) -> Estimate:
    """The mean loss of this task with the other tasks' heads masked."""
    return mean_of([cell(other, key) for other in others])


def interaction(cell: Cell, key: str, others: Sequence[str]) -> Estimate | None:
    """The task's own loss minus what its row and its column alone would give.

    It is 0 wherever a loss is how much a ranking's heads matter anywhere, plus how much a task
    suffers from any heads. The rest of the matrix tells what to subtract; two tasks have no rest.
    """
    rest = [cell(one, two) for one in others for two in others if one != two]
    if not rest:
        return None
    around = row_mean(cell, key, others) + column_mean(cell, key, others)
    return cell(key, key) - around + mean_of(rest)


def transfer_of(values: ValueTable, facts: Mapping[str, Any]) -> Transfer:
    """The matrix of a result, its tasks in the order of its figure."""
    tasks = {key: TestedTask(key, name, values, facts) for key, name in facts["tasks"].items()}
    return Transfer(tasks, facts)
