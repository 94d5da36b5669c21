"""The heads of all results, in the form that the page's map and table read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from headcount.report.head_rows import ROLE
from headcount.report.read import Result


def head_data(results: Sequence[Result], names: Sequence[str]) -> list[dict[str, Any]]:
    """Models, each with its groups (a study and a task), each with its scores.

    Scores have one value per head in the order of the layout, with ends of intervals where they
    have them. `names` tell the results apart.
    """
    models: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    for result, name in zip(results, names, strict=True):
        groups: dict[tuple[str, str], list[Mapping[str, str]]] = {}
        for row in result.heads:
            groups.setdefault((row["model"], row["task"]), []).append(row)
        for (model, task), rows in groups.items():
            counts = _counts(rows)
            known = models.setdefault(
                (model, counts), {"name": model, "counts": counts, "groups": []}
            )
            names_of_scores = dict.fromkeys(row["score"] for row in rows)
            scores = [_score(score, rows, counts) for score in names_of_scores]
            known["groups"].append({"study": name, "task": task, "scores": scores})
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
        if row["score"] == score and (value := _number(row["value"])) is not None
    ]
    return model, task, [f"{layer}.{head}" for _, layer, head in sorted(values)[:count]]


def _counts(rows: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    most: dict[int, int] = {}
    for row in rows:
        layer, head = int(row["layer"]), int(row["head"])
        most[layer] = max(most.get(layer, 0), head + 1)
    return tuple(most.get(layer, 0) for layer in range(max(most) + 1))


def _score(name: str, rows: Sequence[Mapping[str, str]], counts: Sequence[int]) -> dict[str, Any]:
    """One score of all heads: its values, the ends of intervals where known, and what it is of."""
    own = {(int(row["layer"]), int(row["head"])): row for row in rows if row["score"] == name}
    heads = [(layer, head) for layer, count in enumerate(counts) for head in range(count)]

    def column(key: str) -> list[float | None]:
        return [_number(own[head][key]) if head in own else None for head in heads]

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


def _number(text: str) -> float | None:
    """A number in four digits, which is what a reader sees; None where it is unknown."""
    try:
        value = float(text)
    except ValueError:
        return None
    return float(f"{value:.4g}") if math.isfinite(value) else None
