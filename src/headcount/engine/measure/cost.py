"""Estimate the cost of requests before anything runs: a sum of what each request will measure.

A request tells a `Counter` what it needs (its method `count`): values and texts under head sets,
passes, derivatives. A head set that depends on a ranking which has not been computed yet counts as
not measured, so the sum is an upper bound. For texts each text counts with its maximal length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from jaxtyping import Bool

from headcount.engine.measure.devices import Elsewhere, elsewhere
from headcount.engine.measure.head_sets import Expected, HeadSetEntry
from headcount.engine.measure.rates import Kind, seconds_per_token
from headcount.engine.measure.stored_table import StoredTable
from headcount.engine.measure.sweep import Sweep
from headcount.engine.write.writing import Writing
from headcount.metrics.text import TextMetric
from headcount.models.model import Model
from headcount.store import Store
from headcount.system.files import canonical
from headcount.system.progress import duration

Quantity = Literal["value", "text", "pass"]


@dataclass(frozen=True, eq=False)
class CostItem:
    """A number of values or texts to measure, and the tokens that run for them."""

    model: Model
    quantity: Quantity
    count: int
    tokens: int
    known: int = 0  # further values or texts, which the store holds already
    kind: Kind = "passes"


@dataclass(eq=False)
class Cost:
    """The work ahead, as a list of items."""

    items: list[CostItem] = field(default_factory=list)

    def count(self, quantity: Quantity) -> int:
        """The largest number of values or texts that will be measured."""
        return sum(item.count for item in self.items if item.quantity == quantity)

    @property
    def tokens(self) -> int:
        """How many tokens run through a model; a token counts once for every head set."""
        return sum(item.tokens for item in self.items)

    @property
    def known(self) -> int:
        """How many values and texts the store holds already."""
        return sum(item.known for item in self.items)

    def seconds(self) -> float:
        """About how long the work will take on this machine, by earlier runs or by a timed pass."""
        running = [item for item in self.items if item.tokens]
        return sum(item.tokens * seconds_per_token(item.model, item.kind) for item in running)

    def elsewhere(self) -> list[Elsewhere]:
        """What the work takes on machines of which rates are known."""
        return elsewhere(
            [(item.model, item.kind, item.tokens) for item in self.items if item.tokens]
        )

    def to_json(self) -> dict[str, Any]:
        """The numbers as a JSON object."""
        return {
            "values": self.count("value"),
            "texts": self.count("text"),
            "tokens": self.tokens,
            "known": self.known,
            "seconds": self.seconds(),
        }

    def __str__(self) -> str:
        if not self.tokens:
            known = f": {self.known:,} are known already" if self.known else ""
            return f"Nothing is left to measure{known}."
        parts = [f"{n:,} {t}s" for t in ("value", "text") if (n := self.count(t))]
        what = " and ".join(parts) or "passes that score heads"
        up_to = "up to" if self.count("text") else "about"
        text = f"Ahead: {what}, {up_to} {round_off(self.tokens):,} tokens"
        if self.known:
            text += f" ({self.known:,} more are known already)"
        seconds = self.seconds()
        time = "" if math.isnan(seconds) else f": about {duration(seconds)} on this machine"
        return f"{text}{time}."


class Request(Protocol):
    """Something to measure, whose cost can be counted before it is carried out."""

    def count(self, counter: Counter) -> None:
        """Tell the counter what will be measured."""


class Counter:
    """Adds up what requests will measure; a value that two requests share counts once."""

    def __init__(self, store: Store | None = None) -> None:
        self.store, self.cost = store, Cost()
        # The examples counted so far, by context and head set (by its gates or its pending key).
        self._counted: dict[Hashable, set[str]] = {}
        self._seen: set[Hashable] = set()

    def sweep(self, sweep: Sweep, entries: Iterable[HeadSetEntry] | None = None) -> None:
        """Count the values (or texts) of a sweep; `entries`, if given, replace its head sets."""
        sweep.check()
        if isinstance(sweep.metric, TextMetric):
            self.writing(sweep.writing(), entries, whole=True)
            return
        identity = sweep.make_ablation().identity
        how = str(sweep.metric.store_facts), identity, sweep.positions
        cells = self._cells(sweep, _expected(sweep, entries), lambda: sweep.context(identity), how)
        lengths = np.array([row.length for row in sweep.rows])
        self._add(sweep.model, "value", cells, (cells.missing * sweep.gated_lengths).sum())
        self._add_other_passes(sweep, cells, lengths)

    def writing(
        self,
        writing: Writing,
        entries: Iterable[HeadSetEntry] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Count the texts of a request; with `whole`, also the texts of the whole model."""
        expected = _expected(writing, entries)
        if whole:
            expected = replace(expected, known=expected.known.with_whole(writing.model.layout))
        how = writing.scope, writing.sampled, repr(writing.redistribution)
        cells = self._cells(writing, expected, writing.context, how)
        tokens = writing.tokens(cells.missing) if cells.missing.any() else 0
        self._add(writing.model, "text", cells, tokens, "writing")

    def passes(self, model: Model, tokens: int, kind: Kind = "passes") -> None:
        """Count passes that measure no value, such as those of a ranking."""
        if tokens:
            self.cost.items.append(CostItem(model, "pass", 0, int(tokens), kind=kind))

    def values(self, model: Model, count: int, tokens: int, known: int) -> None:
        """Count values that no sweep measures, such as those of single edges."""
        self.cost.items.append(CostItem(model, "value", count, tokens, known))

    def first(self, key: Hashable) -> bool:
        """Whether this key is new to the counter: work with a known key costs nothing more."""
        known = key in self._seen
        self._seen.add(key)
        return not known

    def _add(
        self, model: Model, quantity: Quantity, cells: _Cells, tokens: int, kind: Kind = "passes"
    ) -> None:
        count = int(cells.missing.sum())
        self.cost.items.append(CostItem(model, quantity, count, int(tokens), cells.known, kind))

    def _cells(
        self,
        request: Sweep | Writing,
        expected: Expected,
        context: Callable[[], dict[str, Any]],
        how: Hashable,
    ) -> _Cells:
        """The values of a request that are still to be measured, which are now marked as counted.

        `how` is everything that determines a value besides model, task, example and gates.
        """
        gates, examples = expected.known.gates, request.rows
        # A fingerprint of the model takes time; without a store its object id is enough.
        name: Hashable = (id(request.model), request.task.version, request.task.name, how)
        stored = StoredTable(None, gates, examples, isinstance(request, Writing))
        if self.store is not None:
            facts = context()
            name = canonical(facts)
            stored = replace(stored, context=self.store.context(facts, layout=request.model.layout))
        asked = request.asked(expected)
        new = np.zeros_like(asked)
        for row, head_set in enumerate([*(row.tobytes() for row in gates), *expected.pending]):
            counted = self._counted.setdefault((name, head_set), set())
            new[row] = asked[row] & [example.key not in counted for example in examples]
            counted.update(examples[column].key for column in np.flatnonzero(new[row]))
        known = np.zeros_like(asked)
        known[: len(gates)] = ~stored.unknown(stored.read())
        gated = np.array([*(gates != 1).any(axis=1), *(True for _ in expected.pending)], dtype=bool)
        return _Cells(new & ~known, int((new & known).sum()), gated, np.asarray(asked.all(axis=1)))

    def _add_other_passes(self, sweep: Sweep, cells: _Cells, lengths: np.ndarray) -> None:
        """Count the whole model's passes, from which gated passes start, and those of ablations."""
        missing, gated = cells.missing, cells.gated
        # Head sets of all examples and head sets of single examples run in separate batches.
        for sets in (cells.common, ~cells.common):
            # A pass over all tokens under an untouched head set is counted as a value already.
            whole = missing[sets & ~gated].any(axis=0) & (sweep.gated_lengths == lengths)
            self.passes(sweep.model, lengths[missing[sets].any(axis=0) & ~whole].sum())
            if sweep.ablation in ("corrupted", "resampled"):
                self.passes(sweep.model, lengths[missing[sets & gated].any(axis=0)].sum())
        if sweep.ablation.endswith("mean") and missing[gated].any():
            tokens = sum(len(e.corrupted or e.prompt) + len(e.target) - 1 for e in sweep.ranking)
            self.passes(sweep.model, tokens)


def _expected(request: Sweep | Writing, entries: Iterable[HeadSetEntry] | None) -> Expected:
    if entries is None:
        return Expected(request.head_sets)
    return Expected.build(request.model.layout, entries, len(request.examples))


@dataclass(frozen=True, eq=False)
class _Cells:
    """The table of head sets × examples of one request, as a counter sees it."""

    missing: Bool[np.ndarray, "sets examples"]  # cells to be measured
    known: int  # cells that are new to the counter but in the store
    gated: Bool[np.ndarray, "sets"]  # head sets that gate at least one head
    common: Bool[np.ndarray, "sets"]  # head sets that are measured on all examples


def round_off(number: int) -> int:
    """Round to three digits, which are enough for an estimate.

    >>> round_off(123456), round_off(87)
    (123000, 87)
    """
    digits = max(0, len(str(number)) - 3)
    return round(number, -digits) if digits else number
