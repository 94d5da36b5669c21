"""Where the store keeps the values or texts of some head sets and examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float

from headcount.store import StoreContext
from headcount.tasks import Encoded


@dataclass(frozen=True, eq=False)
class StoredTable:
    """A table of head sets × examples in the store; without a store nothing is known or kept."""

    context: StoreContext | None
    gates: Float[np.ndarray, "sets heads"]
    examples: Sequence[Encoded]
    texts: bool = False  # texts, not values

    def read(self) -> np.ndarray:
        """The table: NaN, or None among texts, where nothing is known."""
        keys = [example.key for example in self.examples]
        if self.context is None:
            nothing = np.array(None if self.texts else np.nan)
            return np.full((len(self.gates), len(keys)), nothing, dtype=nothing.dtype)
        return self.context.read(self.gates, keys, texts=self.texts)

    def unknown(self, table: np.ndarray) -> Bool[np.ndarray, "sets examples"]:
        """Where a table that was read says nothing."""
        nothing: Any = None
        return np.asarray(table == nothing if self.texts else np.isnan(table), dtype=bool)

    def write(self, rows: Sequence[int], columns: Sequence[int], table: np.ndarray) -> None:
        """Keep some rows and columns of the table."""
        if self.context is not None:
            some = [self.examples[column] for column in columns]
            keys, names = [e.key for e in some], [e.example.id for e in some]
            cells = table[np.ix_(rows, columns)]
            self.context.write(self.gates[list(rows)], keys, names, cells)
