"""A store seen through a sheet of glass: what is written stays on the glass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.heads import HeadLayout
from headcount.store import Store, StoreContext


class Overlay(Store):
    """Reads from one store and from what was written since, which goes to another one."""

    def __init__(self, below: Store, above: Store) -> None:
        self.below, self.above = below, above
        self.database = above.database

    def context(
        self, context: Mapping[str, Any], *, layout: HeadLayout | None = None
    ) -> StoreContext:
        """The measurements in this context, of both stores; written to the upper one."""
        above = self.above.context(context, layout=layout)
        below = self.below.context(context, layout=layout)
        return OverlayContext(above.database, above.text, layout, below)

    def get_document(self, kind: str, context: Mapping[str, Any]) -> Any:
        """The finished document of this kind and context, of either store."""
        found = self.above.get_document(kind, context)
        return self.below.get_document(kind, context) if found is None else found


@dataclass(frozen=True)
class OverlayContext(StoreContext):
    """The measurements of one context in both stores."""

    _below: StoreContext | None = None

    @property
    def below(self) -> StoreContext:
        """Those of the lower store alone."""
        assert self._below is not None
        return self._below

    def read(
        self, gates: Float[np.ndarray, "sets heads"], example_keys: Sequence[str]
    ) -> Float[np.ndarray, "sets examples"]:
        """All values that either store knows."""
        found = super().read(gates, example_keys)
        return np.where(np.isnan(found), self.below.read(gates, example_keys), found)

    def read_texts(
        self, gates: Float[np.ndarray, "sets heads"], example_keys: Sequence[str]
    ) -> np.ndarray:
        """All texts that either store knows."""
        found = super().read_texts(gates, example_keys)
        unknown = np.array([[text is None for text in row] for row in found], dtype=bool)
        return np.where(unknown, self.below.read_texts(gates, example_keys), found)
