"""The claims of `silent-heads`, judged by intervals on the mean over tasks.

Margins are fixed here, before anything is measured. A loss is a share of the accuracy with all
heads†; "within 1 %" means that it is below 0.01. Which score is best is judged by the area under
the curve, from none to the largest share of heads, as a share of what all heads reach; so is
whether a choice for each input beats the same heads for all, and random ones. There the margin is
0: a difference has a sign.

Rule of comparison: the published numbers are about MMLU, so they are compared only where every task
has MMLU in its name. Everywhere else the same statements are judged as ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from headcount.claims import Claim, above_chance, judge
from headcount.curves.silent import CONSTANT, PER_INPUT
from headcount.stats import Estimate, mean_of, unknown_interval
from headcount.studies.silent_heads.config import SCORES
from headcount.studies.silent_heads.panels import ACCURACY, CONTROLS, METRICS, Series, SilentPanel

PUBLISHED_SHARE, PUBLISHED_LOSS = 0.12, 0.01
PUBLISHED_TASK = "mmlu"
BEST = "relative-norm"  # of the published scores
SAME = "the statistic divides by a mean that may be 0", "the two curves agree on every prompt"


def judge_claims(panels: Sequence[SilentPanel]) -> list[Claim]:
    """All claims, about the tasks on which the model is better than chance."""
    return above_chance(panels, _claims)


def _claims(panels: Sequence[SilentPanel]) -> list[Claim]:
    first = panels[0].scores[0]
    elsewhere = ""
    if not all(PUBLISHED_TASK in panel.key.lower() for panel in panels):
        elsewhere = f"Published for MMLU, and measured on {', '.join(p.name for p in panels)}."
    claims = _and_ours(
        _few_lost(panels, first), "more than 12 % of the heads at less than 1 % loss", elsewhere
    )
    best = [_best(panels, first, metric) for metric in METRICS]
    published = "the output norm, relative to the layer's mean, finds inactive heads best"
    claims += _and_ours(best[0], published, elsewhere or _other_score(first))
    claims += best[1:]
    claims += [_beats(panels, first, [CONSTANT], metric) for metric in METRICS]
    claims += [_beats(panels, first, CONTROLS, metric) for metric in METRICS]
    return claims


def _other_score(first: str) -> str:
    return "" if first == BEST else f"Published for {BEST}, and the first score is {first}."


def _and_ours(claim: Claim, published: str, elsewhere: str) -> list[Claim]:
    """The published claim and, where its set-up is another one, the same as ours."""
    fields = {**vars(claim), "published": f"{published}, MMLU, 14 models"}
    if not elsewhere:
        return [Claim(**fields)]
    return [Claim(**fields).because(elsewhere, "not comparable"), claim]


def _few_lost(panels: Sequence[SilentPanel], score: str) -> Claim:
    series = PER_INPUT, score
    text = (
        f"at least {PUBLISHED_SHARE:.0%} of the heads, chosen for each input by the "
        f"{SCORES[score]}, are zeroed at a loss of less than 1 % of the accuracy (measured: loss "
        "as a share of the accuracy with all heads, on the mean over tasks"
    )
    at = [(panel, panel.first_beyond(series, PUBLISHED_SHARE)) for panel in panels]
    if any(share is None for _, share in at):
        return Claim.not_tested(f"{text})", None, "No threshold zeroed so many heads.")
    zeroed = mean_of(
        [panel.items.estimate(panel.lost(series, share or 0)) for panel, share in at]
    ).interval
    loss = mean_of([panel.loss(series, share or 0, ACCURACY) for panel, share in at]).interval
    return Claim.of(
        f"{text}, at {zeroed} of the heads)", None, loss, judge(loss, below=PUBLISHED_LOSS)
    )


def _gap(panels: Sequence[SilentPanel], a: Series, b: Series, metric: str) -> Estimate:
    """The area of one curve minus that of another, on the mean over tasks.

    Curves that agree on every prompt differ by 0, but how surely nobody can tell from them.
    """
    found = mean_of([panel.area(a, metric) - panel.area(b, metric) for panel in panels])
    return found if found.spread.error > 0 else unknown_interval(found.value, found)


def _told(claim: Claim) -> Claim:
    """Say so where curves agree: a difference of 0 without an interval divides by nothing."""
    if math.isnan(claim.low) and claim.measured == 0:
        return replace(claim, reason=claim.reason.replace(*SAME))
    return claim


def _best(panels: Sequence[SilentPanel], first: str, metric: str) -> Claim:
    text = f"the {SCORES[first]} is the best score: its area is larger than that of every other"
    others = panels[0].scores[1:]
    if not others:
        return Claim.not_tested(f"{text} ({METRICS[metric]})", None, "No other score was run.")
    own = PER_INPUT, first
    found = Claim.of_family(
        f"{text} (measured in the score that decides: difference of the areas of "
        f"{METRICS[metric]}, on the mean over tasks)",
        None,
        {SCORES[other]: _gap(panels, own, (PER_INPUT, other), metric) for other in others},
        above=0,
    )
    return _told(found)


def _beats(
    panels: Sequence[SilentPanel], first: str, controls: Sequence[str], metric: str
) -> Claim:
    words = "as many random heads, of all and of the same layers"
    if list(controls) == [CONSTANT]:
        words = "the same share of heads for all inputs, by its mean on ranking prompts"
    names = {CONSTANT: "constant", **dict(zip(CONTROLS, ("of all", "of the layers"), strict=True))}
    found = Claim.of_family(
        f"heads chosen for each input by the {SCORES[first]} cost less than {words} (measured: "
        f"difference of the areas of {METRICS[metric]}, on the mean over tasks)",
        None,
        {names[c]: _gap(panels, (PER_INPUT, first), (c, first), metric) for c in controls},
        above=0,
    )
    return _told(found)
