"""What `evaluate` would measure, for a forecast."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from headcount.engine.measure.ablations import StandIn
from headcount.engine.measure.forecast import Forecast, placeholders
from headcount.models.model import Model
from headcount.store import StoreContext
from headcount.tasks import Encoded


def foresee_values(
    expected: Forecast,
    model: Model,
    sets: Float[np.ndarray, "sets heads"],
    examples: Sequence[Encoded],
    asked: Bool[np.ndarray, "sets examples"],
    missing: Bool[np.ndarray, "sets examples"],
    values: Float[np.ndarray, "sets examples"],
    shelf: StoreContext | None,
) -> None:
    """Note the values that are missing, and put placeholders in their place."""
    lengths = np.array([one.length for one in examples])
    keys = [one.key for one in examples]
    known = expected.known_before(shelf, sets, keys, "value")
    expected.add(model, "value", missing.sum(), (missing * lengths).sum(), known=known)
    values[missing] = placeholders(*values.shape)[missing]
    if shelf is None or not missing.any():
        return
    everywhere = [np.arange(len(sets))] if asked.all() else []
    for rows in everywhere or np.flatnonzero(missing.any(axis=1))[:, None]:
        columns = np.flatnonzero(asked[rows].all(axis=0))
        its = [keys[column] for column in columns.tolist()]
        names = [examples[column].example.id for column in columns.tolist()]
        shelf.write(sets[rows], its, names, values[np.ix_(rows, columns)])


def foresee_beside(
    expected: Forecast,
    model: Model,
    sets: Float[np.ndarray, "sets heads"],
    examples: Sequence[Encoded],
    asked: Bool[np.ndarray, "sets examples"],
    missing: Bool[np.ndarray, "sets examples"],
    stand_in: StandIn,
    ranking: Sequence[Encoded],
) -> None:
    """Note the passes that give no value: those to start from, and those of stand-ins."""
    lengths = np.array([one.length for one in examples])
    gated = (sets != 1).any(axis=1)
    common = asked.all(axis=1)
    for some in (common, ~common):  # as they are run: on many examples at once, and on each
        whole = missing[some & ~gated].any(axis=0)  # measured, so there to start from
        expected.add(model, "pass", 0, lengths[missing[some].any(axis=0) & ~whole].sum())
        if stand_in.name == "corrupted":
            expected.add(model, "pass", 0, lengths[missing[some & gated].any(axis=0)].sum())
    if stand_in.name == "mean" and missing[gated].any():
        twins = (len(one.corrupted or one.prompt) + len(one.target) - 1 for one in ranking)
        expected.add(model, "pass", 0, sum(twins))
