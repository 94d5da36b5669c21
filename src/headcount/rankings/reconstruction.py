"""Ranking by reconstruction: which heads of a layer can be left out, if the others are rescaled?

What the heads of a layer write adds up to the output of its attention block. From some of them,
each times a factor of its own, that output can be rebuilt in part. In every layer, heads (or whole
key/value groups) leave one by one, always the one without which least is lost. No answer is read
and nothing is ablated: one pass over the prompts is enough. It compares what heads write, not what
later layers make of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from jaxtyping import Bool, Float

from headcount.engine.measure.cost import Counter
from headcount.engine.measure.plan import MEASUREMENT
from headcount.engine.read.activity import writes_together
from headcount.errors import unknown
from headcount.heads import HeadScores
from headcount.lab import Lab
from headcount.models.groups import GROUPS, HEADS, Geometry, Kept, geometry_of
from headcount.models.model import Model
from headcount.rankings.ranking import Settings, examples_key, ranking_tokens
from headcount.store import Store
from headcount.tasks import Encoded, Task

KIND = "writes-together"  # of documents in the store


def reconstruction(model: Model, task: Task, *, unit: str = GROUPS, lab: Lab) -> HeadScores:
    """How much of its layer's output is lost when the head leaves: a share, 1 for the last.

    With the unit "groups" whole key/value groups leave, and all query heads of a group have its
    score. With "heads" each group loses one query head after the other, so that all stay equal.
    """
    whole = geometry_of(model)
    tables = writes_of(model, model.encode(task.split("ranking")), lab)
    scores = [_shares_lost(table, whole, unit) for table in tables]
    return HeadScores(model.layout, np.concatenate(scores), "reconstruction", {"unit": unit})


def check_reconstruction(settings: Settings) -> None:
    """Refuse an unknown unit."""
    if settings["unit"] not in (GROUPS, HEADS):
        raise unknown("unit", settings["unit"], (GROUPS, HEADS))


def count_reconstruction(counter: Counter, model: Model, task: Task, settings: Settings) -> None:
    """Count the pass that reads what heads write."""
    counter.passes(model, ranking_tokens(model, task))


def writes_of(
    model: Model, examples: Sequence[Encoded], lab: Lab
) -> list[Float[np.ndarray, "heads heads"]]:
    """For each layer, the inner products of what every two heads write on these examples."""

    def make() -> list[Any]:
        sequences = [[*example.prompt, *example.target] for example in examples]
        found = writes_together(model, sequences, progress=lab.progress)
        return [table.tolist() for table in found]

    tables = lab.document(KIND, lambda: _context(model, examples), make)
    return [np.array(table) for table in tables]


def known_writes(
    model: Model, examples: Sequence[Encoded], store: Store
) -> list[Float[np.ndarray, "heads heads"]] | None:
    """The same, if the store has it."""
    tables = store.get_document(KIND, _context(model, examples))
    return None if tables is None else [np.array(table) for table in cast(Any, tables)]


def _context(model: Model, examples: Sequence[Encoded]) -> dict[str, Any]:
    about = {"examples": examples_key(examples), "measurement": MEASUREMENT}
    return {**model.identity, **about}


def least_squares(
    together: Sequence[Float[np.ndarray, "own own"]], kept: Kept, whole: Geometry
) -> Float[np.ndarray, "heads"]:
    """The factors with which kept heads rebuild their layers' outputs best; 0 for all others.

    `together` has the inner products of what heads write.

    >>> alike = np.array([[1.0, 1.0], [1.0, 1.0]])  # two heads that write the same
    >>> least_squares([alike], np.array([True, False]), Geometry(1, 2, 1)).tolist()
    [2.0, 0.0]
    """
    by_layer = zip(together, kept.reshape(whole.layers, whole.heads), strict=True)
    return np.concatenate([_factors(table, here) for table, here in by_layer]).astype(np.float32)


def _factors(
    table: Float[np.ndarray, "heads heads"], kept: Bool[np.ndarray, "heads"]
) -> Float[np.ndarray, "heads"]:
    factors = np.zeros(len(table))
    some = np.flatnonzero(kept)
    factors[some] = np.linalg.lstsq(table[np.ix_(some, some)], table[some].sum(1), rcond=None)[0]
    return factors


def _lost(table: Float[np.ndarray, "heads heads"], kept: Bool[np.ndarray, "heads"]) -> float:
    """The share of the block's squared output that these heads cannot rebuild."""
    missing = 1 - _factors(table, kept)
    return float(max(missing @ table @ missing, 0) / max(table.sum(), 1e-30))


def _shares_lost(
    table: Float[np.ndarray, "heads heads"], whole: Geometry, unit: str
) -> Float[np.ndarray, "heads"]:
    """The scores of a layer's heads."""
    heads = np.arange(whole.heads).reshape(whole.groups, whole.per_group)
    kept = np.ones(whole.heads, dtype=bool)
    scores, lost = np.zeros(whole.heads), 0.0
    for _ in range(1 if unit == GROUPS else whole.per_group):
        left = list(heads)  # groups that have not lost anything in this round
        while left:
            options = []
            for number, group in enumerate(left):
                for leaving in [group] if unit == GROUPS else group[kept[group], None]:
                    without = kept.copy()
                    without[leaving] = False
                    options.append((_lost(table, without), number, leaving))
            share, number, leaving = min(options, key=lambda option: option[0])
            lost = max(lost, share)  # rounding must not turn the order round
            kept[leaving], scores[leaving] = False, lost
            del left[number]
    return scores
