"""Head sets: a labelled table of gates, which holds each distinct head set once.

TopK curves, heads kept, toggled roles and single heads are different ways to build this table, and
nothing more. A table is built from *entries*; an entry that depends on a ranking which nobody has
computed yet carries a `Pending` key in place of its gates, so that a forecast can count it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.engine.measure.plan import MEASUREMENT
from headcount.heads import HeadLayout, check_gates, gates_by_label
from headcount.models.model import Model
from headcount.tasks import Encoded, Task
from headcount.tasks.task import Split

Label = Hashable


@dataclass(frozen=True)
class Pending:
    """Stands for a head set that is not known yet; equal keys stand for the same head set."""

    key: Hashable


class HeadSetEntry(NamedTuple):
    """One head set under a label, for all examples or only for the example of one index."""

    label: Label
    gates: Float[np.ndarray, "heads"] | Pending
    example: int | None = None


@dataclass(frozen=True, eq=False)
class HeadSets:
    """Distinct head sets, the labels that name them, and the examples that are measured on each.

    gates         one row for each distinct head set
    rows          label → rows of `gates`: one for each draw, or one for each example
    per_example   labels whose rows are for one example each
    wanted        which examples are measured on which head set; None if all are on all

    >>> layout = HeadLayout((2,))
    >>> entries = [HeadSetEntry(label, np.ones(2)) for label in ("all", "again")]
    >>> sets = HeadSets.build(layout, entries)
    >>> len(sets), sets.rows["again"]
    (1, (0,))
    """

    gates: Float[np.ndarray, "sets heads"]
    rows: Mapping[Label, tuple[int, ...]]
    per_example: frozenset[Label] = frozenset()
    wanted: Bool[np.ndarray, "sets examples"] | None = None

    def __len__(self) -> int:
        return len(self.gates)

    @classmethod
    def build(
        cls, layout: HeadLayout, entries: Iterable[HeadSetEntry], examples: int = 0
    ) -> HeadSets:
        """The table of these entries; `examples`, their number, is needed if an entry has one."""
        entries = list(entries)
        # Adding zero turns -0 into 0: both are the same gate.
        gates = check_gates([entry.gates for entry in entries], layout) + 0
        gates, place = np.unique(gates, axis=0, return_inverse=True)
        rows: dict[Label, list[int]] = {}
        wanted = np.zeros((len(gates), examples), dtype=bool)
        for entry, row in zip(entries, place.reshape(-1).tolist(), strict=True):
            rows.setdefault(entry.label, []).append(row)
            wanted[row, slice(None) if entry.example is None else entry.example] = True
        per_example = frozenset(entry.label for entry in entries if entry.example is not None)
        return cls(
            gates,
            {label: tuple(numbers) for label, numbers in rows.items()},
            per_example,
            wanted if per_example else None,
        )

    @classmethod
    def of(cls, heads: Any, layout: HeadLayout) -> HeadSets:
        """The table of one head set or several, given as for `evaluate`."""
        if isinstance(heads, HeadSets):
            return heads
        return cls.build(layout, starmap(HeadSetEntry, gates_by_label(heads, layout).items()))

    def with_whole(self, layout: HeadLayout) -> HeadSets:
        """The same head sets, labelled by their rows, and the whole model, labelled "whole"."""
        whole = HeadSetEntry("whole", np.ones(layout.total, dtype=np.float32))
        return self.build(layout, [whole, *map(HeadSetEntry, range(len(self)), self.gates)])

    def asked(self, examples: int) -> Bool[np.ndarray, "sets examples"]:
        """Which values are asked for."""
        if self.wanted is None:
            return np.ones((len(self.gates), examples), dtype=bool)
        return self.wanted


def head_gates(
    layout: HeadLayout, heads: Sequence[int] | np.ndarray, *, keep: bool = False, off: float = 0.0
) -> Float[np.ndarray, "heads"]:
    """Gates that are `off` for these heads and 1 for all others, or with `keep` the reverse.

    >>> head_gates(HeadLayout((2, 1)), [0], keep=True)
    array([1., 0., 0.], dtype=float32)
    """
    chosen = np.zeros(layout.total, dtype=bool)
    chosen[list(heads)] = True
    return np.where(chosen == keep, 1, off).astype(np.float32)


@dataclass(frozen=True)
class Expected:
    """The head sets of a table that may hold pending ones, as a forecast counts them.

    `known` is the table of those whose gates are known; `pending` holds, for the key of
    each other head set, the examples that are measured on it (None: all).
    """

    known: HeadSets
    pending: Mapping[Hashable, frozenset[int] | None] = field(default_factory=dict)

    @classmethod
    def build(cls, layout: HeadLayout, entries: Iterable[HeadSetEntry], examples: int) -> Expected:
        """Sort entries into those that are known and those that are not."""
        known: list[HeadSetEntry] = []
        pending: dict[Hashable, frozenset[int] | None] = {}
        for entry in entries:
            if not isinstance(entry.gates, Pending):
                known.append(entry)
            elif entry.example is None:
                pending[entry.gates.key] = None
            elif (some := pending.get(entry.gates.key, frozenset())) is not None:
                pending[entry.gates.key] = some | {entry.example}
        nothing = HeadSets(np.ones((0, layout.total), dtype=np.float32), {})
        return cls(HeadSets.build(layout, known, examples) if known else nothing, pending)

    def asked(self, examples: int) -> Bool[np.ndarray, "sets examples"]:
        """Which values are asked for, those of pending head sets last."""
        pending = [
            np.isin(np.arange(examples), range(examples) if some is None else sorted(some))
            for some in self.pending.values()
        ]
        return np.array([*self.known.asked(examples), *pending], dtype=bool).reshape(-1, examples)


class OnHeadSets:
    """The properties of a request that measures each example of a split under each head set."""

    model: Model
    task: Task
    head_sets: HeadSets
    split: Split

    @cached_property
    def examples(self) -> list[Encoded]:
        """The examples of the split, as token ids."""
        return self.model.encode(self.task.split(self.split))

    @property
    def rows(self) -> list[Encoded]:
        """What is run, and has a value or a text of its own in the store."""
        return self.examples

    def asked(self, table: HeadSets | Expected) -> Bool[np.ndarray, "sets rows"]:
        """Which rows are asked for under which head sets."""
        return table.asked(len(self.examples))

    @property
    def names(self) -> tuple[str, ...]:
        """The ids of the examples."""
        return tuple(example.example.id for example in self.examples)

    @property
    def clusters(self) -> Int[np.ndarray, "examples 2"]:
        """The numbers of each example's template and content."""
        return self.task.split(self.split).clusters

    def facts(self, metric: str, ablation: str) -> dict[str, Any]:
        """The facts that determine every value and text; a request adds its own to them."""
        return {
            "model": self.model.name,
            **self.model.identity,
            "task": self.task.name,
            "task_version": self.task.version,
            "metric": metric,
            "ablation": ablation,
            "measurement": MEASUREMENT,
        }
