"""What a description will cost: a sum over its requests, of which none is carried out.

A request says what it needs (`count`): values and texts under head sets, passes, derivatives. A
head set that depends on a ranking which is not known yet counts as one that nobody has measured, so
the sum is an upper bound; of texts, whose length nobody knows, so are the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
from jaxtyping import Bool

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

Thing = Literal["value", "text", "pass"]


@dataclass(frozen=True, eq=False)
class CostItem:
    """So many values or texts, and the tokens that they take."""

    model: Model
    thing: Thing
    count: int
    tokens: int
    known: int = 0  # values or texts that the store holds
    kind: Kind = "passes"


@dataclass(eq=False)
class Cost:
    """The work ahead."""

    items: list[CostItem] = field(default_factory=list)

    def count(self, thing: Thing) -> int:
        """How many values or texts are to be measured, at most."""
        return sum(item.count for item in self.items if item.thing == thing)

    @property
    def tokens(self) -> int:
        """How many tokens run through a model, each once for every head set."""
        return sum(item.tokens for item in self.items)

    @property
    def known(self) -> int:
        """How many values and texts are known already."""
        return sum(item.known for item in self.items)

    def seconds(self) -> float:
        """About how long it will take here, by earlier runs or by timing a pass."""
        some = [item for item in self.items if item.tokens]
        return sum(item.tokens * seconds_per_token(item.model, item.kind) for item in some)

    def to_json(self) -> dict[str, Any]:
        """The numbers, for programs."""
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
    """Something to measure: it can be counted before it is carried out."""

    def count(self, counter: Counter) -> None:
        """Tell the counter what will be measured."""


class Counter:
    """Adds up what requests will measure; what two of them share counts once."""

    def __init__(self, store: Store | None = None) -> None:
        self.store, self.cost = store, Cost()
        # For each context and head set (by its gates, or by a pending key): the examples counted.
        self._counted: dict[Hashable, set[str]] = {}
        self._seen: set[Hashable] = set()

    def sweep(self, sweep: Sweep, entries: Iterable[HeadSetEntry] | None = None) -> None:
        """Count the values (or texts) of a sweep; `entries` stand for head sets not known yet."""
        sweep.check()
        if isinstance(sweep.metric, TextMetric):
            self.writing(sweep.writing(), entries, whole=True)
            return
        identity = sweep.make_ablation().identity
        how = sweep.metric.key, identity
        cells = self._cells(sweep, _expected(sweep, entries), lambda: sweep.context(identity), how)
        lengths = np.array([example.length for example in sweep.examples])
        self._add(sweep.model, "value", cells, (cells.missing * lengths).sum())
        self._beside(sweep, cells, lengths)

    def writing(
        self,
        writing: Writing,
        entries: Iterable[HeadSetEntry] | None = None,
        *,
        whole: bool = False,
    ) -> None:
        """Count the texts of a request; with `whole` also those of the whole model."""
        expected = _expected(writing, entries)
        if whole:
            expected = replace(expected, known=expected.known.with_whole(writing.model.layout))
        how = writing.scope, writing.sampled, repr(writing.redistribution)
        cells = self._cells(writing, expected, writing.context, how)
        tokens = writing.tokens(cells.missing) if cells.missing.any() else 0
        self._add(writing.model, "text", cells, tokens, "writing")

    def passes(self, model: Model, tokens: int, kind: Kind = "passes") -> None:
        """Count passes that give no value of an example."""
        if tokens:
            self.cost.items.append(CostItem(model, "pass", 0, int(tokens), kind=kind))

    def first(self, key: Hashable) -> bool:
        """Whether this is the first time that work of this key comes up: the next is for free."""
        known = key in self._seen
        self._seen.add(key)
        return not known

    def _add(
        self, model: Model, thing: Thing, cells: _Cells, tokens: int, kind: Kind = "passes"
    ) -> None:
        count = int(cells.missing.sum())
        self.cost.items.append(CostItem(model, thing, count, int(tokens), cells.known, kind))

    def _cells(
        self,
        request: Sweep | Writing,
        expected: Expected,
        context: Callable[[], dict[str, Any]],
        how: Hashable,
    ) -> _Cells:
        """What of a request is to be measured; from now on it counts as counted.

        `how` is all that determines a value beside model, task, example and gates.
        """
        gates, examples = expected.known.gates, request.examples
        # A fingerprint takes its time, and without a store the object itself will do.
        name: Hashable = (id(request.model), request.task.version, request.task.name, how)
        stored = StoredTable(None, gates, examples, isinstance(request, Writing))
        if self.store is not None:
            facts = context()
            name = canonical(facts)
            stored = replace(stored, context=self.store.context(facts, layout=request.model.layout))
        asked = expected.asked(len(examples))
        new = np.zeros_like(asked)
        for row, head_set in enumerate([*(row.tobytes() for row in gates), *expected.pending]):
            counted = self._counted.setdefault((name, head_set), set())
            new[row] = asked[row] & [example.key not in counted for example in examples]
            counted.update(examples[column].key for column in np.flatnonzero(new[row]))
        known = np.zeros_like(asked)
        known[: len(gates)] = ~stored.unknown(stored.read())
        gated = np.array([*(gates != 1).any(axis=1), *(True for _ in expected.pending)], dtype=bool)
        return _Cells(new & ~known, int((new & known).sum()), gated, np.asarray(asked.all(axis=1)))

    def _beside(self, sweep: Sweep, cells: _Cells, lengths: np.ndarray) -> None:
        """Count the passes that give no value: those to start from, and those of ablations."""
        missing, gated = cells.missing, cells.gated
        for some in (cells.common, ~cells.common):  # as they are run: on many examples, on each
            whole = missing[some & ~gated].any(axis=0)  # measured, so there to start from
            self.passes(sweep.model, lengths[missing[some].any(axis=0) & ~whole].sum())
            if sweep.ablation == "corrupted":
                self.passes(sweep.model, lengths[missing[some & gated].any(axis=0)].sum())
        if sweep.ablation == "mean" and missing[gated].any():
            tokens = sum(len(e.corrupted or e.prompt) + len(e.target) - 1 for e in sweep.ranking)
            self.passes(sweep.model, tokens)


def _expected(request: Sweep | Writing, entries: Iterable[HeadSetEntry] | None) -> Expected:
    if entries is None:
        return Expected(request.head_sets)
    return Expected.build(request.model.layout, entries, len(request.examples))


@dataclass(frozen=True, eq=False)
class _Cells:
    """Head sets × examples of one request, as a counter sees them."""

    missing: Bool[np.ndarray, "sets examples"]  # to be measured
    known: int  # new to the counter, but in the store
    gated: Bool[np.ndarray, "sets"]  # head sets that change the model
    common: Bool[np.ndarray, "sets"]  # head sets that all examples want


def round_off(number: int) -> int:
    """Three digits are enough to plan by.

    >>> round_off(123456), round_off(87)
    (123000, 87)
    """
    digits = max(0, len(str(number)) - 3)
    return round(number, -digits) if digits else number
