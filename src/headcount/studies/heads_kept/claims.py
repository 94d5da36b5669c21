"""The claims about heads kept, and about edges kept, judged by intervals.

The published number is a ratio: heads that the dense model needs over heads that the sparse model
needs, at one explained effect. It depends on the threshold, because curves have plateaus and pass
1, so we judge areas instead: CMD, the mean distance of the curve from 1 over the share of heads
kept, on the linear and on the log axis. The margin is fixed here, before anything is measured: one
CMD is smaller than another by more than 0.02.

The published ratios are compared with nothing here: their models, their share of open edges and
their prompts are others, and the 0.6 of Greater Than is contradictory in its source (its label says
that the sparse model needs more heads, and its curve is drawn to the left).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headcount.claims import Claim, deciding, judge
from headcount.curves.explained import AXES, Axis, ratio_of_needed
from headcount.curves.keep import RANDOM
from headcount.stats import Estimate
from headcount.studies.heads_kept.panels import TaskPanel

MARGIN = 0.02
# The published ratios, with heads ranked per task and per prompt (our reading of two versions).
PUBLISHED = {
    "task": {"greater-than": 0.6, "ioi": 2.0, "docstring": 1.3, "ioi-long": 1.6},
    "prompt": {"greater-than": 4.5, "ioi": 2.2, "docstring": 2.2, "ioi-long": 1.4},
}
# The same of edges; whether they were ranked per task or per prompt is not said.
EDGES = {"greater-than": 41.9, "ioi": 14.9, "docstring": 5.5, "ioi-long": 3.1}
ELSEWHERE = (
    "Published for GPT-2 and OLMo-7B with 0.3 to 0.4 % of their edges open, and other prompts."
)
CONTRADICTORY = (
    "The published 0.6 is contradictory in its source: by its label the sparse model needs more "
    "heads, by its curve fewer."
)


def judge_claims(panels: Sequence[TaskPanel]) -> list[Claim]:
    """All claims that can be judged from these panels."""
    claims = []
    if any(panel.has_random(model) for panel in panels for model in panel.models):
        claims += [_better_than_random(panels), _fewer_than_random(panels)]
    for models in dict.fromkeys(tuple(panel.models) for panel in panels):
        alike = [panel for panel in panels if tuple(panel.models) == models]
        base, *others = models
        for other in others:
            claims += [_more_faithful(alike, base, other, axis) for axis in _axes(panels)]
            claims += [_published(panel, base, other) for panel in alike]
    return claims


def _axes(panels: Sequence[TaskPanel]) -> tuple[Axis, ...]:
    """The axes of areas; hardly any share of all edges is seen on a linear one."""
    return AXES if panels[0].unit == "head" else ("log",)


def _excluding(family: Mapping[Any, Any], lost: Sequence[str], claim: Claim) -> Claim:
    if not lost:
        return claim
    reason = f"With all heads, the model is at chance or has no effect: {', '.join(lost)}"
    if not family:
        return claim.because(f"{reason}.", "not comparable")
    return claim.because(f"{reason}, which is left out.")


def _usable(panel: TaskPanel, model: str) -> bool:
    return not panel.at_chance(model) and panel.curve(model).known


def _better_than_random(panels: Sequence[TaskPanel]) -> Claim:
    family: dict[str, Estimate] = {}
    lost, every = [], {}
    axis, unit = _axes(panels)[0], panels[0].unit
    for panel in panels:
        for model in (m for m in panel.models if panel.has_random(m)):
            name = f"{panel.title}, {model}"
            order = panel.best_order(model) or panel.first[1]
            ranked, random = (panel.curve(model, "", which) for which in (order, RANDOM))
            every[name] = ranked.cmd(axis) - random.cmd(axis)
            if _usable(panel, model):
                family[name] = every[name]
            else:
                lost.append(name)
    claim = Claim.of_family(
        f"{unit}s kept by {_which(panels)} are nearer to the whole model than {unit}s in random "
        f"order, on every task and model: CMD on the {axis} axis is lower by more than {MARGIN:g} "
        "(measured for the task and model that decide: CMD_ranked − CMD_random)",
        None,
        family or every,
        below=-MARGIN,
    )
    return _excluding(family, lost, claim)


def _fewer_than_random(panels: Sequence[TaskPanel]) -> Claim:
    """Fewer heads than random order for all of the effect, judged by paired intervals."""
    every = [
        (panel, model) for panel in panels for model in panel.models if panel.has_random(model)
    ]
    usable = [(panel, model) for panel, model in every if _usable(panel, model)]
    judged = usable or every
    family = {
        f"{panel.title}, {model}": panel.against_random(model, len(judged))
        for panel, model in judged
    }
    lost = [f"{panel.title}, {model}" for panel, model in every if (panel, model) not in usable]
    name, verdict = deciding(family, below=1.0)
    unit = panels[0].unit
    claim = Claim.of(
        f"{unit}s kept by {_which(panels)} need fewer {unit}s than in random order for the whole "
        "effect (1 ± 0.1, from there on), on every task and model (measured for the task and model "
        "that decide: the ratio of the two numbers)",
        None,
        family[name],
        verdict,
    )
    fewer = sum(judge(interval, below=1.0) == "supported" for interval in family.values())
    told = f"Clear in {fewer} of {len(family)} intervals that hold together; farthest: {name}."
    return _excluding(family if usable else {}, lost, claim.because(told))


def _which(panels: Sequence[TaskPanel]) -> str:
    """The order that is compared with random order."""
    chosen = panels[0].best_order(panels[0].models[0]) is not None
    return "the order that is best on validation prompts" if chosen else panels[0].first[1]


def _more_faithful(panels: Sequence[TaskPanel], base: str, other: str, axis: Axis) -> Claim:
    family: dict[str, Estimate] = {}
    lost, every = [], {}
    unit = panels[0].unit
    for panel in panels:
        every[panel.title] = panel.curve(other).cmd(axis) - panel.curve(base).cmd(axis)
        if all(_usable(panel, model) for model in (base, other)):
            family[panel.title] = every[panel.title]
        else:
            lost.append(panel.title)
    claim = Claim.of_family(
        f"few {unit}s of {other} do more of what all its {unit}s do than few {unit}s of {base}, on "
        f"every task: CMD on the {axis} axis is lower by more than {MARGIN:g}, ranked by "
        f"{panels[0].first[1]} (measured in the task that decides: CMD({other}) − CMD({base}))",
        None,
        family or every,
        below=-MARGIN,
    )
    return _excluding(family, lost, claim)


def _published(panel: TaskPanel, base: str, other: str) -> Claim:
    """The published ratio, shown beside ours at its threshold, and compared with nothing."""
    ((_, ratio, censored),) = ratio_of_needed(
        panel.curve(base), panel.curve(other), [panel.threshold]
    )
    known = PUBLISHED[panel.facts["per"]] if panel.unit == "head" else EDGES
    published = known.get(panel.key)
    claim = Claim.of(
        f"{panel.title}: {panel.unit}s needed by {base} over {panel.unit}s needed by {other}, at "
        f"the one threshold {panel.threshold:g}; the table of ratios has all thresholds",
        None if published is None else f"{published:g}",
        ratio,
        "not tested" if published is None else "not comparable",
    )
    claim = (
        claim.because(f"A curve does not reach the threshold before all {panel.unit}s.")
        if censored
        else claim
    )
    reason = CONTRADICTORY if panel.key == "greater-than" and published == 0.6 else ELSEWHERE
    return claim if published is None else claim.because(reason)
