"""The claims about heads kept, judged by intervals.

The published ratio is heads needed by the dense model over heads needed by the sparse one: above 1
the sparse model needs fewer. A description of the figure reads 0.6x as a win of the sparse model;
by the definition it is a loss, and it is judged as one. Margin, fixed here: a measured ratio is
"near" the published one if it lies within a factor of 1.25 of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headcount.claims import Claim, judge
from headcount.curves.explained import Explained, ratio_of_counts
from headcount.stats import Interval

NEAR = 1.25
# By whether heads are ranked per task or per prompt.†
PUBLISHED = {
    "task": {"greater-than": 0.6, "ioi": 2.0, "docstring": 1.3, "ioi-long": 1.6},
    "prompt": {"greater-than": 4.5, "ioi": 2.2, "docstring": 2.2, "ioi-long": 1.4},
}


@dataclass(frozen=True, eq=False)
class Panel:
    """One task: each model's curve by the headline ranking and in random order."""

    key: str
    title: str
    models: tuple[str, ...]
    kept: tuple[Explained, ...]
    random: tuple[Explained | None, ...]

    def ratio(self, threshold: float) -> Interval | None:
        """Heads needed by the first model over those needed by the second, where there is one."""
        if len(self.kept) < 2:
            return None
        return ratio_of_counts(self.kept[0], self.kept[1], threshold)


def judge_claims(panels: Sequence[Panel], per: str, ranking: str, threshold: float) -> list[Claim]:
    """All claims that these panels allow to judge."""
    claims = []
    for panel in panels:
        for model, kept, random in zip(panel.models, panel.kept, panel.random, strict=True):
            if random is not None:
                claims.append(_fewer_than_random(panel, model, kept, random, ranking, threshold))
        ratio = panel.ratio(threshold)
        published = PUBLISHED.get(per, {}).get(panel.key)
        if ratio is not None:
            claims += _ratio_claims(panel, ratio, published, threshold)
    return claims


def _fewer_than_random(
    panel: Panel, model: str, kept: Explained, random: Explained, ranking: str, threshold: float
) -> Claim:
    found = ratio_of_counts(random, kept, threshold)
    counts = f"{_count(random, threshold)} against {_count(kept, threshold)} heads"
    return _claim(
        f"{panel.title}, {model}: an explained effect of {threshold:g} takes more heads in random "
        f"order than ranked by {ranking} (measured: {counts}, as a ratio)",
        None,
        found,
        judge(found, above=1),
    )


def _ratio_claims(
    panel: Panel, ratio: Interval, published: float | None, threshold: float
) -> list[Claim]:
    dense, sparse = panel.models
    counts = " against ".join(_count(kept, threshold) for kept in panel.kept)
    if published is None:
        words = f"{panel.title}: {dense} needs more heads than {sparse} ({counts})"
        return [_claim(words, None, ratio, judge(ratio, above=1))]
    more = published > 1
    said = f"{published:.1f}x"
    direction = _claim(
        f"{panel.title}: {dense} needs {'more' if more else 'fewer'} heads than {sparse} for an "
        f"explained effect of {threshold:g} ({counts} heads; measured: the ratio)",
        said,
        ratio,
        judge(ratio, above=1) if more else judge(ratio, below=1),
    )
    near = (published / NEAR, published * NEAR)
    size = _claim(
        f"{panel.title}: the ratio lies within a factor of {NEAR:g} of the published one",
        said,
        ratio,
        judge(ratio, within=near),
    )
    return [direction, size]


def _count(kept: Explained, threshold: float) -> str:
    return f"{kept.first(threshold).value:.0f}" if kept.known else "an unknown number of"


def _claim(text: str, published: str | None, found: Interval, verdict: str) -> Claim:
    if math.isnan(found.value):
        text += "; unknown, since the model does no better with its heads than without"
    return Claim(text, published, found.value, found.low, found.high, verdict)
