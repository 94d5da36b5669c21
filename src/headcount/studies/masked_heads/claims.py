"""The five claims of Figure 3 of "Cognitive Mirrors", judged by intervals.

Margins are fixed here, before anything is measured: TopK is "below" RandomK by more than 0.05;
RandomK is "flat" if its loss is less than a quarter of TopK's loss; a collapse is the loss of half
of the scaled accuracy. A scaled metric is (value − floor) / (unmasked − floor): 1 without masking,
0 at the floor, which is the metric of answers that were given to other questions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from headcount.claims import Claim, above_chance, all_of, judge
from headcount.curves import Curve
from headcount.errors import counted
from headcount.stats import Estimate, Resampling, mean_of

MARGIN = 0.05
FLAT = 0.25
ONSET = (32 / 1024, 64 / 1024)  # the published start of the collapse, as shares of all heads
RECALL = "Knowledge Recall"


@dataclass(frozen=True, eq=False)
class FunctionPanel:
    """One cognitive function: its curves over the same items, and the floors of both metrics.

    `by_ranking` holds the accuracy curve of each ranking; the first makes the figure and claims.
    """

    name: str
    by_ranking: Mapping[str, Curve]
    similarity: Curve
    floors: tuple[float, float]

    @property
    def accuracy(self) -> Curve:
        """The accuracy curve of the first ranking."""
        return next(iter(self.by_ranking.values()))

    @property
    def at_chance(self) -> str:
        """One sentence if the whole model is not clearly better than chance, else an empty text."""
        return self.accuracy.at_chance

    @property
    def curves(self) -> list[tuple[str, Curve]]:
        """All curves with their rankings: both metrics of the first, accuracy of the others.

        If both metrics are the same, the second curve is left out.
        """
        first, *others = self.by_ranking.items()
        same = self.similarity.metric.key == first[1].metric.key
        return [first, *([] if same else [(first[0], self.similarity)]), *others]

    @cached_property
    def items(self) -> Resampling:
        """Resamples of the items; each panel has a seed of its own."""
        return Resampling(self.accuracy.clusters, seed=sum(self.name.encode()))

    def at(self, curve: Curve, series: str, count: int) -> Estimate:
        """The mean of one of the two curves at a count."""
        return self.items.estimate(curve.raw[series, count])

    def scaled(self, curve: Curve, count: int) -> Estimate:
        """TopK at a count, scaled so that the floor is 0 and the unmasked value is 1."""
        floor = self.floors[0 if curve is self.accuracy else 1]
        return self.at(curve, "top", count).scaled(floor, self.at(curve, "top", 0))


def judge_claims(panels: Sequence[FunctionPanel], counts: Sequence[int], total: int) -> list[Claim]:
    """All claims that can be judged from these panels and counts.

    Panels whose whole model is at chance are left out of claims, or make them not comparable.
    """
    masked = [count for count in counts if count]
    random = [c for c in masked if all(("random", c) in p.accuracy.raw for p in panels)]
    if not masked or not random:
        return []
    claims = above_chance(
        panels,
        lambda p: [_faster(p, random), _accuracy_first(p, masked), _flat(p, random[-1])],
    )
    near = [[c for c in masked if 2 / 3 <= c / (share * total) <= 3 / 2] for share in ONSET]
    if near[0] and near[1] and near[0][0] < near[1][-1]:
        between = near[0][0], near[1][-1]
        claims += above_chance(panels, lambda p: [_onset(p, between, total)])
    recall = [panel for panel in panels if panel.name == RECALL]
    if recall and len(panels) > 1:
        others = [panel for panel in panels if panel not in recall]
        # Without Knowledge Recall, or without any other panel, there is nothing to compare.
        needed = recall if any(not panel.at_chance for panel in others) else panels
        claims += above_chance(panels, lambda p: [_recall_first(p, masked[0])], needed=needed)
    return claims


def _faster(panels: Sequence[FunctionPanel], counts: Sequence[int]) -> Claim:
    gaps = [
        mean_of([p.at(curve, "top", count) - p.at(curve, "random", count) for count in counts])
        for p in panels
        for curve in (p.accuracy, p.similarity)
    ]
    return Claim.of_all(
        f"TopK lies more than {MARGIN:g} below RandomK in every panel and by both metrics, on the "
        "mean over counts (measured: max over panels and metrics of mean over counts of TopK − "
        "RandomK)",
        "TopK falls much faster than RandomK on every task and both metrics",
        [gap.interval for gap in gaps],
        below=-MARGIN,
    )


def _accuracy_first(panels: Sequence[FunctionPanel], counts: Sequence[int]) -> Claim:
    gaps = [p.scaled(p.accuracy, c) - p.scaled(p.similarity, c) for p in panels for c in counts]
    return Claim.of_all(
        f"under TopK, accuracy falls faster than {panels[0].similarity.metric.name} (measured: "
        "mean over panels and counts of scaled accuracy − scaled similarity, where scaled means "
        "(value − floor) / (unmasked − floor))",
        "under TopK, accuracy falls faster than COMET",
        [mean_of(gaps).interval],
        below=0,
    )


def _flat(panels: Sequence[FunctionPanel], count: int) -> Claim:
    excess = []
    for p in panels:
        whole = p.at(p.accuracy, "top", 0)
        loss_random, loss_top = (whole - p.at(p.accuracy, s, count) for s in ("random", "top"))
        excess.append((loss_random - loss_top * FLAT).interval)
    return Claim.of_all(
        f"RandomK is flat: with {counted(count, 'head')} masked, its loss of accuracy is less than "
        "a quarter of TopK's in every panel (measured: max over panels of loss_random − "
        f"{FLAT:g} · loss_top)",
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
        f"({shares[0]:.1f} and {shares[1]:.1f} %): the mean over panels of scaled TopK accuracy is "
        f"above 0.5 at {counts[0]} (measured), and below 0.5 at {counts[1]} ({after})",
        "the collapse sets in between 32 and 64 of 1,024 heads (3.1 and 6.3 %)",
        before,
        all_of([judge(before, above=0.5), judge(after, below=0.5)]),
    )


def _recall_first(panels: Sequence[FunctionPanel], count: int) -> Claim:
    (recall,) = (p for p in panels if p.name == RECALL)
    left = recall.scaled(recall.accuracy, count)
    gaps = [left - p.scaled(p.accuracy, count) for p in panels if p is not recall]
    return Claim.of_all(
        f"{RECALL} falls first: with {counted(count, 'head')} masked, its scaled accuracy is the "
        "lowest (measured: max over the other panels of scaled accuracy of Knowledge Recall − that "
        "of the panel)",
        "Knowledge Recall falls first",
        [gap.interval for gap in gaps],
        below=0,
    )
