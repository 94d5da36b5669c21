"""The claims about Figure 2 of "Causal Head Gating", judged by intervals.

Two descriptions of the published figure contradict each other: by one, facilitation falls and the
others stay; by the other, facilitation is flat and the others fall. Each is a claim, and the run
decides: at most one can be supported. Margins are fixed here: "near zero" is within a quarter of
facilitation's fall. A peak is looked for on one half of the prompts and measured on the other, so
that looking for it does not make it. Where models have different numbers of heads, all are held
against each other at the largest count that all of them have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from zlib import crc32

import numpy as np
from jaxtyping import Float

from headcount.claims import Claim, Verdict, all_of, judge
from headcount.stats import Estimate, Interval, Resampling, bootstrap
from headcount.studies.head_roles.toggling import Toggled

NEAR = 0.25


@dataclass(frozen=True, eq=False)
class Panel:
    """One task and model, and what ablating heads there changes."""

    task: str
    model: str
    toggled: Toggled
    parameters: int = 0  # weights of the model

    @cached_property
    def prompts(self) -> Resampling:
        """Resamples of the prompts, other ones than in other panels."""
        return Resampling(self.toggled.clusters, seed=crc32(f"{self.task} {self.model}".encode()))

    def at(self, role: str, count: int) -> Estimate:
        """The mean change over seeds and prompts."""
        return self.sum(count, **{role: 1.0})

    def sum(self, count: int, **weights: float) -> Estimate:
        """A weighted sum of roles; a seed's roles are of one fit, so they are drawn together."""
        values: Float[np.ndarray, "seeds prompts"] = np.sum(
            [weight * self.toggled.changes[role, count] for role, weight in weights.items()], axis=0
        )
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
    shared = set.intersection(*(set(panel.toggled.counts) for panel in panels)) - {0}
    if not shared:
        return []
    first, last = min(shared), max(shared)
    claims = [
        _falls(panels, last),
        _near(panels, last),
        _rises(panels),
        _early(panels, first),
        *_descriptions(panels, last),
    ]
    tasks = {panel.task for panel in panels}
    if {"Math", "Syntax", "Common Sense"} <= tasks:
        claims.append(_math(panels, last))
    sizes = {panel.parameters for panel in panels}
    if len(sizes) > 1 and {"Syntax", "Common Sense"} & tasks:
        claims.append(_largest(panels, last))
    return claims


def _claim(text: str, published: str, found: Interval, verdicts: Sequence[Verdict]) -> Claim:
    return Claim(text, published, found.value, found.low, found.high, all_of(verdicts))


def _highest(found: Sequence[Interval]) -> Interval:
    return max(found, key=lambda one: one.value)


def _lowest(found: Sequence[Interval]) -> Interval:
    return min(found, key=lambda one: one.value)


def _heads(count: int) -> str:
    return "head" if count == 1 else f"{count} heads"


def _falls(panels: Sequence[Panel], count: int) -> Claim:
    found = [panel.at("facilitation", count).interval for panel in panels]
    return _claim(
        f"ablating the most facilitating {_heads(count)} lowers the log-probability in every panel "
        "(measured: where it falls least)",
        "facilitation falls in every panel",
        _highest(found),
        [judge(one, below=0) for one in found],
    )


def _near(panels: Sequence[Panel], count: int) -> Claim:
    excess = []
    for panel in panels:
        excess += [  # how far it falls beyond the quarter, and how far it rises beyond it
            panel.sum(count, facilitation=NEAR, irrelevance=sign).interval for sign in (-1.0, 1.0)
        ]
    return _claim(
        f"with the first {_heads(count)} irrelevance stays within a quarter of facilitation's fall "
        "in every panel (measured: by how much it leaves that, where it is farthest; negative is "
        "within)",
        "irrelevance stays near 0",
        _highest(excess),
        [judge(one, below=0) for one in excess],
    )


def _rises(panels: Sequence[Panel]) -> Claim:
    peaks = [panel.peak("interference") for panel in panels]
    several = len({panel.model for panel in panels}) > 1
    named = "; ".join(
        f"{panel.task}{f' of {panel.model}' * several} {peak}"
        for panel, peak in zip(panels, peaks, strict=True)
    )
    return _claim(
        "ablating the most interfering heads raises the log-probability in every panel, at its "
        f"peak (measured: the lowest peak; {named})",
        "interference rises at first; peaks on Common Sense +0.5 to +1.5",
        _lowest(peaks),
        [judge(peak, above=0) for peak in peaks],
    )


def _early(panels: Sequence[Panel], count: int) -> Claim:
    found = []
    for panel in panels:
        found.append(panel.sum(count, interference=1.0, facilitation=-NEAR).interval)
    return _claim(
        f"interference does not fall early: with the first {_heads(count)} by less than a quarter "
        "of what facilitation falls there, in every panel (measured: the smallest room above that)",
        "interference rarely falls early",
        _lowest(found),
        [judge(one, above=0) for one in found],
    )


def _descriptions(panels: Sequence[Panel], count: int) -> list[Claim]:
    """One claim for each of two descriptions of the same figure."""
    gaps = [
        panel.sum(count, **{"facilitation": 1.0, role: -1.0}).interval
        for panel in panels
        for role in ("irrelevance", "interference")
    ]
    return [
        _claim(
            f"the first of two contradicting descriptions holds: with the first {_heads(count)} "
            "facilitation lies below irrelevance and interference in every panel (measured: the "
            "smallest gap)",
            "facilitation falls, the others stay or rise (the paper)",
            _highest(gaps),
            [judge(gap, below=0) for gap in gaps],
        ),
        _claim(
            f"the second description holds: with the first {_heads(count)} facilitation lies above "
            "irrelevance and interference in every panel (measured: the smallest gap)",
            "facilitation is flat, the others fall (contradicts the paper)",
            _lowest(gaps),
            [judge(gap, above=0) for gap in gaps],
        ),
    ]


def _math(panels: Sequence[Panel], count: int) -> Claim:
    gaps = []
    for model in dict.fromkeys(panel.model for panel in panels):
        by_task = {p.task: p.at("facilitation", count) for p in panels if p.model == model}
        gaps += [
            (by_task["Math"] - by_task[other]).interval for other in ("Syntax", "Common Sense")
        ]
    return _claim(
        f"Math is the most sensitive: with the first {_heads(count)} facilitation lies below that "
        "of both other tasks (measured: the smallest gap; targets are whole solutions and log-"
        "probabilities are summed)",
        "Math is by far the most sensitive",
        _highest(gaps),
        [judge(gap, below=0) for gap in gaps],
    )


def _largest(panels: Sequence[Panel], count: int) -> Claim:
    most = max(panel.parameters for panel in panels)
    gaps = []
    for task in ("Syntax", "Common Sense"):
        falls = [(p.parameters, p.at("facilitation", count)) for p in panels if p.task == task]
        large = [fall for size, fall in falls if size == most]
        gaps += [(one - fall).interval for one in large for size, fall in falls if size < most]
    return _claim(
        f"the largest model falls least on Syntax and Common Sense with the first {_heads(count)} "
        "(measured: the smallest lead over a smaller model)",
        "the largest model falls least on Syntax and Common Sense",
        _lowest(gaps),
        [judge(gap, above=0) for gap in gaps],
    )
