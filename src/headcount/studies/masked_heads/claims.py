"""The five claims of Figure 3 of "Cognitive Mirrors", judged by intervals.

Margins are fixed here, before anything is measured: TopK is "below" RandomK by more than 0.05;
RandomK is "flat" if it loses less than a quarter of what TopK loses; a collapse is the loss of half
of what can be lost. Where two metrics are compared, each is scaled from its floor (answers to other
questions) to its value without masking.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headcount.claims import Claim, all_of, judge
from headcount.curves import Curve
from headcount.stats import Estimate, Resampling, mean_of

MARGIN = 0.05
FLAT = 0.25
ONSET = (32 / 1024, 64 / 1024)  # the published collapse, as shares of all heads
RECALL = "Knowledge Recall"


@dataclass(frozen=True, eq=False)
class FunctionPanel:
    """One function: its curves over the same items, and the floors of both metrics.

    `by_ranking` has the curves of accuracy; the first ranking makes the figure and the claims.
    """

    name: str
    by_ranking: Mapping[str, Curve]
    similarity: Curve
    floors: tuple[float, float]

    @property
    def accuracy(self) -> Curve:
        """The accuracy by the first ranking."""
        return next(iter(self.by_ranking.values()))

    @property
    def curves(self) -> list[tuple[str, Curve]]:
        """All curves with their rankings: both of the first one, then those of the others.

        A second metric that is the first one again is left out.
        """
        first, *others = self.by_ranking.items()
        twice = self.similarity.metric.key == first[1].metric.key
        return [first, *([] if twice else [(first[0], self.similarity)]), *others]

    @cached_property
    def items(self) -> Resampling:
        """Resamples of the items, other ones than in other panels."""
        return Resampling(self.accuracy.clusters, seed=sum(self.name.encode()))

    def at(self, curve: Curve, series: str, count: int) -> Estimate:
        """A point of one of both curves."""
        return self.items.estimate(curve.raw[series, count])

    def scaled(self, curve: Curve, count: int) -> Estimate:
        """The same of TopK, from its floor (0) to its value without masking (1)."""
        floor = self.floors[0 if curve is self.accuracy else 1]
        return self.at(curve, "top", count).scaled(floor, self.at(curve, "top", 0))


def judge_claims(panels: Sequence[FunctionPanel], counts: Sequence[int], total: int) -> list[Claim]:
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


def _faster(panels: Sequence[FunctionPanel], counts: Sequence[int]) -> Claim:
    gaps = [
        mean_of([p.at(curve, "top", count) - p.at(curve, "random", count) for count in counts])
        for p in panels
        for curve in (p.accuracy, p.similarity)
    ]
    return Claim.of_all(
        f"TopK lies more than {MARGIN:g} below RandomK in every panel and by both metrics, on the "
        "mean over counts (measured: the smallest of these gaps)",
        "TopK falls much faster than RandomK on every task and both metrics",
        [gap.interval for gap in gaps],
        below=-MARGIN,
    )


def _accuracy_first(panels: Sequence[FunctionPanel], counts: Sequence[int]) -> Claim:
    gaps = [p.scaled(p.accuracy, c) - p.scaled(p.similarity, c) for p in panels for c in counts]
    return Claim.of_all(
        f"under TopK, accuracy falls faster than {panels[0].similarity.metric.name}, each scaled "
        "from its floor to its unmasked value (measured: the mean difference over panels and "
        "counts)",
        "under TopK, accuracy falls faster than COMET",
        [mean_of(gaps).interval],
        below=0,
    )


def _flat(panels: Sequence[FunctionPanel], count: int) -> Claim:
    excess = []
    for p in panels:
        whole = p.at(p.accuracy, "top", 0)
        lost, lost_by_top = (whole - p.at(p.accuracy, s, count) for s in ("random", "top"))
        excess.append((lost - lost_by_top * FLAT).interval)
    return Claim.of_all(
        f"RandomK is flat: with {count} heads it loses less than a quarter of the accuracy that "
        "TopK loses, in every panel (measured: the largest loss of RandomK − 0.25 · loss of TopK)",
        "RandomK stays nearly flat",
        excess,
        below=0,
    )


def _onset(panels: Sequence[FunctionPanel], counts: tuple[int, int], total: int) -> Claim:
    before, after = (
        mean_of([p.scaled(p.accuracy, count) for p in panels]).interval for count in counts
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


def _recall_first(panels: Sequence[FunctionPanel], count: int) -> Claim:
    (recall,) = (p for p in panels if p.name == RECALL)
    left = recall.scaled(recall.accuracy, count)
    gaps = [left - p.scaled(p.accuracy, count) for p in panels if p is not recall]
    return Claim.of_all(
        f"{RECALL} falls first: with {count} heads masked it keeps the smallest share of its "
        "accuracy (measured: its share minus the next smallest)",
        "Knowledge Recall falls first",
        [gap.interval for gap in gaps],
        below=0,
    )
