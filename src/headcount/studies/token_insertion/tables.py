"""Tables of what was seen inside: λ and the added direction by layer, activations by token."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.heads import HeadScores
from headcount.models.model import Model
from headcount.report.head_rows import head_rows
from headcount.stats import bootstrap, paired_difference
from headcount.studies.token_insertion.activations import STATISTICS
from headcount.studies.token_insertion.look import AFFINE, Look
from headcount.tasks.maths.token_classes import CLASSES


def affine_rows(rows: list[dict[str, Any]], model: Model, look: Look) -> None:
    """λ, the size of the added direction, R², spread and height of the peaks: mean over heads."""
    for series in dict.fromkeys(series for series, _ in look.affine):
        for layer in range(len(model.sites)):
            heads = np.flatnonzero(model.layout.layers == layer)
            factor, bias, explained, spread = (look.scaled(series, e, heads) for e in AFFINE)
            if not len(factor):  # no head of the layer says anything
                continue
            mean = bootstrap(factor)
            by_head = [_known(values) for values in look.affine[series, "lambda"].T[heads]]
            peak, before = (
                look.effects[series, "all", name][:, heads].mean()
                for name in ("peak", "peak_without")
            )
            rows.append(
                {
                    "model": model.name,
                    "series": series,
                    "layer": layer,
                    "lambda": mean.value,
                    "low": mean.low,
                    "high": mean.high,
                    "heads below 1": float(np.mean([v < 1 for v in by_head if v is not None])),
                    "added direction": float(bias.mean()),
                    "R2": float(explained.mean()),
                    "spread": float(spread.mean()),
                    "peaks": float(peak / before),
                    "by head": " ".join("–" if v is None else f"{v:.3f}" for v in by_head),
                }
            )


def _known(values: Float[np.ndarray, "prompts"]) -> float | None:
    """Their mean without those that are unknown; None where all are."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _filled(values: Float[np.ndarray, "prompts heads"]) -> Float[np.ndarray, "prompts heads"]:
    """With a head's own mean where it says nothing; a head that never does is not changed: 0."""
    means = [_known(column) or 0.0 for column in values.T]
    return np.where(np.isnan(values), means, values)


def activation_rows(rows: list[dict[str, Any]], model: Model, look: Look) -> None:
    """Each statistic by kind of token, without an insert and how each insert changes it."""
    if not look.activations:
        return
    before = look.activations["w/o"]
    for kind, name in enumerate(CLASSES):
        there = ~np.isnan(before[:, kind, 0])
        if there.sum() < 2:
            continue
        for place, statistic in enumerate(STATISTICS):
            old = before[there, kind, place]
            row: dict[str, Any] = {
                "model": model.name,
                "tokens": name,
                "statistic": statistic,
                "w/o": float(old.mean()),
            }
            for series, values in look.activations.items():
                if series != "w/o":
                    found = paired_difference(values[there, kind, place], old)
                    row[f"{series} less w/o"] = str(found)
            rows.append(row | {"prompts": int(there.sum())})


def look_rows(model: Model, task: str, look: Look) -> list[dict[str, Any]]:
    """What each insert does to each head: how far its attention changes, and 1 − λ."""
    scores = {}
    for series in dict.fromkeys(series for series, _ in look.affine):
        for name, samples in (
            (f"attention changed, {series}", look.effects[series, "all", "change"]),
            (f"1 − λ, {series}", _filled(1 - look.affine[series, "lambda"])),
        ):
            known = samples[~np.isnan(samples).any(1)]  # too short a prompt has no profile
            if len(known):
                scores[name] = HeadScores(model.layout, known.mean(0), name, {}, known)
    return head_rows(model.name, task, scores)
