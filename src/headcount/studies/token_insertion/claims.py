"""The claims of Figure 10 of "Meaningless Tokens, Meaningful Gains", judged by intervals.

Margins are fixed here, before anything is measured. An insert "raises" accuracy if the paired
difference is above 0, and makes no difference worth the name if it is less than two points either
way. It "lowers" peaks if they fall below 0.95 of what is left of a uniform reader's on the same
prompts, because added tokens take a share of the attention of any reader. Peaks "keep their timing"
if the correlation of the two profiles is above 0.8. The inserted span receives "small" weights if
its weight over that of the original tokens is below 0.9 of what a uniform reader gives it on the
same prompts, and "near-uniform" ones if its coefficient of variation is at most a quarter of the
way from that of a uniform reader to that of the original tokens. Outputs are scaled by λ < 1 if the
fitted λ is below 0.95, as published; that they also vary less is a claim of our own, with the same
margin, because any unrelated change of the outputs lowers a fitted λ.

Rules of comparison, which look at nothing that a claim is about: the published gains start from 44
to 73 % right answers. A model whose accuracy without an insert is more than 15 points outside that
range is not comparable: it has no room for a gain, or hardly solves the problems. Nothing is
comparable on a task at chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from headcount.claims import Claim, above_chance, all_of, deciding, judge
from headcount.stats import Estimate, simultaneous
from headcount.studies.token_insertion.internals import HEIGHT, OTHERS, UNIFORM
from headcount.studies.token_insertion.panels import InsertPanel

SAME = 0.02
LOWER = 0.95
TIMING = 0.8
SMALL = 0.9
EVEN = 0.25
WEIGHT = ("span", "original")  # numerator and denominator of the weight of an inserted token
BASELINE, BAND = (0.44, 0.73), 0.15  # published accuracies without an insert
PUBLISHED = {
    "w/ Mless": "from about 64, 73 and 44 % to 66, 75 and 46 % (three models, MATH-500)",
    "w/ Mful": "from about 64, 73 and 44 % to 66, 74 and 48 % (three models, MATH-500)",
}
PEAKS, WEIGHTS = "same spikes, lower", "small, near-uniform weights"
SCALED = "Attn_new = λ · Attn + bias with λ < 1"
UNDEFINED = (
    "The prompts are too short for attention profiles, or the heads are silent, so that the "
    "statistic is not defined."
)


def judge_claims(panels: Sequence[InsertPanel]) -> list[Claim]:
    """All claims about the first task: about accuracy, and about internals.

    Models that are at chance without an insert are left out, or make claims not comparable.
    """
    claims = above_chance(panels, _about_accuracy)
    read = [panel for panel in panels if panel.inside]
    return claims + (above_chance(read, _about_internals) if read else [])


def _about_accuracy(panels: Sequence[InsertPanel]) -> list[Claim]:
    graded = [series for series in PUBLISHED if series in panels[0].changed]
    return [about(panels, s) for s in graded for about in (_gain, _no_difference)]


def _about_internals(panels: Sequence[InsertPanel]) -> list[Claim]:
    return [
        claim
        for series in panels[0].inserts
        for about in (_peaks, _span, _scaling)
        for claim in about(panels, series)
    ]


def _in_all(panels: Sequence[InsertPanel]) -> str:
    return " in every model" * (len(panels) > 1)


def _gain(panels: Sequence[InsertPanel], series: str) -> Claim:
    far = [p for p in panels if not _near(p.without.value)]
    kept = [p for p in panels if p not in far] or panels
    family = {panel.model: panel.differences[series] for panel in kept}
    claim = Claim.of_family(
        f"{series} raises accuracy{_in_all(kept)} (measured: accuracy with the insert − without "
        "it, paired by problem)",
        PUBLISHED[series],
        family,
        above=0,
    )
    claim = _with_p_value(claim, kept, series)
    if not far:
        return claim
    named = ", ".join(f"{p.model} {p.without.value:.2f}" for p in far)
    reason = (
        f"Without an insert, accuracy lies more than {BAND:g} outside the published "
        f"{BASELINE[0]:g} to {BASELINE[1]:g}: {named}"
    )
    if kept is panels:
        return claim.because(f"{reason}.", "not comparable")
    return claim.because(f"{reason}, which is left out.")


def _near(accuracy: float) -> bool:
    return BASELINE[0] - BAND <= accuracy <= BASELINE[1] + BAND


def _with_p_value(claim: Claim, panels: Sequence[InsertPanel], series: str) -> Claim:
    """The claim with McNemar's p of the model that it reports, times the number of models."""
    intervals = {
        panel.model: interval
        for panel, interval in zip(
            panels, simultaneous([panel.differences[series] for panel in panels]), strict=True
        )
    }
    name, _ = deciding(intervals, above=0)
    (reported,) = (panel for panel in panels if panel.model == name)
    p_value = float(np.minimum(len(panels) * reported.p_value(series), 1.0))
    found = replace(claim, p_value=p_value)
    two_sided = "McNemar's exact p, two-sided: a loss can be as unlikely as a gain."
    if len(panels) == 1:
        return found.because(two_sided)
    return found.because(f"{two_sided} It is that of {name}, times {len(panels)} models.")


def _no_difference(panels: Sequence[InsertPanel], series: str) -> Claim:
    """Our own claim that nothing happens, which needs a margin: an interval within ± 2 points."""
    found = [panel.differences[series] for panel in panels]
    intervals = simultaneous(found)
    verdict = all_of([judge(interval, within=(-SAME, SAME)) for interval in intervals])
    farthest = max(range(len(panels)), key=lambda i: abs(intervals[i].value))
    claim = Claim.of(
        f"{series} changes accuracy by less than {100 * SAME:g} points either way"
        f"{_in_all(panels)} (measured: accuracy with the insert − without it, paired by problem)",
        None,
        intervals[farthest],
        verdict,
    )
    if len(panels) == 1:
        return claim
    name = panels[farthest].model
    return claim.because(f"Farthest from 0, of {len(panels)} intervals that hold together: {name}.")


def _places(panels: Sequence[InsertPanel]) -> dict[str, tuple[str, list[str]]]:
    """The head and the mean over its layer: in words, and as each panel's values call them."""
    insides = [panel.inside for panel in panels]
    heads = [str(inside["head"]) for inside in insides]
    layer = insides[0]["layer"]
    named = f"head {heads[0]}" if len(set(heads)) == 1 else f"the drawn head of layer {layer}"
    mean = f"layer {layer}"
    return {
        "head": (f"in {named}", heads),
        "layer": (f"on the mean over the heads of {mean}", [mean] * len(heads)),
    }


def _judged(
    text: str,
    published: str | None,
    family: Mapping[str, Estimate],
    uniform: Sequence[str] = (),
    **bound: float,
) -> Claim:
    """A claim about internals; `uniform` says what a uniform reader gives in each model."""
    claim = Claim.of_family(text, published, family, **bound)
    if math.isnan(claim.measured):
        return claim.because(UNDEFINED)
    return claim.because(f"A uniform reader gives {', '.join(uniform)}.") if uniform else claim


def _peaks(panels: Sequence[InsertPanel], series: str) -> list[Claim]:
    """Whether the insert lowers the peaks on the original tokens, and keeps their timing."""
    claims = []
    for which, (words, wheres) in _places(panels).items():
        claims.append(_lower(panels, series, words, wheres, PEAKS if which == "head" else None))
        if which == "head":
            pairs = zip(panels, wheres, strict=True)
            both = {
                p.model: p.means(series, [("timing", where), ("timing", UNIFORM)])
                for p, where in pairs
            }
            text = (
                f"{series} keeps the timing of these peaks {words} (measured: correlation of the "
                f"profiles with and without the insert, above {TIMING:g} required)"
            )
            timing = {model: measured for model, (measured, _) in both.items()}
            uniform = [f"{even.value:.3g}" for _, even in both.values()]
            claims.append(_judged(text, PEAKS, timing, uniform, above=TIMING))
    if all(p.has(series, HEIGHT[0], OTHERS) for p in panels):
        words = "in all other layers, where the softmax alone does not explain it"
        claims.append(_lower(panels, series, words, [OTHERS] * len(panels), None))
    return claims


def _lower(
    panels: Sequence[InsertPanel],
    series: str,
    words: str,
    wheres: Sequence[str],
    published: str | None,
) -> Claim:
    """Whether the peaks fall further than a uniform reader's."""
    pairs = zip(panels, wheres, strict=True)
    found = {p.model: p.ratio(series, HEIGHT, where) for p, where in pairs}
    left = ", ".join(f"{one.value:.3g}" for one, _, _ in found.values())
    text = (
        f"{series} lowers the attention peaks on the original tokens {words}, below {LOWER:g} of "
        f"what is left of a uniform reader's (measured: peak height with the insert / without, "
        f"{left}, over that of a uniform reader)"
    )
    uniform = [f"{even.value:.3g}" for _, even, _ in found.values()]
    family = {model: over for model, (_, _, over) in found.items()}
    return _judged(text, published, family, uniform, below=LOWER)


def _span(panels: Sequence[InsertPanel], series: str) -> list[Claim]:
    """Whether the inserted tokens receive small weights, and whether these are near-uniform."""
    claims = []
    for which, (words, wheres) in _places(panels).items():
        published = WEIGHTS if which == "head" else None
        pairs = list(zip(panels, wheres, strict=True))
        found = {p.model: p.ratio(series, WEIGHT, where) for p, where in pairs}
        small = {model: over for model, (_, _, over) in found.items()}
        ratios = ", ".join(f"{one.value:.3g}" for one, _, _ in found.values())
        text = (
            f"{series}: {words} the inserted span receives small weights, below {SMALL:g} of what "
            "a uniform reader gives it (measured: weight of inserted / of original tokens, "
            f"{ratios}, over that of a uniform reader)"
        )
        uniform = [f"{even.value:.3g}" for _, even, _ in found.values()]
        claims.append(_judged(text, published, small, uniform, below=SMALL))
        uneven = {p.model: p.unevenness(series, where) for p, where in pairs}
        text = (
            f"{series}: {words} the inserted span receives near-uniform weights (measured: "
            "coefficient of variation over inserted tokens, where 0 is that of a uniform reader "
            f"and 1 that of the original tokens; below {EVEN:g} required)"
        )
        claims.append(_judged(text, published, uneven, below=EVEN))
    return claims


def _scaling(panels: Sequence[InsertPanel], series: str) -> list[Claim]:
    """Whether attention outputs are scaled down, in the layer and in all other layers.

    The published claim is about the fitted λ alone. Any unrelated change of the outputs lowers that
    too, so whether they also vary less is a claim of our own.
    """
    layer = f"layer {panels[0].inside['layer']}"
    claims = []
    for where, words in ((layer, layer), (OTHERS, f"all layers but {layer}")):
        if not all(p.has(series, "lambda", where, "") for p in panels):
            continue
        for entry, said, published in (
            ("lambda", f"the fitted λ is below {LOWER:g} (measured: λ, mean over heads)", SCALED),
            (
                "spread",
                f"outputs vary less: their standard deviation is below {LOWER:g} of that without "
                "the insert (measured: the ratio of the two, mean over heads)",
                None,
            ),
        ):
            family = {p.model: p.mean(series, entry, where, "") for p in panels}
            claims.append(_judged(f"{series}: in {words}, {said}", published, family, below=LOWER))
    return claims
