"""The table of heads: what a run knows about each head, in `heads.csv` and on the page."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from headcount.heads import HeadLayout, HeadScores
from headcount.report.read import HEAD_COLUMNS, Result, number

COLUMNS = (*HEAD_COLUMNS, "label")
# Rankings that remove one head at a time: their score is the loss of the metric.
MEASURED = ("ablation", "patching")
REMOVED = "effect when removed"
ROLE = "role"
DIGITS = 6  # significant digits in the table; the files in scores/ have all digits


def head_rows(
    model: str,
    task: str,
    scores: Mapping[str, HeadScores],
    *,
    clusters: Sequence[Any] | np.ndarray | None = None,
    roles: Sequence[str] | np.ndarray | None = None,
) -> list[dict[str, Any]]:
    """One row for each head and score, with its 95 % interval if the score has samples.

    A score that was measured by removing each head occurs twice: as a ranking, and with the
    opposite sign as the effect when removed. `clusters` are the clusters of the ranking examples;
    `roles` has the role of each head. The label names the metric and ablation, or the role.

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
    for name, score in scores.items():
        # Clusters belong to examples, so they are used only if there is one sample per example.
        samples = -1 if score.samples is None else len(score.samples)
        fits = clusters is not None and samples == len(clusters)
        ends = score.intervals(clusters if fits else None)  # (heads, 2)
        settings = score.parameters
        ablation = settings.get("ablation")
        words = [settings.get("metric"), ablation and f"ablation {ablation}"]
        labels = [", ".join(str(word) for word in words if word)] * score.layout.total
        columns.append((name, score.layout, score.values, ends, labels))
        if score.ranking in MEASURED:
            removed.append((REMOVED, score.layout, -score.values, -ends[:, ::-1], labels))
    if roles is not None:
        layout = next(iter(scores.values())).layout
        best = np.max([score.values for score in scores.values()], axis=0)  # (heads,)
        unknown = np.full((layout.total, 2), np.nan)
        columns.insert(0, (ROLE, layout, best, unknown, list(map(str, roles))))
    rows = (
        (model, task, head.layer, head.index, score, *map(_short, (value, *both)), label)
        for score, layout, values, ends, labels in columns + removed[:1]
        for head, value, both, label in zip(layout, values, ends, labels, strict=True)
    )
    return [dict(zip(COLUMNS, row, strict=True)) for row in rows]


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}") + 0.0  # turns -0.0 into 0.0


def head_data(results: Sequence[Result], names: Sequence[str]) -> list[dict[str, Any]]:
    """The data of the map of heads: models, their groups (a study and a task), and their scores.

    A score has one value per head, in the order of the layout, and the ends of its intervals if
    they are known. `names` has a different name for each result.
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
    rows = [row for row in result.heads if (row["model"], row["task"]) == (model, task)]
    score = next((row["score"] for row in rows if row["score"] != ROLE), None)
    values = [
        (-value, int(row["layer"]), int(row["head"]))
        for row in rows
        if row["score"] == score and (value := _rounded(row["value"])) is not None
    ]
    return model, task, [f"{layer}.{head}" for _, layer, head in sorted(values)[:count]]


def _counts(rows: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    most: dict[int, int] = defaultdict(int)
    for row in rows:
        most[int(row["layer"])] = max(most[int(row["layer"])], int(row["head"]) + 1)
    return tuple(most[layer] for layer in range(max(most) + 1))


def _score(name: str, rows: Sequence[Mapping[str, str]], counts: Sequence[int]) -> dict[str, Any]:
    """One score of all heads: its values, the ends of known intervals, and its label or roles."""
    by_head = {(int(row["layer"]), int(row["head"])): row for row in rows if row["score"] == name}
    heads = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]

    def column(key: str) -> list[float | None]:
        return [_rounded(by_head[head][key]) if head in by_head else None for head in heads]

    labels = [by_head[head].get("label", "") if head in by_head else None for head in heads]
    score: dict[str, Any] = {"name": name, "note": "", "values": column("value")}
    ends = {key: column(key) for key in ("low", "high")}
    if any(end is not None for end in ends["low"]):
        score |= ends
    if name == ROLE:
        score["labels"] = labels
    elif len(set(labels)) == 1:
        score["note"] = labels[0] or ""
    return score


def _rounded(text: str) -> float | None:
    """A number rounded to the four digits that the page shows; None if it is unknown."""
    value = number(text)
    return float(f"{value:.4g}") if value is not None and math.isfinite(value) else None
