"""What a run knows about each head, as one tidy table: scores, roles, and effects when removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.heads import HeadLayout, HeadScores

COLUMNS = ("model", "task", "layer", "head", "score", "value", "low", "high", "label")
# Rankings that take out one head at a time: their score is what the metric loses.
MEASURED = ("ablation", "patching")
REMOVED = "effect when removed"
ROLE = "role"
DIGITS = 6  # significant ones: scores/ has them all


def head_rows(
    model: str,
    task: str,
    scores: Mapping[str, HeadScores],
    *,
    clusters: Sequence[Any] | np.ndarray | None = None,
    roles: Sequence[str] | np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """One row for each head and score, with its 95 % interval where the score has samples.

    A score that was measured by removing each head is there twice: as a ranking, and with its sign
    turned as the effect when removed. `clusters` are those of the ranked examples; `roles` are the
    names of each head's role. A label says what a score is of, or names the role.

    >>> scores = HeadScores(HeadLayout((1, 1)), np.array([0.5, 0.0]), "ablation")
    >>> for row in head_rows("model", "task", {"ablation": scores}):
    ...     print(row["layer"], row["head"], row["score"], row["value"])
    0 0 ablation 0.5
    1 0 ablation 0.0
    0 0 effect when removed -0.5
    1 0 effect when removed 0.0
    """
    columns: list[tuple[str, HeadLayout, Any, Any, Sequence[Any]]] = []
    removed: tuple[str, HeadLayout, Any, Any, Sequence[Any]] | None = None
    for name, its in scores.items():
        ends = _intervals(its, clusters)  # (heads, 2)
        labels = [_label(its)] * its.layout.total
        columns.append((name, its.layout, its.values, ends, labels))
        if its.method in MEASURED and removed is None:
            removed = (REMOVED, its.layout, -its.values, -ends[:, ::-1], labels)
    if roles is not None:
        layout = next(iter(scores.values())).layout
        best = np.max([its.values for its in scores.values()], axis=0)  # (heads,)
        unknown = np.full((layout.total, 2), np.nan)
        columns.insert(0, (ROLE, layout, best, unknown, list(roles)))
    if removed is not None:
        columns.append(removed)
    rows = (
        (model, task, head.layer, head.index, score, *map(_short, (value, *both)), str(label))
        for score, layout, values, ends, labels in columns
        for head, value, both, label in zip(layout, values, ends, labels, strict=True)
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def _intervals(
    scores: HeadScores, clusters: Sequence[Any] | np.ndarray | None
) -> Float[np.ndarray, "heads 2"]:
    """By the clusters of the examples, where the samples are one for each of these."""
    fits = clusters is not None and scores.samples is not None
    fits = fits and len(scores.samples) == len(clusters)  # type: ignore[arg-type]
    return scores.intervals(clusters if fits else None)


def _label(scores: HeadScores) -> str:
    """What was measured, and what stood in for the head."""
    said = scores.parameters
    words = [str(said["metric"])] if said.get("metric") else []
    if said.get("stand_in"):
        words.append(f"stand-in {said['stand_in']}")
    return ", ".join(words)


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") + 0.0  # no minus before a zero
