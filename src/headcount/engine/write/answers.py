"""What a model writes to the prompts of a task, under each head set."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from jaxtyping import Float, Int

from headcount.engine.measure.forecast import forecast
from headcount.engine.measure.plan import MEASUREMENT, SHORTEST_PREFIX
from headcount.engine.measure.rates import timing
from headcount.engine.measure.workers import Unit, workers
from headcount.engine.write.decode import Scope, check_scope, generate, rows_at_once
from headcount.engine.write.steps import shared_start
from headcount.heads import check_gates
from headcount.models.model import Model
from headcount.store import Store
from headcount.system.files import canonical, digest
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Encoded, Task, encode
from headcount.tasks.task import Part


class Redistribution(Protocol):
    """A change of activations while a model writes."""

    @property
    def identity(self) -> dict[str, Any]:
        """What of it determines a text."""

    def acting(self, model: Model) -> AbstractContextManager[None]:
        """Act on every pass inside."""


BATCHES = 4  # decoded between two writes to the store: what a killed run may lose


Piece = tuple[list[int], list[int]]  # head sets and examples that are decoded together
Cell = tuple[int, int]  # one head set and one example
Text = tuple[str, float]  # and whether it was finished


@dataclass(frozen=True, eq=False)
class Answers:
    """One text per head set and example."""

    texts: np.ndarray  # (sets, examples), of str
    finished: Float[np.ndarray, "sets examples"]  # 0 where the limit cut a text; NaN: not known
    examples: tuple[str, ...]
    clusters: Int[np.ndarray, "examples"]


@dataclass(frozen=True)
class Sampled:
    """How tokens are drawn; temperature 0 takes the likeliest one."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0

    @property
    def identity(self) -> dict[str, float]:
        """What of it determines a text; nothing where nothing is drawn."""
        if not self.temperature:
            return {}
        return {"temperature": self.temperature, "top_p": self.top_p, "seed": self.seed}


def answers(
    model: Model,
    task: Task,
    gates: Any,
    *,
    scope: Scope = "all",
    part: Part = "test",
    sampled: Sampled = Sampled(),  # noqa: B008  (frozen)
    redistribution: Redistribution | None = None,
    store: Store | None = None,
    progress: bool = True,
) -> Answers:
    """Let the model answer every example of one part of `task` under each head set.

    A text ends before one of the task's stop strings, by its rule `until`, or after its number of
    new tokens. Greedily, unless `sampled` says otherwise; `redistribution` acts on every pass. With
    a store, what it holds is not written again.

    >>> import numpy as np
    >>> from headcount import Example, Task, load_model
    >>> model = load_model("smollm2-135m")
    >>> task = Task("capitals", 1, (Example("0", "The capital of France is", " Paris"),))
    >>> answers(model, task, np.ones((1, 270)), part="all").texts[0, 0].startswith("Paris")
    True
    """
    check_scope(scope)
    sets, place = np.unique(check_gates(gates, model.layout) + 0, axis=0, return_inverse=True)
    chosen = task.part(part)
    examples = encode(chosen, model.tokenizer)
    texts = np.full((len(sets), len(examples)), None, dtype=object)
    finished = np.full(texts.shape, np.nan)
    shelves = None
    keys = [one.key for one in examples]
    context: dict[str, Any] = {}
    if store is not None or workers() is not None:  # a fingerprint takes its time
        context = writing_context(model, task, scope) | sampled.identity
        if redistribution is not None:
            context["redistribution"] = redistribution.identity
    if store is not None:
        shelf = store.context(context, layout=model.layout)
        ends = store.context({**context, "metric": "finished"}, layout=model.layout)
        shelves = shelf, ends
        texts, finished = shelf.read_texts(sets, keys), ends.read(sets, keys)
    missing = np.array([[text is None for text in row] for row in texts])
    ahead = _tokens_ahead(task, examples, missing)
    ids = tuple(one.example.id for one in examples)
    back = place.reshape(-1)
    if (expected := forecast()) is not None:
        new = int(missing.sum())
        known = expected.known_before(shelves and shelves[0], sets, keys, "text")
        expected.add(model, "text", new, ahead, known=known, kind="writing")
        texts[missing], finished[missing] = "", 1.0
        if shelves is not None and new:
            shelves[0].write_texts(sets, keys, ids, texts)
        return Answers(texts[back], finished[back], ids, chosen.clusters)
    job = _Job(context, task, sets, examples, scope, sampled, redistribution)
    with (
        progress_bar(f"{task.name}: answers", int(missing.sum()), show=progress) as bar,
        timing(model, ahead, "writing") if workers() is None else nullcontext(),
    ):
        for (some, columns), wanted, found in _done(model, job, missing):
            for cell, (text, whole) in zip(wanted, found, strict=True):
                texts[cell], finished[cell] = text, whole
            if shelves is not None:
                cells = np.ix_(some, columns)
                keys = [examples[e].key for e in columns]
                names = [examples[e].example.id for e in columns]
                # Ends first: a text that is there was written whole, and so is what is known of it.
                if not np.isnan(finished[cells]).any():
                    shelves[1].write(sets[some], keys, names, finished[cells])
                shelves[0].write_texts(sets[some], keys, names, texts[cells])
            bar.update(len(wanted))
    return Answers(texts[back], finished[back], ids, chosen.clusters)


def _tokens_ahead(task: Task, examples: list[Encoded], missing: np.ndarray) -> int:
    """Up to so many: a text may end before its limit. What all prompts share runs once a set."""
    prompts = [examples[e].prompt for e in np.flatnonzero(missing.any(axis=0))]
    shared = shared_start(prompts) if len(prompts) > 1 else 0
    if shared < SHORTEST_PREFIX:
        shared = 0
    each = sum(len(examples[e].prompt) - shared for e in missing.nonzero()[1])
    texts, sets = int(missing.sum()), int(missing.any(axis=1).sum())
    return each + texts * task.max_new_tokens + sets * shared


def _pieces(
    model: Model, task: Task, examples: list[Encoded], missing: np.ndarray
) -> Iterator[Piece]:
    """Head sets and examples that are decoded together, before the store is written.

    All examples under several head sets where a batch holds that many, else some of the examples.
    """
    rows = rows_at_once(model, [one.prompt for one in examples], task.max_new_tokens)
    together = BATCHES * rows
    step = max(1, together // len(examples))
    wanted = np.flatnonzero(missing.any(axis=1)).tolist()
    for start in range(0, len(wanted), step):
        some = wanted[start : start + step]
        columns = np.flatnonzero(missing[some].any(axis=0)).tolist()
        # Prompts of like length together, so that little is filled up.
        columns.sort(key=lambda e: (-len(examples[e].prompt), e))
        for first in range(0, len(columns), together):
            yield some, columns[first : first + together]


@dataclass(frozen=True, eq=False)
class _Job:
    """What is asked of every piece."""

    context: dict[str, Any]  # of the store
    task: Task
    sets: Float[np.ndarray, "sets heads"]
    examples: list[Encoded]
    scope: Scope
    sampled: Sampled
    redistribution: Redistribution | None

    def ready(self, model: Model) -> Callable[[list[Cell]], list[Text]]:
        """Write the texts of cells with a model."""
        return partial(self.write, model)

    def write(self, model: Model, cells: list[Cell]) -> list[Text]:
        """The texts of some cells, which are decoded together."""
        if self.redistribution is None:
            return self._write(model, cells)
        # It looks at all activations of a prompt, and filling would be among them.
        lengths = {len(self.examples[e].prompt) for _, e in cells}
        texts: dict[Cell, Text] = {}
        with self.redistribution.acting(model):
            for length in sorted(lengths):
                some = [cell for cell in cells if len(self.examples[cell[1]].prompt) == length]
                texts.update(zip(some, self._write(model, some), strict=True))
        return [texts[cell] for cell in cells]

    def _write(self, model: Model, cells: list[Cell]) -> list[Text]:
        gates = self.sets[[row for row, _ in cells]]
        written = generate(
            model,
            [self.examples[e].prompt for _, e in cells],
            None if (gates == 1).all() else gates,
            max_new_tokens=self.task.max_new_tokens,
            stop=self.task.stop,
            until=self.task.until,
            scope=self.scope,
            temperature=self.sampled.temperature,
            top_p=self.sampled.top_p,
            seed=self.sampled.seed,
            # It looks at all activations of a pass, which must be the same whoever is asked beside.
            share=self.redistribution is None,
            progress=False,
        )
        return [(text.text.strip(), float(text.finished)) for text in written]

    def unit(self, cells: list[Cell]) -> Unit:
        """A piece as workers are given it."""
        rows, columns = (sorted(set(numbers)) for numbers in zip(*cells, strict=True))
        asked = {
            "context": self.context,
            "head_sets": digest(self.sets[rows].astype("<f4").tobytes()),
            "examples": [self.examples[column].key for column in columns],
            "cells": digest(repr([(rows.index(r), columns.index(e)) for r, e in cells])),
        }
        first = self.examples[cells[0][1]].example.id
        more = f" and {len(columns) - 1} more" if len(columns) > 1 else ""
        name = f"{self.task.name}, answers: {first}{more} under {len(rows)} head sets"
        return Unit(digest(canonical(asked)), name, cells)


def _done(
    model: Model, job: _Job, missing: np.ndarray
) -> Iterator[tuple[Piece, list[Cell], list[Text]]]:
    """Every piece, its missing cells and their texts, here or by workers."""
    pieces = [
        ((some, columns), [(row, e) for row in some for e in columns if missing[row, e]])
        for some, columns in _pieces(model, job.task, job.examples, missing)
    ]
    helpers = workers()
    if helpers is None:
        for piece, cells in pieces:
            yield piece, cells, job.write(model, cells)
        return
    units = [job.unit(cells) for _, cells in pieces]
    # Not by their keys: equal examples make equal units.
    place = {id(unit): piece for unit, piece in zip(units, pieces, strict=True)}
    for unit, texts in helpers.do(model, job, units):
        yield *place[id(unit)], texts


def writing_context(model: Model, task: Task, scope: Scope) -> dict[str, Any]:
    """Everything but gates and examples that determines a text."""
    context = {
        "model": model.name,
        **model.identity,
        "task": task.name,
        "task_version": task.version,
        "metric": "text",
        "stand_in": "zero",
        "scope": scope,
        "stop": list(task.stop),
        "max_new_tokens": task.max_new_tokens,
        "measurement": MEASUREMENT,
    }
    return {**context, "until": task.until} if task.until else context
