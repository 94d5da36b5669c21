"""The claims about Figure 2 of "Causal Head Gating", judged by intervals.

Two descriptions of the published figure contradict each other: by one, facilitation falls and the
others stay; by the other, facilitation is flat and the others fall. The run decides. Margins are
fixed here: "near zero" is within a quarter of facilitation's fall. A peak is looked for on one half
of the prompts and measured on the other, so that looking for it does not make it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from headcount.results import Claim
from headcount.stats import Interval, Resampling, bootstrap, judge
from headcount.studies.estimate import Estimate
from headcount.studies.study import all_of
from headcount.studies.toggling import Toggled

NEAR = 0.25


@dataclass(frozen=True, eq=False)
class Panel:
    """One task and model, and what ablating heads there changes."""

    task: str
    model: str
    toggled: Toggled

    @cached_property
    def prompts(self) -> Resampling:
        """Resamples of the prompts, other ones than in other panels."""
        return Resampling(self.toggled.clusters, seed=sum(f"{self.task}{self.model}".encode()))

    def at(self, role: str, count: int) -> Estimate:
        """The mean change over seeds and prompts."""
        values = self.toggled.changes[role, count]
        clusters = len(np.unique(self.toggled.clusters))
        return Estimate(float(values.mean()), self.prompts.means(values), clusters)

    def peak(self, role: str) -> Interval:
        """The highest change, at the count that is highest for every other cluster of prompts."""
        labels = np.unique(self.toggled.clusters, return_inverse=True)[1].reshape(-1)
        first, second = labels % 2 == 0, labels % 2 == 1
        counts = [count for count in self.toggled.counts if count]
        if not second.any() or not counts:
            return Interval(np.nan, np.nan, np.nan, 1)
        best = max(counts, key=lambda c: self.toggled.changes[role, c][:, first].mean())
        values = self.toggled.changes[role, best][:, second]
        return bootstrap(values, clusters=self.toggled.clusters[second])


def judge_claims(panels: Sequence[Panel]) -> list[Claim]:
    """All claims that these panels allow to judge."""
    masked = [count for count in panels[0].toggled.counts if count]
    if not masked:
        return []
    last = masked[-1]
    claims = [_falls(panels, last), _near(panels, last), _rises(panels), _which(panels, last)]
    if {"Math", "Syntax", "Common Sense"} <= {panel.task for panel in panels}:
        claims.append(_math(panels, last))
    return claims


def _claim(text: str, published: str, found: Interval, verdict: str) -> Claim:
    return Claim(text, published, found.value, found.low, found.high, verdict)


def _worst(found: Sequence[Interval]) -> Interval:
    return max(found, key=lambda one: one.value)


def _falls(panels: Sequence[Panel], count: int) -> Claim:
    found = [panel.at("facilitation", count).interval for panel in panels]
    return _claim(
        f"ablating the {count} most facilitating heads lowers the log-probability in every panel "
        "(measured: where it falls least)",
        "facilitation falls in every panel",
        _worst(found),
        all_of([judge(one, below=0) for one in found]),
    )


def _near(panels: Sequence[Panel], count: int) -> Claim:
    excess = []
    for panel in panels:
        irrelevant, fall = panel.at("irrelevance", count), panel.at("facilitation", count)
        below = (fall * NEAR - irrelevant).interval  # how far it falls beyond the quarter
        above = (irrelevant + fall * NEAR).interval  # how far it rises beyond the quarter
        excess.append(max(below, above, key=lambda one: one.value))
    return _claim(
        f"with {count} heads irrelevance stays within a quarter of facilitation's fall in every "
        "panel (measured: by how much it leaves that, where it is farthest; negative is within)",
        "irrelevance stays near 0",
        _worst(excess),
        all_of([judge(one, below=0) for one in excess]),
    )


def _rises(panels: Sequence[Panel]) -> Claim:
    peaks = [panel.peak("interference") for panel in panels]
    named = "; ".join(f"{p.task} {peak}" for p, peak in zip(panels, peaks, strict=True))
    return _claim(
        f"ablating the most interfering heads raises the log-probability, in every panel "
        f"(measured: the lowest peak; {named})",
        "interference rises at first; peaks on Common Sense +0.5 to +1.5",
        min(peaks, key=lambda one: one.value),
        all_of([judge(peak, above=0) for peak in peaks]),
    )


def _which(panels: Sequence[Panel], count: int) -> Claim:
    gaps = [
        (panel.at("facilitation", count) - panel.at(role, count)).interval
        for panel in panels
        for role in ("irrelevance", "interference")
    ]
    return _claim(
        f"of two contradicting descriptions the first holds: with {count} heads, facilitation "
        "lies below irrelevance and interference in every panel (measured: the smallest gap)",
        "facilitation falls (a second description: facilitation is flat, the others fall)",
        _worst(gaps),
        all_of([judge(gap, below=0) for gap in gaps]),
    )


def _math(panels: Sequence[Panel], count: int) -> Claim:
    gaps = []
    for model in dict.fromkeys(panel.model for panel in panels):
        by_task = {p.task: p.at("facilitation", count) for p in panels if p.model == model}
        gaps += [
            (by_task["Math"] - by_task[other]).interval for other in ("Syntax", "Common Sense")
        ]
    return _claim(
        f"Math is the most sensitive: with {count} heads facilitation lies below that of both "
        "other tasks (measured: the smallest gap; targets are whole solutions and log-"
        "probabilities are summed)",
        "Math is by far the most sensitive",
        _worst(gaps),
        all_of([judge(gap, below=0) for gap in gaps]),
    )
