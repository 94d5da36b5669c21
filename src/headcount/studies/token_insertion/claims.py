"""The claims of Figure 10 of "Meaningless Tokens, Meaningful Gains", judged by intervals.

Margins are fixed here, before anything is measured: an insert "raises" accuracy if the interval of
the paired difference lies above 0; peaks "keep their timing" if the correlation of the two profiles
is above 0.8; the inserted span is "near-uniform" if its coefficient of variation is below that of
the original tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from headcount.claims import Claim, all_of, judge
from headcount.stats import Interval, bootstrap, ratio_of_means
from headcount.studies.token_insertion.grading import Outcome
from headcount.studies.token_insertion.internals import Internals

TIMING = 0.8
HEIGHT = ("peak", "peak_without")  # numerator and denominator of the height of the peaks
PUBLISHED = {
    "w/ Mless": "from about 64, 73 and 44 % to 66, 75 and 46 % (three models)",
    "w/ Mful": "from about 64, 73 and 44 % to 66, 74 and 48 % (three models)",
}
UNKNOWN = Interval(np.nan, np.nan, np.nan, 0)
UNDEFINED = (
    "There is no interval: the prompts are too short for attention profiles, or the heads are "
    "silent, so the statistic is not defined on every prompt."
)


def judge_claims(outcome: Outcome, internals: Internals | None) -> list[Claim]:
    """All claims about one model: about its accuracy and about its internals.

    They are not comparable where the model is at chance without an insert.
    """
    claims = []
    for series, published in PUBLISHED.items():
        text = (
            f"{outcome.model}: {series} raises accuracy (measured: accuracy with the insert − "
            "without it, paired by problem)"
        )
        claims.append(Claim.of_all(text, published, [outcome.difference(series)], above=0))
    if internals is not None:
        for series in internals.series:  # no series if nothing was inserted
            about = internals, series, f"{outcome.model}: {series}"
            claims += [*_peaks(*about), _span(*about), *_scaling(*about)]
    if outcome.at_chance:
        reason = f"With all heads, the model is at chance on {outcome.task}."
        return [claim.because(reason, "not comparable") for claim in claims]
    return claims


def _peaks(internals: Internals, series: str, name: str) -> list[Claim]:
    """Whether the insert lowers the peaks on the original tokens, in the head and other layers."""
    ratio = _ratio(internals, series, "all", HEIGHT, [internals.number])
    timing = _mean(internals.effects[series, "all", "timing"][:, internals.number])
    claims = [
        Claim.of(
            f"{name} lowers the attention peaks on the original tokens in head {internals.head} "
            "(measured: peak height with the insert / without) and keeps their timing (correlation "
            f"of the two profiles {timing}, above {TIMING:g} required)",
            "same spikes, lower",
            ratio,
            all_of([judge(ratio, below=1), judge(timing, above=TIMING)]),
            UNDEFINED,
        )
    ]
    own = _ratio(internals, series, "original", HEIGHT, [internals.number])
    text = (
        f"{name} lowers these peaks also with only original tokens as queries, in head "
        f"{internals.head} (measured: peak height with the insert / without)"
    )
    claims.append(Claim.of(text, "", own, judge(own, below=1), UNDEFINED))
    if others := internals.heads_of(internals.layer, others=True):
        deep = _ratio(internals, series, "all", HEIGHT, others)
        text = (
            f"{name} lowers these peaks also in the heads of all other layers, where the softmax "
            "alone does not explain it (measured: peak height with the insert / without)"
        )
        claims.append(Claim.of(text, "", deep, judge(deep, below=1), UNDEFINED))
    return claims


def _span(internals: Internals, series: str, name: str) -> Claim:
    """Whether the inserted tokens receive small and near-uniform weights in the head."""
    small = _ratio(internals, series, "all", ("span", "original"), [internals.number])
    of_span, of_others = (
        internals.effects[series, "all", effect][:, internals.number]
        for effect in ("span_spread", "original_spread")
    )
    spread = _mean(of_span - of_others)
    return Claim.of(
        f"{name}: in head {internals.head} the inserted span receives small weights (measured: "
        "mean weight of inserted tokens / of original tokens) and near-uniform ones (coefficient "
        f"of variation of inserted − of original tokens: {spread})",
        "small, near-uniform weights",
        small,
        all_of([judge(small, below=1), judge(spread, below=0)]),
        UNDEFINED,
    )


def _scaling(internals: Internals, series: str, name: str) -> list[Claim]:
    """Whether attention outputs are scaled down, in the layer and in all other layers."""
    claims = []
    for others, where in ((False, f"layer {internals.layer}"), (True, "all other layers")):
        if heads := internals.heads_of(internals.layer, others=others):
            factor, spread = (
                _mean(internals.scaled(series, entry, heads)) for entry in ("lambda", "spread")
            )
            text = (
                f"{name}: attention outputs are scaled by λ < 1 in {where} (measured: mean over "
                "heads of the fitted λ, which every unrelated change lowers too) and vary less "
                f"(standard deviation with the insert / without: {spread})"
            )
            verdict = all_of([judge(factor, below=1), judge(spread, below=1)])
            published = "Attn_new = λ · Attn + bias with λ < 1"
            claims.append(Claim.of(text, published, factor, verdict, UNDEFINED))
    return claims


def _ratio(
    internals: Internals, series: str, queries: str, effects: tuple[str, str], heads: Sequence[int]
) -> Interval:
    """The ratio of two effects, each a mean over heads and prompts."""
    top, bottom = (
        internals.effects[series, queries, effect][:, list(heads)].mean(1) for effect in effects
    )
    return UNKNOWN if np.isnan([top, bottom]).any() else ratio_of_means(top, bottom)


def _mean(values: Float[np.ndarray, "prompts"]) -> Interval:
    return UNKNOWN if not len(values) or np.isnan(values).any() else bootstrap(values)
