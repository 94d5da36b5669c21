"""What a head set is worth: ablate more and more heads in the order of their roles.

The published curve stands on soft gates: from G⁺, the first k heads of an order are set to 0
("ablated") or to 1 ("retained"), all others stay at G⁺, and Δ(k) is the log-probability of the
target, summed over its tokens, ablated minus retained.† The plain curve stands on the whole model:
the first k heads are switched off, all others stay on, and Δ(k) is what that changes.

† That both toggle cumulatively, that log-probabilities are summed and that seeds are averaged last
is our reading of the published figure.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets, Pending
from headcount.engine.measure.sweep import Sweep
from headcount.lab import Lab
from headcount.metrics import get_metric
from headcount.models.model import Model
from headcount.rankings.causal_gates.fit import GateFit
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.studies.head_roles.config import Base
from headcount.tasks import Task

TOGGLES = {"ablated": 0.0, "retained": 1.0}  # what the gates of the first heads are set to


@dataclass(frozen=True, eq=False)
class Toggled:
    """Δ log-probability of the target for each role, count, seed and validation prompt."""

    base: Base
    counts: tuple[int, ...]
    changes: dict[tuple[str, int], Float[np.ndarray, "seeds examples"]]
    clusters: Int[np.ndarray, "examples"]


@dataclass(frozen=True, eq=False)
class ToggleRequest:
    """A request for Δ(k) on the validation part, for each role and seed of some gates."""

    model: Model
    task: Task
    gates: CausalGates | GateFit
    counts: tuple[int, ...]
    base: Base = "soft"

    def entries(self, gates: CausalGates | None) -> Iterator[HeadSetEntry]:
        """Two head sets for each role, count and seed; pending where gates are not fitted yet."""
        seeds = self.gates.settings.seeds if isinstance(self.gates, GateFit) else self.gates.seeds
        for what in product(ROLES, self.counts, range(seeds), TOGGLES):
            role, count, _, way = what
            head_set = self._head_set(gates, *what) if gates is not None else self._expected(*what)
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
        """A head set as far as it is known before the gates are."""
        heads, plain = self.model.layout.total, self.base == "plain"
        if count == heads or (plain and way == "retained"):
            return np.full(heads, TOGGLES[way])
        if count == 0 and plain:
            return np.ones(heads)
        assert isinstance(self.gates, GateFit)
        if count == 0:
            return Pending((self.gates.key, seed))  # G⁺, whatever the role
        return Pending((self.gates.key, self.base, role, count, seed, way))

    def _sweep(self, head_sets: HeadSets) -> Sweep:
        return Sweep(self.model, self.task, get_metric("logprob"), head_sets)

    def count(self, counter: Counter) -> None:
        """Tell the fit, where the gates are not known, and all head sets."""
        gates: CausalGates | None
        if isinstance(self.gates, GateFit):
            self.gates.count(counter)
            gates = self.gates.known(counter.store)
        else:
            gates = self.gates
        layout = self.model.layout
        counter.sweep(self._sweep(HeadSets.of(np.ones(layout.total), layout)), self.entries(gates))

    def result(self, lab: Lab) -> Toggled:
        """Fit the gates, where they are not known, and measure."""
        gates = self.gates.result(lab) if isinstance(self.gates, GateFit) else self.gates
        values = lab.measure(self._sweep(HeadSets.build(self.model.layout, self.entries(gates))))
        changes = {
            (role, count): values.of((role, count, "ablated"))
            - values.of((role, count, "retained"))
            for role in ROLES
            for count in self.counts
        }
        return Toggled(self.base, self.counts, changes, values.clusters)
