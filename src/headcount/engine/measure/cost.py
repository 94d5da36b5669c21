"""What a description will cost: a sum over its requests, of which none is carried out.

A request says what it needs (`count`): values and texts under head sets, passes, derivatives. A
head set that depends on a ranking which is not known yet counts as one that nobody has measured, so
the sum is an upper bound; of texts, whose length nobody knows, so are the tokens.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from jaxtyping import Bool

from headcount.engine.measure.head_sets import Expected, HeadSetEntry, HeadSets
from headcount.engine.measure.rates import Kind, seconds_per_token
from headcount.engine.measure.sweep import Sweep
from headcount.engine.write.writing import Writing
from headcount.metrics.text import TextMetric
from headcount.models.model import Model
from headcount.store import Store, StoreContext
from headcount.system.files import canonical
from headcount.system.progress import duration
from headcount.tasks import Encoded

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
        return sum(
            item.tokens * seconds_per_token(item.model, item.kind)
            for item in self.items
            if item.tokens
        )

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
        known = f"{self.known:,} more are known already" if self.known else ""
        if not self.tokens:
            return f"Nothing is left to measure{f': {known}' if known else ''}.".replace(
                "more ", ""
            )
        parts = [f"{n:,} {t}s" for t in ("value", "text") if (n := self.count(t))]
        what = " and ".join(parts) or "passes that score heads"
        up_to = "up to" if self.count("text") else "about"
        text = f"Ahead: {what}, {up_to} {round_off(self.tokens):,} tokens"
        if known:
            text += f" ({known})"
        seconds = self.seconds()
        if math.isnan(seconds):
            return f"{text}."
        return f"{text}: about {duration(seconds)} on this machine."


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
        self._passes: set[Hashable] = set()

    def sweep(self, sweep: Sweep, entries: Iterable[HeadSetEntry] | None = None) -> None:
        """Count the values (or texts) of a sweep; `entries` stand for head sets not known yet."""
        if isinstance(sweep.metric, TextMetric):
            self.writing(sweep.writing(), entries, whole=True)
            return
        sweep.check()
        filler = sweep.stand_in()
        key, shelf = self._context(sweep.model, sweep, sweep.context, filler.identity)
        expected = _expected(sweep, entries)
        cells = _Cells(self, key, sweep.examples, expected)
        known = (
            None
            if shelf is None or expected.known is None
            else ~np.isnan(shelf.read(expected.known.gates, cells.keys))
        )
        missing = cells.missing(known)
        lengths = np.array([one.length for one in sweep.examples])
        self._add(sweep.model, "value", missing.sum(), (missing * lengths).sum(), known=cells.known)
        self._beside(sweep, missing, cells, lengths, filler.name)

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
            layout = writing.model.layout
            ones = HeadSetEntry("whole", np.ones(layout.total, dtype=np.float32))
            rows = [] if expected.known is None else list(expected.known.gates)
            table = HeadSets.build(
                layout, [ones, *(HeadSetEntry(i, row) for i, row in enumerate(rows))]
            )
            expected = Expected(table, expected.pending)
        key, shelf = self._context(writing.model, writing, writing.context)
        cells = _Cells(self, key, writing.examples, expected)
        known = None
        if shelf is not None and expected.known is not None:
            texts = shelf.read_texts(expected.known.gates, cells.keys)
            known = np.array([[text is not None for text in row] for row in texts])
        missing = cells.missing(known)
        self._add(
            writing.model,
            "text",
            missing.sum(),
            writing.tokens(missing) if missing.any() else 0,
            known=cells.known,
            kind="writing",
        )

    def passes(
        self, model: Model, tokens: int, kind: Kind = "passes", key: Hashable = None
    ) -> None:
        """Count passes that give no value of an example; those of one `key` count once."""
        if key is not None and (key, kind) in self._passes:
            return
        self._passes.add((key, kind))
        if tokens:
            self._add(model, "pass", 0, tokens, kind=kind)

    def _add(self, model: Model, thing: Thing, count: int, tokens: int, **more: Any) -> None:
        self.cost.items.append(CostItem(model, thing, int(count), int(tokens), **more))

    def _context(
        self, model: Model, request: Sweep | Writing, context: Any, *facts: Any
    ) -> tuple[Hashable, StoreContext | None]:
        """What a value is known by, beside example and gates; and its place in the store."""
        if self.store is not None:
            found = context(*facts)
            return canonical(found), self.store.context(found, layout=model.layout)
        # A fingerprint takes its time, and without a store the object itself will do.
        how: Hashable = request.scope
        if isinstance(request, Writing):
            how = how, request.sampled, repr(request.redistribution)
        else:
            how = how, request.metric.key
        return (id(model), request.task.version, request.task.name, how, facts), None

    def _beside(
        self,
        sweep: Sweep,
        missing: Bool[np.ndarray, "sets examples"],
        cells: _Cells,
        lengths: np.ndarray,
        ablation: str,
    ) -> None:
        """Count the passes that give no value: those to start from, and those of stand-ins."""
        gated, common = cells.gated, cells.common
        for some in (common, ~common):  # as they are run: on many examples at once, and on each
            whole = missing[some & ~gated].any(axis=0)  # measured, so there to start from
            self.passes(sweep.model, lengths[missing[some].any(axis=0) & ~whole].sum())
            if ablation == "corrupted":
                self.passes(sweep.model, lengths[missing[some & gated].any(axis=0)].sum())
        if ablation == "mean" and missing[gated].any():
            tokens = sum(len(e.corrupted or e.prompt) + len(e.target) - 1 for e in sweep.ranking)
            self.passes(sweep.model, tokens)


def _expected(request: Sweep | Writing, entries: Iterable[HeadSetEntry] | None) -> Expected:
    if entries is None:
        return Expected(request.head_sets)
    return Expected.build(request.model.layout, entries, len(request.examples))


class _Cells:
    """Head sets × examples of one request: which are new to the counter, and which are known."""

    def __init__(
        self, counter: Counter, context: Hashable, examples: list[Encoded], expected: Expected
    ) -> None:
        self.counter, self.context, self.expected = counter, context, expected
        self.keys = [example.key for example in examples]
        self.known = 0
        gated, common = np.zeros(0, dtype=bool), np.zeros(0, dtype=bool)
        if expected.known is not None:
            gated = np.asarray((expected.known.gates != 1).any(axis=1))
            common = np.asarray(expected.known.asked(len(examples)).all(axis=1))
        everywhere = [wanted is None for wanted in expected.pending.values()]
        self.gated = np.concatenate([gated, np.ones(len(everywhere), dtype=bool)])
        self.common = np.concatenate([common, np.array(everywhere, dtype=bool)])

    def missing(self, known: Bool[np.ndarray, "sets examples"] | None) -> np.ndarray:
        """Which cells are to be measured; from now on they count as counted."""
        table, count = self.expected.known, len(self.keys)
        rows = []
        if table is not None:
            asked = table.asked(count)
            for number, gates in enumerate(table.gates):
                new = self._new(gates.tobytes(), asked[number])
                if known is not None:
                    self.known += int((new & known[number]).sum())
                    new = new & ~known[number]
                rows.append(new)
        for key, examples in self.expected.pending.items():
            wanted = np.ones(count, dtype=bool)
            if examples is not None:
                wanted = np.isin(np.arange(count), sorted(examples))
            rows.append(self._new(key, wanted))
        return np.array(rows, dtype=bool).reshape(len(rows), count)

    def _new(self, head_set: Hashable, wanted: np.ndarray) -> np.ndarray:
        counted = self.counter._counted.setdefault((self.context, head_set), set())
        new = np.array([key not in counted for key in self.keys], dtype=bool) & wanted
        counted.update(key for key, fresh in zip(self.keys, new, strict=True) if fresh)
        return np.asarray(new)


def round_off(number: int) -> int:
    """Three digits are enough to plan by.

    >>> round_off(123456), round_off(87)
    (123000, 87)
    """
    digits = max(0, len(str(number)) - 3)
    return round(number, -digits) if digits else number
