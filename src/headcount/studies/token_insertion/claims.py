"""The claims of Figure 10 of "Meaningless Tokens, Meaningful Gains", judged by intervals.

Margins are fixed here, before anything is measured: an insert "raises" accuracy where the interval
of the paired difference lies above 0; peaks "keep their timing" where the correlation of the two
profiles is above 0.8; the inserted span is "near-uniform" where its coefficient of variation is
below that of the original tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from headcount.claims import Claim, all_of, judge
from headcount.stats import Interval, bootstrap, ratio_of_means
from headcount.studies.token_insertion.grading import Outcome
from headcount.studies.token_insertion.inside import Inside

TIMING = 0.8
HEIGHT = ("peak", "peak_without")  # of the peaks with the insert, over that without
PUBLISHED = {
    "w/ Mless": "from about 64, 73 and 44 % to 66, 75 and 46 % (three models)",
    "w/ Mful": "from about 64, 73 and 44 % to 66, 74 and 48 % (three models)",
}
UNKNOWN = Interval(np.nan, np.nan, np.nan, 0)


def judge_claims(outcome: Outcome, inside: Inside | None) -> list[Claim]:
    """All claims about one model: about its accuracy, and about what was seen inside."""
    claims = []
    for series, published in PUBLISHED.items():
        difference = outcome.difference(series)
        text = f"{outcome.model}: {series} raises accuracy (measured: the paired difference)"
        claims.append(Claim.of(text, published, difference, judge(difference, above=0)))
    if inside is not None:
        for series in inside.look.series:  # none where nothing was put in
            about = inside, series, f"{outcome.model}: {series}"
            claims += [*_peaks(*about), _span(*about), *_scaling(*about)]
    return claims


def _peaks(inside: Inside, series: str, name: str) -> list[Claim]:
    """Whether the insert lowers the peaks on the original tokens, in the head and elsewhere."""
    head, at = [inside.head], inside.drawn
    ratio = _ratio(inside, series, "all", HEIGHT, head)
    timing = _mean(inside.look.effects[series, "all", "timing"][:, inside.head])
    claims = [
        Claim.of(
            f"{name} lowers the attention peaks on the original tokens in head {at} (measured: "
            f"their height over that without) and keeps their timing (correlation {timing}, more "
            f"than {TIMING:g} asked)",
            "same spikes, lower",
            ratio,
            all_of([judge(ratio, below=1), judge(timing, above=TIMING)]),
        )
    ]
    own = _ratio(inside, series, "original", HEIGHT, head)
    text = f"{name}: the same, with only original tokens as queries, in head {at}"
    claims.append(Claim.of(text, "", own, judge(own, below=1)))
    if inside.other_heads:
        deep = _ratio(inside, series, "all", HEIGHT, inside.other_heads)
        text = f"{name}: the same in the heads of all other layers, where it is no arithmetic"
        claims.append(Claim.of(text, "", deep, judge(deep, below=1)))
    return claims


def _span(inside: Inside, series: str, name: str) -> Claim:
    """Whether the inserted tokens receive small and even weights in the head."""
    effects = inside.look.effects
    small = _ratio(inside, series, "all", ("span", "original"), [inside.head])
    spread = _mean(
        effects[series, "all", "span_spread"][:, inside.head]
        - effects[series, "all", "original_spread"][:, inside.head]
    )
    return Claim.of(
        f"{name}: in head {inside.drawn} the inserted span receives small weights (measured: over "
        f"those of the original tokens) and near-uniform ones (its spread less theirs: {spread})",
        "small, near-uniform weights",
        small,
        all_of([judge(small, below=1), judge(spread, below=0)]),
    )


def _scaling(inside: Inside, series: str, name: str) -> list[Claim]:
    """Whether attention outputs are scaled down, in the layer and in all others."""
    claims = []
    wheres = {f"layer {inside.layer}": inside.layer_heads, "all other layers": inside.other_heads}
    for where, heads in wheres.items():
        if heads:
            factor, spread = (
                _mean(inside.look.scaled(series, entry, heads)) for entry in ("lambda", "spread")
            )
            text = (
                f"{name}: attention outputs are scaled by λ < 1 in {where} (measured: the mean of "
                "the heads' fitted λ, which any change lowers) and vary less (their spread over "
                f"that without: {spread})"
            )
            verdict = all_of([judge(factor, below=1), judge(spread, below=1)])
            claims.append(Claim.of(text, "Attn_new = λ · Attn + bias with λ < 1", factor, verdict))
    return claims


def _ratio(
    inside: Inside, series: str, queries: str, effects: tuple[str, str], heads: Sequence[int]
) -> Interval:
    """The mean over heads of one effect over that of another, over prompts."""
    top, bottom = (
        inside.look.effects[series, queries, effect][:, list(heads)].mean(1) for effect in effects
    )
    return UNKNOWN if np.isnan([top, bottom]).any() else ratio_of_means(top, bottom)


def _mean(values: Float[np.ndarray, "prompts"]) -> Interval:
    return UNKNOWN if not len(values) or np.isnan(values).any() else bootstrap(values)
