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

from headcount.claims import Claim
from headcount.studies.head_roles.toggling import RoleCurves

NEAR = 0.25


def judge_claims(panels: Sequence[RoleCurves]) -> list[Claim]:
    """All claims that these panels allow to judge."""
    shared = set.intersection(*(set(panel.counts) for panel in panels)) - {0}
    if not shared:
        return []
    last = max(shared)
    claims = [
        *_falling(panels, last),
        *_interfering(panels, min(shared)),
        *_descriptions(panels, last),
    ]
    tasks = {panel.task for panel in panels}
    if {"Math", "Syntax", "Common Sense"} <= tasks:
        claims.append(_math(panels, last))
    sizes = {panel.parameters for panel in panels}
    if len(sizes) > 1 and {"Syntax", "Common Sense"} & tasks:
        claims.append(_largest(panels, last))
    return claims


def _heads(count: int) -> str:
    return "head" if count == 1 else f"{count} heads"


def _falling(panels: Sequence[RoleCurves], count: int) -> list[Claim]:
    """Facilitation falls, and irrelevance does not."""
    beyond = [  # the quarter: how far irrelevance falls below it, and how far it rises above it
        panel.sum(count, facilitation=NEAR, irrelevance=sign).interval
        for panel in panels
        for sign in (-1.0, 1.0)
    ]
    return [
        Claim.of_all(
            f"ablating the most facilitating {_heads(count)} lowers the log-probability in every "
            "panel (measured: where it falls least)",
            "facilitation falls in every panel",
            [panel.sum(count, facilitation=1.0).interval for panel in panels],
            below=0,
        ),
        Claim.of_all(
            f"with the first {_heads(count)} irrelevance stays within a quarter of facilitation's "
            "fall in every panel (measured: by how much it leaves that, where it is farthest; "
            "negative is within)",
            "irrelevance stays near 0",
            beyond,
            below=0,
        ),
    ]


def _interfering(panels: Sequence[RoleCurves], count: int) -> list[Claim]:
    """Interference rises to a peak, and does not fall before."""
    peaks = [panel.peak("interference") for panel in panels]
    several = len({panel.model for panel in panels}) > 1
    named = "; ".join(
        f"{panel.task}{f' of {panel.model}' * several} {peak}"
        for panel, peak in zip(panels, peaks, strict=True)
    )
    return [
        Claim.of_all(
            "ablating the most interfering heads raises the log-probability in every panel, at its "
            f"peak (measured: the lowest peak; {named})",
            "interference rises at first; peaks on Common Sense +0.5 to +1.5",
            peaks,
            above=0,
        ),
        Claim.of_all(
            f"interference does not fall early: with the first {_heads(count)} by less than a "
            "quarter of what facilitation falls there, in every panel (measured: the smallest room "
            "above that)",
            "interference rarely falls early",
            [panel.sum(count, interference=1.0, facilitation=-NEAR).interval for panel in panels],
            above=0,
        ),
    ]


def _descriptions(panels: Sequence[RoleCurves], count: int) -> list[Claim]:
    """One claim for each of two descriptions of the same figure."""
    gaps = [
        panel.sum(count, **{"facilitation": 1.0, role: -1.0}).interval
        for panel in panels
        for role in ("irrelevance", "interference")
    ]
    return [
        Claim.of_all(
            f"the first of two contradicting descriptions holds: with the first {_heads(count)} "
            "facilitation lies below irrelevance and interference in every panel (measured: the "
            "smallest gap)",
            "facilitation falls, the others stay or rise (the paper)",
            gaps,
            below=0,
        ),
        Claim.of_all(
            f"the second description holds: with the first {_heads(count)} facilitation lies above "
            "irrelevance and interference in every panel (measured: the smallest gap)",
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
        f"Math is the most sensitive: with the first {_heads(count)} facilitation lies below that "
        "of both other tasks (measured: the smallest gap; targets are whole solutions and log-"
        "probabilities are summed)",
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
        gaps += [(one - fall).interval for one in large for size, fall in falls if size < most]
    return Claim.of_all(
        f"the largest model falls least on Syntax and Common Sense with the first {_heads(count)} "
        "(measured: the smallest lead over a smaller model)",
        "the largest model falls least on Syntax and Common Sense",
        gaps,
        above=0,
    )
