"""A request for the texts that a model writes to the prompts of a task, under each head set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

from headcount.engine.measure.batch import shared_start
from headcount.engine.measure.executor import Emit, Unit
from headcount.engine.measure.head_sets import HeadSets, Label, OnHeadSets
from headcount.engine.measure.plan import SHORTEST_PREFIX
from headcount.engine.write.decode import generate, rows_at_once
from headcount.engine.write.settings import Decoding, Sampled, Scope, check_scope
from headcount.models.model import Model
from headcount.system.files import canonical, digest
from headcount.tasks import Encoded, Task
from headcount.tasks.task import Split

__all__ = ["Answers", "Redistribution", "Sampled", "Scope", "Writing", "check_scope"]

BATCHES = 4  # batches decoded between two writes to the store: a killed run loses at most these

Cell = tuple[int, int]  # one head set and one example


class Redistribution(Protocol):
    """A change of activations while a model writes."""

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that determine a text."""

    def acting(self, model: Model) -> AbstractContextManager[None]:
        """Change the activations of every pass inside this context."""


@dataclass(frozen=True, eq=False)
class Writing(OnHeadSets):
    """A request for texts: the model answers every example of a split under each head set.

    A text ends before one of the task's stop strings, by the task's rule `until`, or after its
    `max_new_tokens`. Decoding is greedy unless `sampled` sets a temperature; `redistribution`
    changes the activations of every pass. White space at the ends of a text is left out if `strip`.
    """

    model: Model
    task: Task
    head_sets: HeadSets
    split: Split = "test"
    scope: Scope = "all"
    sampled: Sampled = field(default_factory=Sampled)
    redistribution: Redistribution | None = None
    strip: bool = True

    def check(self) -> None:
        """Refuse what cannot be written, before anything runs."""
        check_scope(self.scope)
        for example in self.examples:
            self.model.check_room(len(example.prompt), self.task.max_new_tokens)

    def context(self) -> dict[str, Any]:
        """Everything that determines a text, except for gates and example."""
        task = self.task
        change = self.redistribution
        return {
            **self.facts("text", "zero"),
            "scope": self.scope,
            "stop": list(task.stop),
            "max_new_tokens": task.max_new_tokens,
            **({"until": task.until} if task.until else {}),
            **self.sampled.identity,
            **({} if change is None else {"redistribution": change.identity}),
            **({} if self.strip else {"strip": False}),
        }

    def tokens(self, missing: Bool[np.ndarray, "sets examples"]) -> int:
        """The most tokens that the missing texts can take; a shared prefix runs once per set."""
        prompts = [self.examples[e].prompt for e in np.flatnonzero(missing.any(axis=0))]
        shared = shared_start(prompts) if len(prompts) > 1 else 0
        shared = shared if shared >= SHORTEST_PREFIX else 0
        each = sum(len(self.examples[e].prompt) - shared for e in missing.nonzero()[1])
        texts, sets = int(missing.sum()), int(missing.any(axis=1).sum())
        return each + texts * self.task.max_new_tokens + sets * shared

    def job(self) -> WritingJob:
        """The request as a job for an executor."""
        task = self.task
        decoding = Decoding(
            **asdict(self.sampled),
            max_new_tokens=task.max_new_tokens,
            scope=self.scope,
            stop=task.stop,
            until=task.until,
        )
        change = self.redistribution
        return WritingJob(self.head_sets.gates, self.examples, decoding, change, self.strip)

    def units(
        self, context: dict[str, Any], missing: Bool[np.ndarray, "sets examples"]
    ) -> list[Unit]:
        """The missing texts, in units that are decoded together and then written to the store."""
        return [
            self._unit(context, [(row, e) for row in rows for e in columns if missing[row, e]])
            for rows, columns in self._pieces(missing)
        ]

    def _pieces(
        self, missing: Bool[np.ndarray, "sets examples"]
    ) -> Iterator[tuple[list[int], list[int]]]:
        """The head sets and examples of each unit: several whole head sets, or a part of one."""
        prompts = [example.prompt for example in self.examples]
        together = BATCHES * rows_at_once(self.model, prompts, self.task.max_new_tokens)
        step = max(1, together // len(prompts))
        incomplete = np.flatnonzero(missing.any(axis=1)).tolist()
        for start in range(0, len(incomplete), step):
            rows = incomplete[start : start + step]
            columns = np.flatnonzero(missing[rows].any(axis=0)).tolist()
            # Prompts of similar length are decoded together, so that there is little padding.
            columns.sort(key=lambda e: (-len(prompts[e]), e))
            for first in range(0, len(columns), together):
                yield rows, columns[first : first + together]

    def _unit(self, context: dict[str, Any], cells: list[Cell]) -> Unit:
        rows, columns = (sorted(set(numbers)) for numbers in zip(*cells, strict=True))
        content = {
            "context": context,
            "head_sets": digest(self.head_sets.gates[rows].astype("<f4").tobytes()),
            "examples": [self.examples[column].key for column in columns],
            "cells": digest(repr([(rows.index(r), columns.index(e)) for r, e in cells])),
        }
        first = self.examples[cells[0][1]].example.id
        more = f" and {len(columns) - 1} more" if len(columns) > 1 else ""
        name = f"{self.task.name}, answers: {first}{more} under {len(rows)} head sets"
        return Unit(digest(canonical(content)), name, cells)


@dataclass(frozen=True, eq=False)
class Answers:
    """One text per head set and example; `of` gives the texts of a label."""

    texts: np.ndarray  # strings, of shape (different head sets, examples)
    finished: Float[np.ndarray, "sets examples"]  # 0 if the limit cut a text; NaN if not known
    head_sets: HeadSets
    examples: tuple[str, ...]
    clusters: Int[np.ndarray, "examples 2"]

    def of(self, label: Label) -> list[str]:
        """The texts under a label's first head set."""
        return [str(text) for text in self.texts[self.head_sets.rows[label][0]]]


@dataclass(frozen=True, eq=False)
class WritingJob:
    """The data that all units of a request for texts need."""

    gates: Float[np.ndarray, "sets heads"]
    examples: list[Encoded]
    decoding: Decoding
    redistribution: Redistribution | None
    strip: bool = True

    def ready(self, model: Model) -> Callable[[list[Cell], Emit], None]:
        """Make a function that writes the texts of cells with a model, and emits them together."""
        return lambda cells, emit: emit(self.write(model, cells))

    def write(self, model: Model, cells: list[Cell]) -> list[tuple[str, float]]:
        """The texts of these cells, and for each whether it was finished."""
        if self.redistribution is None:
            return self._write(model, cells)
        # A redistribution reads all activations of a pass, so decode equal lengths together: there
        # must be no padding.
        lengths = {len(self.examples[e].prompt) for _, e in cells}
        texts: dict[Cell, tuple[str, float]] = {}
        with self.redistribution.acting(model):
            for length in sorted(lengths):
                equal = [cell for cell in cells if len(self.examples[cell[1]].prompt) == length]
                texts.update(zip(equal, self._write(model, equal), strict=True))
        return [texts[cell] for cell in cells]

    def _write(self, model: Model, cells: list[Cell]) -> list[tuple[str, float]]:
        gates = self.gates[[row for row, _ in cells]]
        written = generate(
            model,
            [self.examples[e].prompt for _, e in cells],
            None if (gates == 1).all() else gates,
            # A redistribution reads all activations of a pass, so they must not depend on which
            # other prompts are in the batch.
            share=self.redistribution is None,
            progress=False,
            **asdict(self.decoding),
        )
        return [
            (text.text.strip() if self.strip else text.text, float(text.finished))
            for text in written
        ]
