"""What a run knows about each head: the tidy table in its folder, and what a page makes of it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.heads import HeadLayout, HeadScores
from headcount.report.read import Result, number

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
    columns: list[tuple[str, HeadLayout, Any, Any, Sequence[str]]] = []
    removed = []
    for name, its in scores.items():
        # By the clusters of the examples, where the samples are one for each of these.
        samples = -1 if its.samples is None else len(its.samples)
        fits = clusters is not None and samples == len(clusters)
        ends = its.intervals(clusters if fits else None)  # (heads, 2)
        said = its.parameters
        words = [said.get("metric"), said.get("ablation") and f"ablation {said['ablation']}"]
        labels = [", ".join(str(word) for word in words if word)] * its.layout.total
        columns.append((name, its.layout, its.values, ends, labels))
        if its.ranking in MEASURED:
            removed.append((REMOVED, its.layout, -its.values, -ends[:, ::-1], labels))
    if roles is not None:
        layout = next(iter(scores.values())).layout
        best = np.max([its.values for its in scores.values()], axis=0)  # (heads,)
        unknown = np.full((layout.total, 2), np.nan)
        columns.insert(0, (ROLE, layout, best, unknown, list(map(str, roles))))
    rows = (
        (model, task, head.layer, head.index, score, *map(_short, (value, *both)), label)
        for score, layout, values, ends, labels in columns + removed[:1]
        for head, value, both, label in zip(layout, values, ends, labels, strict=True)
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") + 0.0  # no minus before a zero


def head_data(results: Sequence[Result], names: Sequence[str]) -> list[dict[str, Any]]:
    """Models, each with its groups (a study and a task), each with its scores.

    Scores have one value per head in the order of the layout, with ends of intervals where they
    have them. `names` tell the results apart.
    """
    models: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    for result, name in zip(results, names, strict=True):
        groups = defaultdict(list)
        for row in result.heads:
            groups[row["model"], row["task"]].append(row)
        for (model, task), rows in groups.items():
            counts = _counts(rows)
            scores = dict.fromkeys(row["score"] for row in rows)
            shown = [_score(score, rows, counts) for score in scores]
            known = models.setdefault((model, counts), {"name": model, "counts": counts})
            group = {"study": name, "task": task, "scores": shown}
            known.setdefault("groups", []).append(group)
    return list(models.values())


def top_heads(result: Result, count: int = 4) -> tuple[str, str, list[str]] | None:
    """Model, task and the heads that rank highest by the first score; None without scores."""
    if not result.heads:
        return None
    model, task = result.heads[0]["model"], result.heads[0]["task"]
    own = [row for row in result.heads if (row["model"], row["task"]) == (model, task)]
    score = next((row["score"] for row in own if row["score"] != ROLE), None)
    values = [
        (-value, int(row["layer"]), int(row["head"]))
        for row in own
        if row["score"] == score and (value := _seen(row["value"])) is not None
    ]
    return model, task, [f"{layer}.{head}" for _, layer, head in sorted(values)[:count]]


def _counts(rows: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    most: dict[int, int] = defaultdict(int)
    for row in rows:
        most[int(row["layer"])] = max(most[int(row["layer"])], int(row["head"]) + 1)
    return tuple(most[layer] for layer in range(max(most) + 1))


def _score(name: str, rows: Sequence[Mapping[str, str]], counts: Sequence[int]) -> dict[str, Any]:
    """One score of all heads: its values, the ends of intervals where known, and what it is of."""
    own = {(int(row["layer"]), int(row["head"])): row for row in rows if row["score"] == name}
    heads = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]

    def column(key: str) -> list[float | None]:
        return [_seen(own[head][key]) if head in own else None for head in heads]

    labels = [own[head].get("label", "") if head in own else None for head in heads]
    score: dict[str, Any] = {"name": name, "note": "", "values": column("value")}
    ends = {key: column(key) for key in ("low", "high")}
    if any(end is not None for end in ends["low"]):
        score |= ends
    if name == ROLE:
        score["labels"] = labels
    elif len(set(labels)) == 1:
        score["note"] = labels[0] or ""
    return score


def _seen(text: str) -> float | None:
    """A number in four digits, which is what a reader sees; None where it is unknown."""
    value = number(text)
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None
