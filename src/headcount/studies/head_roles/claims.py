"""The claims about Figure 2 of "Causal Head Gating", judged by intervals.

Δ_role(k) is the change of the log-probability when the first k heads of a role are ablated.

The published curves end at 50 of 512 to 1,024 heads, 4.9 to 9.8 % of them. Claims about their end
points are judged at the count that is nearest to 50 of 672 heads, as a share of all heads; what the
end of our own range says stands beside. Where no count is near the published shares, claims are not
comparable.

Two descriptions of the published figure contradict each other: in one, facilitation falls and the
other roles stay; in the other, facilitation is flat and the other roles fall. Each is a claim, and
at most one of them can be supported. Margins are fixed here, before anything is measured: to "stay"
or to be "flat" means to change by less than a quarter of what falls. Interference may rise further
than that, since the first description itself has peaks of interference that are as high as the fall
of facilitation is deep (+1.2 beside −1.0). To fall or to rise means by more than a tenth of what is
published at least: with enough prompts, any change differs from 0.

Ablating any heads lowers the log-probability. So the fall of facilitation is also held against that
of random orders, which know nothing of roles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from headcount.claims import Claim, above_chance, deciding
from headcount.errors import counted
from headcount.stats import Estimate, combine, constant
from headcount.studies.head_roles.panels import Reading, RolePanel, peaks_of
from headcount.studies.head_roles.published import COUNT, FIRST, HEADS, NEAR, SECOND, SHARES
from headcount.studies.head_roles.toggling import RANDOM

STAY = 0.25
FALLS = 0.1  # nats: a tenth of the smallest published fall of facilitation, 1.0
RISES = 0.05  # nats: a tenth of the smallest published peak of interference, 0.5
FAR = 2.0  # "by far" is at least twice; the published falls on Math are 40 to 60 times the others
LEAST = 0.1  # nats: a tenth of the smallest published gap between the largest model and another
LARGEST = "the largest model falls least on Syntax and Common Sense"
OTHERS = ("irrelevance", "interference")
Panels = Sequence[RolePanel]
At = Callable[[RolePanel], int]  # the count of each panel at which a claim is judged
MakeClaim = Callable[[Panels, At], Claim]


def judge_claims(panels: Panels) -> list[Claim]:
    """All claims that can be judged from these panels.

    Panels whose whole model is at chance are left out of claims, or make them not comparable.
    """
    panels = [panel for panel in panels if any(panel.counts)]
    if not panels:
        return []
    claims = [_at_published_share(panels, make) for make in (_falls, _irrelevance_stays)]
    claims += above_chance(panels, lambda p: [_interference_rises(p), _not_early(p)])
    claims += [_at_published_share(panels, make) for make in (_first, _second)]
    claims += above_chance(panels, lambda p: [_more_than_random(p)])
    compared = [panel for panel in panels if panel.model in _models_with_all_tasks(panels)]
    readings: tuple[Reading, ...] = ("sum", "token")
    for reading in readings:
        if compared:
            claims.append(_at_published_share(compared, _math(reading), needed=compared))
        else:
            said, published = _of_math(reading)
            why = "No model was run on all of Syntax, Common Sense and Math."
            claims.append(Claim.not_tested(said, published, why))
    languages = [panel for panel in panels if panel.task in ("Syntax", "Common Sense")]
    if _size_gaps(languages, lambda panel: panel.matched):
        claims.append(_at_published_share(languages, _largest, needed=languages))
    else:
        why = "Syntax or Common Sense were not run on models of different sizes."
        claims.append(Claim.not_tested(LARGEST, LARGEST, why))
    return claims


def _at_published_share(panels: Panels, make: MakeClaim, *, needed: Panels = ()) -> Claim:
    """A claim at the published share of the heads, with the end of the range beside it."""

    def judged(kept: Panels) -> list[Claim]:
        claim = make(kept, lambda panel: panel.matched)
        if all(panel.matched == panel.last for panel in kept):
            return [claim]
        end = make(kept, lambda panel: panel.last)
        told = (
            f"At the end of the range, {_with(kept, lambda panel: panel.last)}: {end.measured:.3g} "
            f"[{end.low:.3g}, {end.high:.3g}], {end.verdict}."
        )
        return [replace(claim, reason=f"{claim.reason} {told}".strip())]

    (claim,) = above_chance(panels, judged, needed=needed)
    reason = far_from_published(panels)
    return claim.because(reason, "not comparable") if reason else claim


def far_from_published(panels: Panels) -> str:
    """Why counts cannot be compared with the published ones; empty if they can."""
    low, high = min(SHARES.values()) / NEAR, max(SHARES.values()) * NEAR
    far = [panel for panel in panels if not low <= panel.matched / panel.heads <= high]
    if not far:
        return ""
    return (
        f"Published are {COUNT} of {min(HEADS.values())} to {max(HEADS.values()):,} heads, and the "
        f"nearest that was measured is {_of_heads(far, lambda panel: panel.matched)}."
    )


def _of_heads(panels: Panels, at: At) -> str:
    """The counts as shares of the heads: "20 of 270 heads (7.4 %)"."""
    shares = dict.fromkeys((at(panel), panel.heads) for panel in panels)
    return " and ".join(
        f"{count} of {counted(heads, 'head')} ({100 * count / heads:.1f} %)"
        for count, heads in shares
    )


def _with(panels: Panels, at: At) -> str:
    return f"with {_of_heads(panels, at)} ablated"


def _falls(panels: Panels, at: At) -> Claim:
    return Claim.of_family(
        f"facilitation falls: {_with(panels, at)}, the log-probability is lower by more than "
        f"{FALLS:g} in every panel (measured in the panel that decides: Δ_facilitation)",
        "facilitation falls in every panel",
        {panel.name: panel.at("facilitation", at(panel)) for panel in panels},
        below=-FALLS,
    )


def _more_than_random(panels: Panels) -> Claim:
    def at(panel: RolePanel) -> int:
        return panel.matched

    return Claim.of_family(
        f"roles tell more than chance: {_with(panels, at)}, facilitation falls further than a "
        f"random order, by more than {FALLS:g} in every panel (measured in the panel that decides: "
        "Δ_facilitation − Δ_random)",
        None,
        {
            panel.name: panel.at("facilitation", at(panel)) - panel.at(RANDOM, at(panel))
            for panel in panels
        },
        below=-FALLS,
    )


def _irrelevance_stays(panels: Panels, at: At) -> Claim:
    return Claim.of_family(
        f"irrelevance stays near 0: {_with(panels, at)}, it changes by less than a quarter of "
        "facilitation's fall in every panel (measured in the panel that decides: |Δ_irrelevance| + "
        f"{STAY:g} · Δ_facilitation)",
        "irrelevance stays near 0",
        {
            f"{panel.name}, {way}": panel.at("irrelevance", at(panel)) * sign
            + panel.at("facilitation", at(panel)) * STAY
            for panel in panels
            for way, sign in (("a rise", 1.0), ("a fall", -1.0))
        },
        below=0,
    )


def _interference_rises(panels: Panels) -> Claim:
    peaks = dict(zip((panel.name for panel in panels), peaks_of(panels), strict=True))
    intervals = {name: interval for name, (_, interval) in peaks.items()}
    name, verdict = deciding(intervals, above=RISES)
    claim = Claim.of(
        "interference rises at first: ablating the most interfering heads raises the "
        f"log-probability by more than {RISES:g} at some count in every panel (measured: "
        "Δ_interference at the count whose interval lies highest, in the panel that decides; the "
        "intervals of all counts and panels hold together)",
        "interference rises at first; peaks on Common Sense +0.5 to +1.5",
        intervals[name],
        verdict,
    )
    where = f"with {counted(peaks[name][0], 'head')} ablated"
    return claim.because(f"Farthest from the claim, of {len(panels)} panels: {name}, {where}.")


def _not_early(panels: Panels) -> Claim:
    return Claim.of_family(
        f"interference does not fall early: {_with(panels, lambda panel: panel.first)}, it falls "
        "by less than a quarter of facilitation's fall in every panel (measured in the panel "
        f"that decides: Δ_interference − {STAY:g} · Δ_facilitation)",
        "interference rarely falls early",
        {
            panel.name: panel.at("interference", panel.first)
            - panel.at("facilitation", panel.first) * STAY
            for panel in panels
        },
        above=0,
    )


def _first(panels: Panels, at: At) -> Claim:
    family: dict[str, Estimate] = {}
    for panel in panels:
        fall = panel.at("facilitation", at(panel))
        others = {role: panel.at(role, at(panel)) for role in OTHERS}
        family[f"{panel.name}, facilitation falls"] = fall + constant(FALLS)
        for role, change in others.items():
            family[f"{panel.name}, facilitation lies below {role}"] = fall - change
            family[f"{panel.name}, {role} does not fall"] = fall * STAY - change
        family[f"{panel.name}, irrelevance does not rise"] = fall * STAY + others["irrelevance"]
    return Claim.of_family(
        f"the first of two contradicting descriptions holds: {_with(panels, at)}, facilitation "
        "falls and lies below the others in every panel, irrelevance changes and interference "
        "falls by less than a quarter of that (measured in the panel that decides: "
        f"Δ_facilitation + {FALLS:g}, Δ_facilitation − Δ_role, {STAY:g} · Δ_facilitation − Δ_role, "
        f"or {STAY:g} · Δ_facilitation + Δ_irrelevance)",
        FIRST,
        family,
        below=0,
    )


def _second(panels: Panels, at: At) -> Claim:
    family: dict[str, Estimate] = {}
    for panel in panels:
        facilitation = panel.at("facilitation", at(panel))
        others = {role: panel.at(role, at(panel)) for role in OTHERS}
        largest = combine(np.minimum, *others.values())
        for role, change in others.items():
            family[f"{panel.name}, {role} falls"] = change + constant(FALLS)
        family[f"{panel.name}, facilitation does not fall"] = largest * STAY - facilitation
        family[f"{panel.name}, facilitation does not rise"] = largest * STAY + facilitation
    return Claim.of_family(
        f"the second description holds: {_with(panels, at)}, irrelevance and interference fall in "
        "every panel, and facilitation changes by less than a quarter of the larger fall "
        f"(measured in the panel that decides: Δ_role + {FALLS:g}, or |Δ_facilitation| + {STAY:g} "
        "· min Δ_role)",
        SECOND,
        family,
        below=0,
    )


def _models_with_all_tasks(panels: Panels) -> list[str]:
    tasks: dict[str, set[str]] = {}
    for panel in panels:
        tasks.setdefault(panel.model, set()).add(panel.task)
    return [model for model, own in tasks.items() if {"Math", "Syntax", "Common Sense"} <= own]


def _of_math(reading: Reading) -> tuple[str, str | None]:
    """What is claimed of Math, and what was published: a sum over the tokens of the target."""
    if reading == "sum":
        said = "Math is by far the most sensitive"
        return f"{said} task, in sum", said
    return "Math is by far the most sensitive task, by the token", None


def _math(reading: Reading) -> MakeClaim:
    """The claim that Math is the most sensitive, summed over targets or by the token."""
    said, published = _of_math(reading)

    def claim(panels: Panels, at: At) -> Claim:
        family = {}
        for math in (panel for panel in panels if panel.task == "Math"):
            fall = math.at("facilitation", at(math), reading)
            for other in panels:
                if other.model == math.model and other is not math:
                    gap = fall - other.at("facilitation", at(other), reading) * FAR
                    family[other.name] = gap
        summed = reading == "sum"
        by = "summed over the target, as published" if summed else "divided by the target's length"
        return Claim.of_family(
            f"{said}: {_with(panels, at)}, facilitation falls on Math at least {FAR:g} times as "
            "far as on either other task (measured in the model and task that decide: "
            f"Δ_facilitation on Math − {FAR:g} · that on the other; log-probabilities are {by})",
            published,
            family,
            below=0,
        )

    return claim


def _size_gaps(panels: Panels, at: At) -> Mapping[str, Estimate]:
    """Facilitation of the largest model minus that of each smaller one, on the same task."""
    most = max((panel.facts["parameters"] for panel in panels), default=0)
    return {
        f"{large.task}, {large.model} and {small.model}": large.at("facilitation", at(large))
        - small.at("facilitation", at(small))
        for large in panels
        for small in panels
        if large.task == small.task
        and small.facts["parameters"] < large.facts["parameters"] == most
    }


def _largest(panels: Panels, at: At) -> Claim:
    return Claim.of_family(
        f"{LARGEST}: {_with(panels, at)}, by more than {LEAST:g} less (measured in the "
        "task and smaller model that decide: Δ_facilitation of the largest − that of the smaller)",
        LARGEST,
        _size_gaps(panels, at),
        above=LEAST,
    )
