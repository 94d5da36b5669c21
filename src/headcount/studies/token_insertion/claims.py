"""The claims of Figure 10 of "Meaningless Tokens, Meaningful Gains", judged by intervals.

Margins are fixed here, before anything is measured: an insert "raises" accuracy where the interval
of the paired difference lies above 0; peaks "keep their timing" where the correlation of the two
profiles is above 0.8; the inserted span is "near-uniform" where its coefficient of variation is
below that of the original tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from headcount.claims import Claim, all_of, judge
from headcount.heads import HeadLayout
from headcount.stats import Interval, bootstrap, paired_difference, ratio_of_means, wilson
from headcount.studies.token_insertion.look import Look

TIMING = 0.8
INSERTS = ("w/ Mless", "w/ Mful")
PUBLISHED = {
    "w/ Mless": "from about 64, 73 and 44 % to 66, 75 and 46 % (three models)",
    "w/ Mful": "from about 64, 73 and 44 % to 66, 74 and 48 % (three models)",
}
UNKNOWN = Interval(np.nan, np.nan, np.nan, 0)


@dataclass(frozen=True, eq=False)
class Outcome:
    """One model: right or wrong for every seed and problem of each condition, and a look inside."""

    model: str
    layout: HeadLayout
    right: dict[str, Float[np.ndarray, "seeds problems"]]
    clusters: Int[np.ndarray, "problems"]
    look: Look | None
    layer: int
    head: int | None


def difference(outcome: Outcome, series: str) -> Interval:
    """The accuracy under a condition less that without an insert, problem by problem.

    Where every problem comes out the same, resampling has no width; the interval is then what no
    change in n problems allows (Wilson).
    """
    found = paired_difference(
        outcome.right[series], outcome.right["w/o"], clusters=outcome.clusters
    )
    if found.known and found.high - found.low < 1e-12:
        most = wilson(0, found.n).high
        return Interval(found.value, found.value - most, found.value + most, found.n)
    return found


def judge_claims(outcome: Outcome) -> list[Claim]:
    """All claims about one model."""
    claims = [
        _claim(
            f"{outcome.model}: {series} raises accuracy (measured: the paired difference)",
            PUBLISHED[series],
            found,
            judge(found, above=0),
        )
        for series in INSERTS
        for found in [difference(outcome, series)]
    ]
    if outcome.look is not None and outcome.head is not None:
        for series in INSERTS:
            if (series, "lambda") not in outcome.look.affine:  # nothing was put in
                continue
            claims += _inside(outcome, outcome.look, series, outcome.head)
    return claims


def _claim(text: str, published: str, found: Interval, verdict: str) -> Claim:
    return Claim(text, published, found.value, found.low, found.high, verdict)


def _inside(outcome: Outcome, look: Look, series: str, head: int) -> list[Claim]:
    name = f"{outcome.model}: {series}"
    at = str(outcome.layout.head(head))
    others = [n for n in range(outcome.layout.total) if outcome.layout.layers[n] != outcome.layer]
    ratio = lowered(look, series, "all", [head])
    timing = _mean(look.effects[series, "all", "timing"][:, head])
    claims = [
        _claim(
            f"{name} lowers the attention peaks on the original tokens in head {at} (measured: "
            f"their height over that without) and keeps their timing (correlation {timing}, more "
            f"than {TIMING:g} asked)",
            "same spikes, lower",
            ratio,
            all_of([judge(ratio, below=1), judge(timing, above=TIMING)]),
        )
    ]
    own = lowered(look, series, "original", [head])
    claims.append(
        _claim(
            f"{name}: the same, with only original tokens as queries, in head {at}",
            "",
            own,
            judge(own, below=1),
        )
    )
    if others:
        deep = lowered(look, series, "all", others)
        claims.append(
            _claim(
                f"{name}: the same in the heads of all other layers, where it is no arithmetic",
                "",
                deep,
                judge(deep, below=1),
            )
        )
    small = _ratio(look, (series, "all", "span"), (series, "all", "original"), [head])
    spread = _mean(
        look.effects[series, "all", "span_spread"][:, head]
        - look.effects[series, "all", "original_spread"][:, head]
    )
    claims.append(
        _claim(
            f"{name}: in head {at} the inserted span receives small weights (measured: over those "
            f"of the original tokens) and near-uniform ones (its spread less theirs: {spread})",
            "small, near-uniform weights",
            small,
            all_of([judge(small, below=1), judge(spread, below=0)]),
        )
    )
    first = [n for n in range(outcome.layout.total) if outcome.layout.layers[n] == outcome.layer]
    for where, heads in ((f"layer {outcome.layer}", first), ("all other layers", others)):
        if heads:
            factor, spread = (_mean(look.scaled(series, e, heads)) for e in ("lambda", "spread"))
            claims.append(
                _claim(
                    f"{name}: attention outputs are scaled by λ < 1 in {where} (measured: the mean "
                    "of the heads' fitted λ, which any change lowers) and vary less (their spread "
                    f"over that without: {spread})",
                    "Attn_new = λ · Attn + bias with λ < 1",
                    factor,
                    all_of([judge(factor, below=1), judge(spread, below=1)]),
                )
            )
    return claims


def lowered(look: Look, series: str, queries: str, heads: Sequence[int]) -> Interval:
    """The height of the peaks with the insert over that without, over prompts."""
    keys = ((series, queries, "peak"), (series, queries, "peak_without"))
    return _ratio(look, *keys, heads)


def _ratio(
    look: Look,
    above: tuple[str, str, str],
    below: tuple[str, str, str],
    heads: Sequence[int],
) -> Interval:
    top, bottom = (look.effects[key][:, list(heads)].mean(1) for key in (above, below))
    return UNKNOWN if np.isnan([top, bottom]).any() else ratio_of_means(top, bottom)


def _mean(values: Float[np.ndarray, "prompts"]) -> Interval:
    return UNKNOWN if not len(values) or np.isnan(values).any() else bootstrap(values)
