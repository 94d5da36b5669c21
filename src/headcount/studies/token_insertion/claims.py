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
from headcount.studies.token_insertion.look import Look

TIMING = 0.8
HEIGHT = ("peak", "peak_without")  # of the peaks with the insert, over that without
PUBLISHED = {
    "w/ Mless": "from about 64, 73 and 44 % to 66, 75 and 46 % (three models)",
    "w/ Mful": "from about 64, 73 and 44 % to 66, 74 and 48 % (three models)",
}
UNKNOWN = Interval(np.nan, np.nan, np.nan, 0)


def judge_claims(outcome: Outcome, look: Look | None) -> list[Claim]:
    """All claims about one model: about its accuracy, and about what was seen inside."""
    claims = []
    for series, published in PUBLISHED.items():
        text = f"{outcome.model}: {series} raises accuracy (measured: the paired difference)"
        claims.append(Claim.of_all(text, published, [outcome.difference(series)], above=0))
    if look is not None:
        for series in look.series:  # none where nothing was put in
            about = look, series, f"{outcome.model}: {series}"
            claims += [*_peaks(*about), _span(*about), *_scaling(*about)]
    return claims


def _peaks(look: Look, series: str, name: str) -> list[Claim]:
    """Whether the insert lowers the peaks on the original tokens, in the head and elsewhere."""
    ratio = _ratio(look, series, "all", HEIGHT, [look.number])
    timing = _mean(look.effects[series, "all", "timing"][:, look.number])
    claims = [
        Claim.of(
            f"{name} lowers the attention peaks on the original tokens in head {look.head} "
            f"(measured: their height over that without) and keeps their timing (correlation "
            f"{timing}, more than {TIMING:g} asked)",
            "same spikes, lower",
            ratio,
            all_of([judge(ratio, below=1), judge(timing, above=TIMING)]),
        )
    ]
    own = _ratio(look, series, "original", HEIGHT, [look.number])
    text = f"{name}: the same, with only original tokens as queries, in head {look.head}"
    claims.append(Claim.of_all(text, "", [own], below=1))
    if others := look.heads_of(look.layer, others=True):
        deep = _ratio(look, series, "all", HEIGHT, others)
        text = f"{name}: the same in the heads of all other layers, where it is no arithmetic"
        claims.append(Claim.of_all(text, "", [deep], below=1))
    return claims


def _span(look: Look, series: str, name: str) -> Claim:
    """Whether the inserted tokens receive small and even weights in the head."""
    small = _ratio(look, series, "all", ("span", "original"), [look.number])
    of_span, of_others = (
        look.effects[series, "all", effect][:, look.number]
        for effect in ("span_spread", "original_spread")
    )
    spread = _mean(of_span - of_others)
    return Claim.of(
        f"{name}: in head {look.head} the inserted span receives small weights (measured: over "
        f"those of the original tokens) and near-uniform ones (its spread minus theirs: {spread})",
        "small, near-uniform weights",
        small,
        all_of([judge(small, below=1), judge(spread, below=0)]),
    )


def _scaling(look: Look, series: str, name: str) -> list[Claim]:
    """Whether attention outputs are scaled down, in the layer and in all others."""
    claims = []
    for others, where in ((False, f"layer {look.layer}"), (True, "all other layers")):
        if heads := look.heads_of(look.layer, others=others):
            factor, spread = (
                _mean(look.scaled(series, entry, heads)) for entry in ("lambda", "spread")
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
    look: Look, series: str, queries: str, effects: tuple[str, str], heads: Sequence[int]
) -> Interval:
    """The mean over heads of one effect over that of another, over prompts."""
    top, bottom = (
        look.effects[series, queries, effect][:, list(heads)].mean(1) for effect in effects
    )
    return UNKNOWN if np.isnan([top, bottom]).any() else ratio_of_means(top, bottom)


def _mean(values: Float[np.ndarray, "prompts"]) -> Interval:
    return UNKNOWN if not len(values) or np.isnan(values).any() else bootstrap(values)
