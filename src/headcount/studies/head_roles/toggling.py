"""Toggling: ablate more and more heads in the order of a role, and measure the change Δ(k).

The published curve starts from soft gates G⁺: the gates of the first k heads are set to 0
("ablated") or to 1 ("retained"), all others stay at G⁺, and Δ(k) is the log-probability of the
target, summed over its tokens, ablated minus retained.† The plain curve starts from the whole
model: the first k heads are switched off, all others stay on, and Δ(k) is the change.

† Our reading of the published figure: heads are toggled cumulatively, log-probabilities are summed,
and the mean over seeds is taken last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.sweep import Sweep
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.metrics.chance import chance_of
from headcount.rankings.causal_gates.fit import GateFit
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.stats import Estimate, Interval, Resampling, bootstrap
from headcount.studies.description import columns
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.gates import Cell

TOGGLES = {"ablated": 0.0, "retained": 1.0}  # the value of the first k heads' gates
METRICS: dict[Base, str] = {"soft": "logprob change", "plain": "logprob change, plain model"}


@dataclass(frozen=True, eq=False)
class RoleCurves:
    """One panel of the figure: the effect of ablating heads for one task and model.

    `changes` maps role and count to Δ for each seed and prompt.
    """

    task: str
    model: str
    base: Base
    counts: tuple[int, ...]
    changes: dict[tuple[str, int], Float[np.ndarray, "seeds prompts"]]
    clusters: Int[np.ndarray, "prompts"]
    parameters: int = 0  # weights of the model
    at_chance: str = ""  # one sentence if the whole model is not clearly better than chance

    @property
    def name(self) -> str:
        """Task and model."""
        return f"{self.task} ({self.model})"

    @cached_property
    def prompts(self) -> Resampling:
        """Resamples of the prompts; each panel has a seed of its own."""
        return Resampling(self.clusters, seed=crc32(f"{self.task} {self.model}".encode()))

    def sum(self, count: int, **weights: float) -> Estimate:
        """The mean over seeds and prompts of a weighted sum of roles.

        The roles of one seed come from one fit, so they are resampled together.
        """
        weighted = [weight * self.changes[role, count] for role, weight in weights.items()]
        return self.prompts.estimate(np.sum(weighted, axis=0))

    def peak(self, role: str) -> Interval:
        """The change at the peak, whose count is chosen on the other half of the clusters."""
        labels = np.unique(self.clusters, return_inverse=True)[1].reshape(-1)
        first, second = labels % 2 == 0, labels % 2 == 1
        counts = [count for count in self.counts if count]
        if not second.any() or not counts:
            return Interval(np.nan, np.nan, np.nan, 1)
        best = max(counts, key=lambda count: self.changes[role, count][:, first].mean())
        return bootstrap(self.changes[role, best][:, second], clusters=self.clusters[second])

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """The points of the curves, one row each."""
        return [
            {
                "model": self.model,
                "task": self.task,
                "series": role,
                "metric": METRICS[self.base],
                "count": count,
                **columns(bootstrap(values, clusters=self.clusters)),
                "n": values.shape[1],
                "seeds": values.shape[0],
            }
            for (role, count), values in self.changes.items()
        ]


@dataclass(frozen=True, eq=False)
class ToggleRequest:
    """A request for Δ(k) on `n` validation prompts, for each role and seed of the gates."""

    cell: Cell
    gates: CausalGates | GateFit
    counts: tuple[int, ...]
    base: Base = "soft"
    n: int = 0

    def entries(self, gates: CausalGates | None) -> Iterator[HeadSetEntry]:
        """Two head sets for each role, count and seed; pending while the gates are not fitted."""
        seeds = self.gates.settings.seeds if isinstance(self.gates, GateFit) else self.gates.seeds
        for key in product(ROLES, self.counts, range(seeds), TOGGLES):
            role, count, _, way = key
            head_set = self._expected(*key) if gates is None else self._head_set(gates, *key)
            yield HeadSetEntry((role, count, way), head_set)

    def _head_set(
        self, gates: CausalGates, role: str, count: int, seed: int, way: str
    ) -> Float[np.ndarray, "heads"]:
        order = np.argsort(-gates.score(role)[seed], kind="stable")
        start = gates.plus[seed].copy() if self.base == "soft" else np.ones(len(order))
        start[order[:count]] = TOGGLES[way]
        return start

    def _expected(
        self, role: str, count: int, seed: int, way: str
    ) -> Float[np.ndarray, "heads"] | Pending:
        """The head set before the gates are fitted; pending where it depends on them."""
        heads = self.cell.model.layout.total
        if self.base == "plain" and (count == 0 or way == "retained"):
            return np.ones(heads)
        if count == heads:
            return np.full(heads, TOGGLES[way])
        assert isinstance(self.gates, GateFit)
        if count == 0:
            return Pending((self.gates.key, seed))  # G⁺, whatever the role
        return Pending((self.gates.key, self.base, role, count, seed, way))

    def _sweep(self, head_sets: HeadSets) -> Sweep:
        task = self.cell.validation(self.n)
        return Sweep(self.cell.model, task, get_metric("logprob"), head_sets)

    def count(self, counter: Counter) -> None:
        """Count the fit, if the gates are not known yet, and all head sets."""
        gates: CausalGates | GateFit | None = self.gates
        if isinstance(gates, GateFit):
            gates.count(counter)
            gates = gates.known(counter.store)
        layout = self.cell.model.layout
        counter.sweep(self._sweep(HeadSets.of(np.ones(layout.total), layout)), self.entries(gates))

    def result(self, lab: Lab) -> RoleCurves:
        """Fit the gates, if they are not known yet, and measure."""
        model = self.cell.model
        gates = self.gates.result(lab) if isinstance(self.gates, GateFit) else self.gates
        values = lab.measure(self._sweep(HeadSets.build(model.layout, self.entries(gates))))
        changes = {}
        for role, count in product(ROLES, self.counts):
            ablated, retained = (values.of((role, count, way)) for way in TOGGLES)
            changes[role, count] = ablated - retained
        parameters = sum(weight.numel() for weight in model.module.parameters())
        about = self.cell.name, self.cell.label, self.base, self.counts
        return RoleCurves(*about, changes, values.clusters, parameters)


@dataclass(frozen=True, eq=False)
class ChanceRequest:
    """A request whether the whole model is at chance, which changes of log-probability do not tell.

    It is the accuracy of the whole model on the validation prompts.
    """

    cell: Cell
    n: int = 0

    @cached_property
    def sweep(self) -> Sweep:
        """The whole model, by accuracy."""
        model, task = self.cell.model, self.cell.validation(self.n)
        return Sweep(model, task, get_metric("accuracy"), HeadSets.of([], model.layout))

    def count(self, counter: Counter) -> None:
        """Count one value for each prompt."""
        counter.sweep(self.sweep)

    def result(self, lab: Lab) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        # All items of the task tell better than a few prompts how common the commonest answer is.
        chance = chance_of(self.sweep.metric, self.cell.task)
        return replace(lab.measure(self.sweep), chance=chance).at_chance
