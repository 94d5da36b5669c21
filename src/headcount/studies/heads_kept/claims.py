"""The claims about heads kept, judged by intervals.

The published ratio is heads needed by the dense model over heads needed by the sparse one: above 1
the sparse model needs fewer. A description of the figure reads 0.6x as a win of the sparse model;
by the definition it is a loss, and it is judged as one. Margin, fixed here: a measured ratio is
"near" the published one if it lies within a factor of 1.25 of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from headcount.claims import Claim, Verdict, judge
from headcount.curves.explained import ratio_of_counts
from headcount.stats import Interval
from headcount.studies.heads_kept.config import Config
from headcount.studies.heads_kept.tables import TaskCurves

NEAR = 1.25
# By whether heads are ranked per task or per prompt.†
PUBLISHED = {
    "task": {"greater-than": 0.6, "ioi": 2.0, "docstring": 1.3, "ioi-long": 1.6},
    "prompt": {"greater-than": 4.5, "ioi": 2.2, "docstring": 2.2, "ioi-long": 1.4},
}


def judge_claims(panels: Sequence[TaskCurves], config: Config) -> list[Claim]:
    """All claims that these panels allow to judge."""
    claims = []
    for panel in panels:
        claims += _fewer_than_random(panel, config.rankings[0])
        if panel.ratio is not None:
            claims += _ratio_claims(panel, panel.ratio, PUBLISHED[config.per].get(panel.key))
    return claims


def _fewer_than_random(panel: TaskCurves, ranking: str) -> list[Claim]:
    """One claim for each model with random orders."""
    claims, threshold = [], panel.threshold
    for model, random in panel.random.items():
        ratio = ratio_of_counts(random, panel.top[model], threshold)
        counts = [_count(random.first(threshold).value), _count(panel.needed[model])]
        text = (
            f"{panel.title}, {model}: an explained effect of {threshold:g} takes more heads in "
            f"random order than ranked by {ranking} (measured: {' against '.join(counts)} heads, "
            "as a ratio)"
        )
        claims.append(_claim(text, None, ratio, judge(ratio, above=1)))
    return claims


def _ratio_claims(panel: TaskCurves, ratio: Interval, published: float | None) -> list[Claim]:
    """On which side of 1 the ratio is, and how near to the published one."""
    dense, sparse = panel.needed
    counts = " against ".join(map(_count, panel.needed.values()))
    if published is None:
        words = f"{panel.title}: {dense} needs more heads than {sparse} ({counts})"
        return [_claim(words, None, ratio, judge(ratio, above=1))]
    more, said = published > 1, f"{published:.1f}x"
    direction = (
        f"{panel.title}: {dense} needs {'more' if more else 'fewer'} heads than {sparse} for an "
        f"explained effect of {panel.threshold:g} ({counts} heads; measured: the ratio)"
    )
    side = judge(ratio, above=1) if more else judge(ratio, below=1)
    size = f"{panel.title}: the ratio lies within a factor of {NEAR:g} of the published one"
    near = judge(ratio, within=(published / NEAR, published * NEAR))
    return [_claim(direction, said, ratio, side), _claim(size, said, ratio, near)]


def _count(heads: float) -> str:
    return "an unknown number of" if math.isnan(heads) else f"{heads:.0f}"


def _claim(text: str, published: str | None, measured: Interval, verdict: Verdict) -> Claim:
    if math.isnan(measured.value):
        text += "; unknown, since the model does no better with its heads than without"
    return Claim.of(text, published, measured, verdict)
