"""Toggling: ablate more and more heads in the order of a role, and measure the change Δ(k).

The published curve starts from soft gates G⁺: the gates of the first k heads are set to 0
("ablated") or to 1 ("retained"), all others stay at G⁺, and Δ(k) is the log-probability of the
target, summed over its tokens, ablated minus retained.† The plain curve starts from the whole
model: the first k heads are switched off, all others stay on, and Δ(k) is the change.

Random orders are toggled like the three roles, one with each fit: what they lose is lost by any k
heads, whatever their role.

† Our reading of the published figure: heads are toggled cumulatively, log-probabilities are summed,
and the mean over seeds is taken last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.sweep import Sweep
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.metrics.chance import Chance, chance_of
from headcount.rankings.causal_gates.fit import GateFit
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.studies.head_roles.config import Base
from headcount.studies.head_roles.gates import Cell

RANDOM = "random order"  # the series of random orders, a baseline that knows nothing of roles
SERIES = (*ROLES, RANDOM)
TOGGLES = {"ablated": 0.0, "retained": 1.0}  # the value of the first k heads' gates
Changes = dict[tuple[str, int], Float[np.ndarray, "seeds prompts"]]  # Δ by series and count


@dataclass(frozen=True, eq=False)
class ToggleRequest:
    """A request for Δ(k) on `n` validation prompts, for each series and seed of the gates."""

    cell: Cell
    gates: CausalGates | GateFit
    counts: tuple[int, ...]
    base: Base = "soft"
    n: int = 0

    def entries(self, gates: CausalGates | None) -> Iterator[HeadSetEntry]:
        """Two head sets for each series, count and seed; pending until the gates are fitted."""
        seeds = self.gates.settings.seeds if isinstance(self.gates, GateFit) else self.gates.seeds
        for key in product(SERIES, self.counts, range(seeds), TOGGLES):
            series, count, _, way = key
            head_set = self._expected(*key) if gates is None else self._head_set(gates, *key)
            yield HeadSetEntry((series, count, way), head_set)

    def _head_set(
        self, gates: CausalGates, series: str, count: int, seed: int, way: str
    ) -> Float[np.ndarray, "heads"]:
        if series == RANDOM:
            order = random_order(seed, gates.layout.total)
        else:
            order = np.argsort(-gates.score(series)[seed], kind="stable")
        start = gates.plus[seed].copy() if self.base == "soft" else np.ones(len(order))
        start[order[:count]] = TOGGLES[way]
        return start

    def _expected(
        self, series: str, count: int, seed: int, way: str
    ) -> Float[np.ndarray, "heads"] | Pending:
        """The head set before the gates are fitted; pending where it depends on them."""
        heads = self.cell.model.layout.total
        if self.base == "plain" and (count == 0 or way == "retained"):
            return np.ones(heads)
        if count == heads:
            return np.full(heads, TOGGLES[way])
        if self.base == "plain" and series == RANDOM:
            gates = np.ones(heads)
            gates[random_order(seed, heads)[:count]] = TOGGLES[way]
            return gates
        assert isinstance(self.gates, GateFit)
        if count == 0:
            return Pending((self.gates.key, seed))  # G⁺, whatever the order
        return Pending((self.gates.key, self.base, series, count, seed, way))

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

    def result(self, lab: Lab) -> Changes:
        """Fit the gates, if they are not known yet, and measure."""
        gates = self.gates.result(lab) if isinstance(self.gates, GateFit) else self.gates
        sets = HeadSets.build(self.cell.model.layout, self.entries(gates))
        values = lab.measure(self._sweep(sets))
        changes = {}
        for series, count in product(SERIES, self.counts):
            ablated, retained = (values.of((series, count, way)) for way in TOGGLES)
            changes[series, count] = ablated - retained
        return changes


def random_order(seed: int, heads: int) -> Int[np.ndarray, "heads"]:
    """All heads in the random order that goes with a fit.

    >>> random_order(0, 4).tolist(), random_order(1, 4).tolist()
    ([2, 1, 0, 3], [3, 0, 1, 2])
    """
    return np.random.default_rng([seed, heads]).permutation(heads)


@dataclass(frozen=True, eq=False)
class ChanceRequest:
    """A request for the accuracy of the whole model on the validation prompts.

    It tells whether the model is at chance, which changes of log-probability do not.
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

    def result(self, lab: Lab) -> tuple[Float[np.ndarray, "1 prompts"], Chance | None]:
        """Which prompts are answered rightly, and the level of chance.

        All items of the task tell better than a few prompts how common the commonest answer is.
        """
        return lab.measure(self.sweep).values, chance_of(self.sweep.metric, self.cell.task)
