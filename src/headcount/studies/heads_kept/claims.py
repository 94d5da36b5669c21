"""The claims about heads kept, judged by intervals.

The published ratio is heads_dense / heads_sparse, the heads needed by the dense model over those
needed by the sparse model: above 1 the sparse model needs fewer. A description of the figure reads
0.6x as a win of the sparse model; by the definition it is a loss, and it is judged as a loss. The
margin is fixed here, before anything is measured: a ratio is "near" the published one if it lies
within a factor of 1.25 of it.
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
# The published ratios, with heads ranked per task and per prompt (our reading of two versions).
PUBLISHED = {
    "task": {"greater-than": 0.6, "ioi": 2.0, "docstring": 1.3, "ioi-long": 1.6},
    "prompt": {"greater-than": 4.5, "ioi": 2.2, "docstring": 2.2, "ioi-long": 1.4},
}


def judge_claims(panels: Sequence[TaskCurves], config: Config) -> list[Claim]:
    """All claims that can be judged from these panels."""
    claims = []
    for panel in panels:
        claims += _fewer_than_random(panel, config.rankings[0])
        if panel.ratio is not None:
            found = _ratio_claims(panel, panel.ratio, PUBLISHED[config.per].get(panel.key))
            claims += [_unless_at_chance(claim, panel, list(panel.needed)) for claim in found]
    return claims


def _fewer_than_random(panel: TaskCurves, ranking: str) -> list[Claim]:
    """One claim for each model that was also measured in random order."""
    claims, threshold = [], panel.threshold
    for model, random in panel.random.items():
        ratio = ratio_of_counts(random, panel.top[model], threshold)
        counts = _counts([random.first(threshold).value, panel.needed[model]])
        text = (
            f"{panel.title}, {model}: an explained effect of {threshold:g} takes more heads in "
            f"random order than ranked by {ranking} (measured: heads_random / heads_ranked = "
            f"{counts})"
        )
        claim = _claim(text, None, ratio, judge(ratio, above=1))
        claims.append(_unless_at_chance(claim, panel, [model]))
    return claims


def _unless_at_chance(claim: Claim, panel: TaskCurves, models: Sequence[str]) -> Claim:
    """The claim, which is not comparable if one of the models that it is about is at chance."""
    lost = [model for model in models if model in panel.at_chance]
    if not lost:
        return claim
    reason = f"At chance on {panel.title} with all heads: {', '.join(lost)}."
    return claim.because(reason, "not comparable")


def _ratio_claims(panel: TaskCurves, ratio: Interval, published: float | None) -> list[Claim]:
    """On which side of 1 the ratio lies, and how near it is to the published ratio."""
    dense, sparse = panel.needed
    more = published is None or published > 1
    direction = (
        f"{panel.title}: {dense} needs {'more' if more else 'fewer'} heads than {sparse} for an "
        f"explained effect of {panel.threshold:g} (measured: heads_dense / heads_sparse = "
        f"{_counts(list(panel.needed.values()))})"
    )
    if published is None:
        return [_claim(direction, None, ratio, judge(ratio, above=1))]
    side = judge(ratio, above=1) if more else judge(ratio, below=1)
    size = (
        f"{panel.title}: heads_dense / heads_sparse lies within a factor of {NEAR:g} of the "
        "published ratio"
    )
    near = judge(ratio, within=(published / NEAR, published * NEAR))
    as_published = f"{published:.1f}x"
    return [_claim(direction, as_published, ratio, side), _claim(size, as_published, ratio, near)]


def _counts(needed: Sequence[float]) -> str:
    return " / ".join("unknown" if math.isnan(heads) else f"{heads:.0f}" for heads in needed)


def _claim(text: str, published: str | None, ratio: Interval, verdict: Verdict) -> Claim:
    no_effect = (
        "There is no ratio: a model does no better with all its heads than with none, so there is "
        "no effect to explain."
    )
    if_unknown = no_effect if math.isnan(ratio.value) else ""
    return Claim.of(text, published, ratio, verdict, if_unknown)
