"""A look inside one model, the head that is drawn and judged, and tables of what was seen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from headcount.heads import Head, HeadLayout, HeadScores
from headcount.report.head_rows import head_rows
from headcount.stats import bootstrap, paired_difference
from headcount.studies.token_insertion.activations import STATISTICS
from headcount.studies.token_insertion.affine import AFFINE
from headcount.studies.token_insertion.look import Look
from headcount.tasks.maths.token_classes import CLASSES

PUBLISHED_HEAD = 14


@dataclass(frozen=True, eq=False)
class Inside:
    """What was seen in one model; `head` is the number of the head that is drawn and judged.

    `chosen` where that head was taken for changing most on these same prompts.
    """

    model: str
    layout: HeadLayout
    look: Look
    layer: int
    head: int
    chosen: bool

    @classmethod
    def of(cls, model: str, layout: HeadLayout, look: Look, layer: int, head: int) -> Inside:
        """With the head of this number in the layer; -1 takes 14 or the one that changes most."""
        first, count = layout.starts[layer], layout.counts[layer]
        chosen = head < 0 and count <= PUBLISHED_HEAD
        if chosen:
            head = _most_changed(look, slice(first, first + count))
        elif head < 0:
            head = PUBLISHED_HEAD
        return cls(model, layout, look, layer, first + head, chosen)

    @property
    def drawn(self) -> Head:
        """The head that is drawn and judged."""
        return self.layout.head(self.head)

    @property
    def layer_heads(self) -> list[int]:
        """The numbers of the layer's heads."""
        return [int(n) for n in np.flatnonzero(self.layout.layers == self.layer)]

    @property
    def other_heads(self) -> list[int]:
        """The numbers of the heads of all other layers."""
        return [int(n) for n in np.flatnonzero(self.layout.layers != self.layer)]


def _most_changed(look: Look, heads: slice) -> int:
    """The place in a layer of the head whose attention the inserts change most."""
    changes = [look.effects[series, "all", "change"] for series in look.series]
    if not changes:
        return 0
    return int(np.nan_to_num(np.mean(changes, axis=(0, 1))[heads]).argmax())


def affine_rows(inside: Inside) -> list[dict[str, Any]]:
    """λ, the size of the added direction, R², spread and height of the peaks: mean over heads."""
    rows, look = [], inside.look
    for series in look.series:
        for layer in range(len(inside.layout.counts)):
            heads = np.flatnonzero(inside.layout.layers == layer)
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
                    "model": inside.model,
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
    return rows


def _known(values: Float[np.ndarray, "prompts"]) -> float | None:
    """Their mean without those that are unknown; None where all are."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def activation_rows(inside: Inside) -> list[dict[str, Any]]:
    """Each statistic by kind of token, without an insert and how each insert changes it."""
    if not inside.look.activations:
        return []
    rows = []
    inserted = dict(inside.look.activations)
    before = inserted.pop("w/o")
    for kind, name in enumerate(CLASSES):
        there = ~np.isnan(before[:, kind, 0])
        if there.sum() < 2:
            continue
        for place, statistic in enumerate(STATISTICS):
            old = before[there, kind, place]
            changes = {
                f"{series} less w/o": str(paired_difference(values[there, kind, place], old))
                for series, values in inserted.items()
            }
            facts = {"model": inside.model, "tokens": name, "statistic": statistic}
            counts = {"prompts": int(there.sum())}
            rows.append({**facts, "w/o": float(old.mean()), **changes, **counts})
    return rows


def change_rows(inside: Inside, task: str) -> list[dict[str, Any]]:
    """What each insert does to each head: how far its attention changes, and 1 − λ."""
    scores = {}
    look = inside.look
    for series in look.series:
        for name, samples in (
            (f"attention changed, {series}", look.effects[series, "all", "change"]),
            (f"1 − λ, {series}", filled(1 - look.affine[series, "lambda"])),
        ):
            known = samples[~np.isnan(samples).any(1)]  # too short a prompt has no profile
            if len(known):
                scores[name] = HeadScores(inside.layout, known.mean(0), name, {}, known)
    return head_rows(inside.model, task, scores)


def filled(values: Float[np.ndarray, "prompts heads"]) -> Float[np.ndarray, "prompts heads"]:
    """NaN, of a head that is silent on a prompt, becomes its mean over prompts; 0 if on all."""
    means = [_known(column) or 0.0 for column in values.T]
    return np.where(np.isnan(values), means, values)
