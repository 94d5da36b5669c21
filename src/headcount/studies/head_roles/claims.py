"""The claims about Figure 2 of "Causal Head Gating", judged by intervals.

Δ_role(k) is the change of the log-probability when the first k heads of a role are ablated.

Two descriptions of the published figure contradict each other: in one, facilitation falls and the
other roles stay; in the other, facilitation is flat and the other roles fall. Each is a claim, and
at most one of them can be supported. Margins are fixed here, before anything is measured: "near
zero" means within a quarter of facilitation's fall. The count of a peak is chosen on one half of
the prompts and the peak is measured on the other half, because a maximum over counts is positive by
chance alone. Models with different numbers of heads are compared at the largest count that all of
them have.
"""

from __future__ import annotations

from collections.abc import Sequence

from headcount.claims import Claim, above_chance
from headcount.studies.head_roles.toggling import RoleCurves

NEAR = 0.25


def judge_claims(panels: Sequence[RoleCurves]) -> list[Claim]:
    """All claims that can be judged from these panels.

    Panels whose whole model is at chance are left out of claims, or make them not comparable.
    """
    shared = set.intersection(*(set(panel.counts) for panel in panels)) - {0}
    if not shared:
        return []
    last = max(shared)
    claims = above_chance(
        panels,
        lambda p: [*_falling(p, last), *_interfering(p, min(shared)), *_descriptions(p, last)],
    )
    tasks = {panel.task for panel in panels}
    if {"Math", "Syntax", "Common Sense"} <= tasks:
        claims += above_chance(panels, lambda p: [_math(p, last)], needed=panels)
    sizes = {panel.parameters for panel in panels}
    if len(sizes) > 1 and {"Syntax", "Common Sense"} & tasks:
        claims += above_chance(panels, lambda p: [_largest(p, last)], needed=panels)
    return claims


def _with(count: int) -> str:
    return f"with the first {'head' if count == 1 else f'{count} heads'} ablated"


def _falling(panels: Sequence[RoleCurves], count: int) -> list[Claim]:
    """Facilitation falls, and irrelevance does not."""
    beyond = [  # how far irrelevance leaves the margin on either side; negative values are inside
        panel.sum(count, facilitation=NEAR, irrelevance=sign).interval
        for panel in panels
        for sign in (-1.0, 1.0)
    ]
    return [
        Claim.of_all(
            f"facilitation falls: {_with(count)}, the log-probability is lower in every panel "
            f"(measured: max over panels of Δ_facilitation({count}))",
            "facilitation falls in every panel",
            [panel.sum(count, facilitation=1.0).interval for panel in panels],
            below=0,
        ),
        Claim.of_all(
            f"irrelevance stays near 0: {_with(count)}, it changes by less than a quarter of "
            "facilitation's fall in every panel (measured: max over panels of "
            f"|Δ_irrelevance({count})| + {NEAR:g} · Δ_facilitation({count}))",
            "irrelevance stays near 0",
            beyond,
            below=0,
        ),
    ]


def _interfering(panels: Sequence[RoleCurves], count: int) -> list[Claim]:
    """Interference rises to a peak, and does not fall before it."""
    peaks = [panel.peak("interference") for panel in panels]
    several_models = len({panel.model for panel in panels}) > 1
    named = "; ".join(
        f"{panel.task}{f' of {panel.model}' * several_models} {peak}"
        for panel, peak in zip(panels, peaks, strict=True)
    )
    return [
        Claim.of_all(
            "interference rises at first: ablating the most interfering heads raises the "
            "log-probability in every panel (measured: min over panels of the peak of "
            f"Δ_interference; {named})",
            "interference rises at first; peaks on Common Sense +0.5 to +1.5",
            peaks,
            above=0,
        ),
        Claim.of_all(
            f"interference does not fall early: {_with(count)}, it falls by less than a quarter of "
            "facilitation's fall in every panel (measured: min over panels of "
            f"Δ_interference({count}) − {NEAR:g} · Δ_facilitation({count}))",
            "interference rarely falls early",
            [panel.sum(count, interference=1.0, facilitation=-NEAR).interval for panel in panels],
            above=0,
        ),
    ]


def _descriptions(panels: Sequence[RoleCurves], count: int) -> list[Claim]:
    """One claim for each of the two descriptions of the published figure."""
    gaps = [
        panel.sum(count, **{"facilitation": 1.0, role: -1.0}).interval
        for panel in panels
        for role in ("irrelevance", "interference")
    ]
    return [
        Claim.of_all(
            f"the first of two contradicting descriptions holds: {_with(count)}, facilitation lies "
            "below irrelevance and interference in every panel (measured: max over panels and both "
            f"roles of Δ_facilitation({count}) − Δ_role({count}))",
            "facilitation falls, the others stay or rise (the paper)",
            gaps,
            below=0,
        ),
        Claim.of_all(
            f"the second description holds: {_with(count)}, facilitation lies above irrelevance "
            "and interference in every panel (measured: min over panels and both roles of "
            f"Δ_facilitation({count}) − Δ_role({count}))",
            "facilitation is flat, the others fall (contradicts the paper)",
            gaps,
            above=0,
        ),
    ]


def _math(panels: Sequence[RoleCurves], count: int) -> Claim:
    gaps = []
    for model in dict.fromkeys(panel.model for panel in panels):
        by_task = {p.task: p.sum(count, facilitation=1.0) for p in panels if p.model == model}
        gaps += [
            (by_task["Math"] - by_task[other]).interval for other in ("Syntax", "Common Sense")
        ]
    return Claim.of_all(
        f"Math is the most sensitive task: {_with(count)}, facilitation falls further on Math than "
        "on both other tasks (measured: max over models and other tasks of Δ_facilitation on Math "
        "− Δ_facilitation on the other; log-probabilities are summed over the target, and the "
        "targets of Math are whole solutions, the longest of the three)",
        "Math is by far the most sensitive",
        gaps,
        below=0,
    )


def _largest(panels: Sequence[RoleCurves], count: int) -> Claim:
    most = max(panel.parameters for panel in panels)
    gaps = []
    for task in ("Syntax", "Common Sense"):
        falls = [(p.parameters, p.sum(count, facilitation=1.0)) for p in panels if p.task == task]
        large = [fall for size, fall in falls if size == most]
        small = [fall for size, fall in falls if size < most]
        gaps += [(fall - other).interval for fall in large for other in small]
    return Claim.of_all(
        f"the largest model falls least on Syntax and Common Sense {_with(count)} (measured: min "
        "over these tasks and the smaller models of Δ_facilitation of the largest − that of the "
        "smaller)",
        "the largest model falls least on Syntax and Common Sense",
        gaps,
        above=0,
    )
