"""The claims of `pruned`, judged by intervals.

Margins are fixed here, before anything is measured: 0.05 nats per token of loss, 0.02 of the
accuracy, and 2 % of speed. "Within" allows 0.05 of the accuracy. A claim about every size is judged
by intervals that hold together. Accuracies are means over the tasks on which the whole model beats
chance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from headcount.claims import Claim, judge
from headcount.curves.pruned import BEST, RANDOM, PrunedHeads
from headcount.models.groups import GROUPS, HEADS
from headcount.stats import Estimate
from headcount.studies.pruned.panels import (
    ACCURACY,
    LOSS,
    PrunedPanels,
    treated,
    words,
)

NATS, MORE, ALLOWED, FASTER = 0.05, 0.02, 0.05, 1.02
UNITS = {GROUPS: "key/value groups", HEADS: "query heads of each group"}


def judge_claims(panels: PrunedPanels) -> list[Claim]:
    """All claims, by what is removed."""
    claims: list[Claim] = []
    for kind in UNITS:
        sizes = [size for size in panels.sizes if size["kept"] == kind]
        if sizes:
            claims += _of_kind(panels, kind, sizes)
    return claims


def _of_kind(panels: PrunedPanels, kind: str, sizes: Sequence[Mapping[str, Any]]) -> list[Claim]:
    treatments, random = (panels.treatments(sizes[0], series) for series in (BEST, RANDOM))
    claims = []
    for treatment in dict.fromkeys((random[0], random[-1])):
        claims += _best_against_random(panels, kind, sizes, treatment)
    claims += [_gain(panels, kind, sizes, *both) for both in pairwise(treatments)]
    claims.append(_keeps(panels, sizes[0]))
    claims.append(_faster(panels, kind, sizes))
    return claims


def _family(
    sizes: Sequence[Mapping[str, Any]], of: Callable[[Mapping[str, Any]], Estimate]
) -> dict[str, Estimate]:
    return {words(size): of(size) for size in sizes}


def heads(size: Mapping[str, Any], treatment: str, series: str = BEST) -> PrunedHeads:
    """The heads of a size after a treatment."""
    return PrunedHeads(series, treatment, size["kept"], size["count"])


def _best_against_random(
    panels: PrunedPanels, kind: str, sizes: Sequence[Mapping[str, Any]], treatment: str
) -> list[Claim]:
    def gap(metric: str) -> Callable[[Mapping[str, Any]], Estimate]:
        return lambda size: panels.difference(
            metric, heads(size, treatment), heads(size, treatment, RANDOM)
        )

    about = f"{UNITS[kind]}, {treatment}: at every size, the best have"
    loss = Claim.of_family(
        f"{about} a loss lower by more than {NATS:g} nats per token than random ones (measured: "
        "best − random)",
        None,
        _family(sizes, gap(LOSS)),
        below=-NATS,
    )
    accuracy = Claim.of_family(
        f"{about} an accuracy higher by more than {MORE:g} than random ones (measured: best − "
        "random, mean over tasks)",
        None,
        _family(sizes, gap(ACCURACY)),
        above=MORE,
    )
    return [loss, _unless_at_chance(panels, accuracy)]


def _gain(
    panels: PrunedPanels, kind: str, sizes: Sequence[Mapping[str, Any]], before: str, after: str
) -> Claim:
    """Does a treatment lower the loss of the best?"""

    def gap(size: Mapping[str, Any]) -> Estimate:
        best = heads(size, before)
        return panels.difference(LOSS, treated(best, after), best)

    return Claim.of_family(
        f"{UNITS[kind]}: at every size, the best have a loss lower by more than {NATS:g} nats per "
        f"token {after} than {before} (measured: {after} − {before})",
        None,
        _family(sizes, gap),
        below=-NATS,
    )


def _keeps(panels: PrunedPanels, size: Mapping[str, Any]) -> Claim:
    """Is the accuracy kept, at the largest size and with all that was tried?"""
    treatment = panels.treatments(size)[-1]
    lost = panels.difference(ACCURACY, heads(size, treatment), PrunedHeads()).interval
    claim = Claim.of(
        f"with {words(size)} kept, the best, {treatment}, have an accuracy within {ALLOWED:g} of "
        "the whole model's (measured: best − whole, mean over tasks)",
        None,
        lost,
        judge(lost, above=-ALLOWED),
    )
    return _unless_at_chance(panels, claim)


def _faster(panels: PrunedPanels, kind: str, sizes: Sequence[Mapping[str, Any]]) -> Claim:
    return Claim.of_family(
        f"{UNITS[kind]}: at every size, the pruned model writes more than {FASTER:g} times as fast "
        "as the whole one (measured: ratio of tokens per second, in turns)",
        None,
        _family(sizes, lambda size: panels.faster("writing", size)),
        above=FASTER,
    )


def _unless_at_chance(panels: PrunedPanels, claim: Claim) -> Claim:
    lost = [panel.name for panel in panels.tasks if panel.at_chance]
    if not lost:
        return claim
    reason = f"With all heads, the model is at chance on {', '.join(lost)}"
    if len(lost) == len(panels.tasks):
        return claim.because(f"{reason}.", "not comparable")
    return claim.because(f"{reason}, which is left out.")
