"""What a head set is worth: ablate more and more heads in the order of their roles.

The published curve stands on soft gates: from G⁺, the first k heads of an order are set to 0
("ablated") or to 1 ("retained"), all others stay at G⁺, and Δ(k) is the log-probability of the
target, summed over its tokens, ablated less retained.† The plain curve stands on the whole model:
the first k heads are switched off, all others stay on, and Δ(k) is what that changes.

† That both toggle cumulatively, that log-probabilities are summed and that seeds are averaged last
is our reading of the published figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.evaluate import evaluate
from headcount.models.model import Model
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.store import Store
from headcount.tasks import Task

Base = Literal["soft", "plain"]


@dataclass(frozen=True, eq=False)
class Toggled:
    """Δ log-probability of the target for each role, count, seed and validation prompt."""

    base: Base
    counts: tuple[int, ...]
    changes: dict[tuple[str, int], Float[np.ndarray, "seeds examples"]]
    clusters: Int[np.ndarray, "examples"]


def toggle(
    model: Model,
    task: Task,
    gates: CausalGates,
    counts: Sequence[int],
    *,
    base: Base = "soft",
    store: Store | None = None,
    progress: bool = True,
) -> Toggled:
    """Measure Δ(k) on the validation part, for each role and seed."""
    sets: list[Float[np.ndarray, "heads"]] = []
    places: dict[tuple[str, int], list[tuple[int, int]]] = {}  # → ablated and retained, by seed
    known: dict[bytes, int] = {}

    def place(row: Float[np.ndarray, "heads"]) -> int:
        row = row.astype(np.float32)
        number = known.setdefault(row.tobytes(), len(sets))
        if number == len(sets):
            sets.append(row)
        return number

    for role in ROLES:
        orders = np.argsort(-gates.score(role), axis=1, kind="stable")  # (seeds, heads)
        for count in counts:
            pairs = []
            for seed, order in enumerate(orders):
                start = gates.plus[seed] if base == "soft" else np.ones(model.layout.total)
                ablated, retained = start.copy(), start.copy()
                ablated[order[:count]] = 0
                retained[order[:count]] = 1
                pairs.append((place(ablated), place(retained)))
            places[role, count] = pairs
    found = evaluate(model, task, np.stack(sets), metric="logprob", store=store, progress=progress)
    changes = {
        key: np.stack([found.values[a] - found.values[b] for a, b in pairs])
        for key, pairs in places.items()
    }
    return Toggled(base, tuple(counts), changes, found.clusters)
