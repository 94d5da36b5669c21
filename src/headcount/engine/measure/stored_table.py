"""The part of the store that holds the values or texts of one request."""

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
    """A table of head sets × examples in the store; with no store it is empty and stays empty."""

    context: StoreContext | None
    gates: Float[np.ndarray, "sets heads"]
    examples: Sequence[Encoded]
    texts: bool = False  # whether the table holds texts in place of values

    def read(self) -> np.ndarray:
        """The table, with NaN for a missing value or None for a missing text."""
        keys = [example.key for example in self.examples]
        if self.context is None:
            missing = np.array(None if self.texts else np.nan)
            return np.full((len(self.gates), len(keys)), missing, dtype=missing.dtype)
        return self.context.read(self.gates, keys, texts=self.texts)

    def unknown(self, table: np.ndarray) -> Bool[np.ndarray, "sets examples"]:
        """Which cells of a table that `read` returned are missing."""
        none: Any = None
        return np.asarray(table == none if self.texts else np.isnan(table), dtype=bool)

    def write(self, rows: Sequence[int], columns: Sequence[int], table: np.ndarray) -> None:
        """Write these rows (head sets) and columns (examples) of the table into the store."""
        if self.context is not None:
            examples = [self.examples[column] for column in columns]
            keys, names = [e.key for e in examples], [e.example.id for e in examples]
            cells = table[np.ix_(rows, columns)]
            self.context.write(self.gates[list(rows)], keys, names, cells)
