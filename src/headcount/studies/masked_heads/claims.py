"""The five claims of Figure 3 of "Cognitive Mirrors", judged by intervals.

Margins are fixed here, before anything is measured: TopK is "below" RandomK by more than 0.05;
RandomK is "flat" if it loses less than a quarter of what TopK loses; a collapse is the loss of half
of what can be lost. Where two metrics are compared, each is scaled from its floor (answers to other
questions) to its value without masking.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headcount.claims import Claim, all_of, judge
from headcount.curves import Curve
from headcount.stats import Estimate, Resampling, mean_of

MARGIN = 0.05
FLAT = 0.25
ONSET = (32 / 1024, 64 / 1024)  # the published collapse, as shares of all heads
RECALL = "Knowledge Recall"


@dataclass(frozen=True, eq=False)
class Panel:
    """One function: its curves by both metrics over the same items, and their floors."""

    name: str
    accuracy: Curve
    similarity: Curve
    floors: tuple[float, float]

    @cached_property
    def items(self) -> Resampling:
        """Resamples of the items, other ones than in other panels."""
        return Resampling(self.accuracy.clusters, seed=sum(self.name.encode()))


def _at(panel: Panel, curve: Curve, series: str, count: int) -> Estimate:
    values = curve.raw[series, count]
    clusters = len(np.unique(curve.clusters))
    return Estimate(float(values.mean()), panel.items.means(values), clusters)


def _scaled(panel: Panel, curve: Curve, series: str, count: int) -> Estimate:
    floor = panel.floors[0] if curve is panel.accuracy else panel.floors[1]
    return _at(panel, curve, series, count).scaled(floor, _at(panel, curve, "top", 0))


def judge_claims(panels: Sequence[Panel], counts: Sequence[int], total: int) -> list[Claim]:
    """All claims that these panels and counts allow to judge."""
    masked = [count for count in counts if count]
    random = [c for c in masked if all(("random", c) in p.accuracy.raw for p in panels)]
    if not masked or not random:
        return []
    claims = [_faster(panels, random), _accuracy_first(panels, masked), _flat(panels, random[-1])]
    near = [[c for c in masked if 2 / 3 <= c / (share * total) <= 3 / 2] for share in ONSET]
    if near[0] and near[1] and near[0][0] < near[1][-1]:
        claims.append(_onset(panels, (near[0][0], near[1][-1]), total))
    if len(panels) > 1 and any(panel.name == RECALL for panel in panels):
        claims.append(_recall_first(panels, masked[0]))
    return claims


def _faster(panels: Sequence[Panel], counts: Sequence[int]) -> Claim:
    gaps = [
        mean_of(
            [_at(p, curve, "top", count) - _at(p, curve, "random", count) for count in counts]
        ).interval
        for p in panels
        for curve in (p.accuracy, p.similarity)
    ]
    return Claim.of(
        f"TopK lies more than {MARGIN:g} below RandomK in every panel and by both metrics, on the "
        "mean over counts (measured: the smallest of these gaps)",
        "TopK falls much faster than RandomK on every task and both metrics",
        max(gaps, key=lambda gap: gap.value),
        all_of([judge(gap, below=-MARGIN) for gap in gaps]),
    )


def _accuracy_first(panels: Sequence[Panel], counts: Sequence[int]) -> Claim:
    gap = mean_of(
        [
            _scaled(p, p.accuracy, "top", count) - _scaled(p, p.similarity, "top", count)
            for p in panels
            for count in counts
        ]
    ).interval
    return Claim.of(
        f"under TopK, accuracy falls faster than {panels[0].similarity.metric.name}, each scaled "
        "from its floor to its unmasked value (measured: the mean difference over panels and "
        "counts)",
        "under TopK, accuracy falls faster than COMET",
        gap,
        judge(gap, below=0),
    )


def _flat(panels: Sequence[Panel], count: int) -> Claim:
    excess = []
    for p in panels:
        whole = _at(p, p.accuracy, "top", 0)
        lost, lost_by_top = (whole - _at(p, p.accuracy, s, count) for s in ("random", "top"))
        excess.append((lost - lost_by_top * FLAT).interval)
    return Claim.of(
        f"RandomK is flat: with {count} heads it loses less than a quarter of the accuracy that "
        "TopK loses, in every panel (measured: the largest loss of RandomK − 0.25 · loss of TopK)",
        "RandomK stays nearly flat",
        max(excess, key=lambda one: one.value),
        all_of([judge(one, below=0) for one in excess]),
    )


def _onset(panels: Sequence[Panel], counts: tuple[int, int], total: int) -> Claim:
    before, after = (
        mean_of([_scaled(p, p.accuracy, "top", count) for p in panels]).interval for count in counts
    )
    shares = [100 * count / total for count in counts]
    return Claim.of(
        f"the collapse sets in between {counts[0]} and {counts[1]} of {total} heads "
        f"({shares[0]:.1f} and {shares[1]:.1f} %): more than half of TopK accuracy is left at the "
        f"first (measured), less than half at the second ({after})",
        "the collapse sets in between 32 and 64 of 1,024 heads (3.1 and 6.3 %)",
        before,
        all_of([judge(before, above=0.5), judge(after, below=0.5)]),
    )


def _recall_first(panels: Sequence[Panel], count: int) -> Claim:
    (recall,) = (p for p in panels if p.name == RECALL)
    left = _scaled(recall, recall.accuracy, "top", count)
    gaps = [
        (left - _scaled(p, p.accuracy, "top", count)).interval for p in panels if p is not recall
    ]
    return Claim.of(
        f"{RECALL} falls first: with {count} heads masked it keeps the smallest share of its "
        "accuracy (measured: its share minus the next smallest)",
        "Knowledge Recall falls first",
        max(gaps, key=lambda gap: gap.value),
        all_of([judge(gap, below=0) for gap in gaps]),
    )
