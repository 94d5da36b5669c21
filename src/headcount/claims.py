"""Claims and verdicts: what was published, what was measured, and what may be concluded.

A verdict compares an interval with a margin that is fixed in code before the run:

supported        the whole interval lies where the claim says
refuted          no part of the interval lies where the claim says
undecided        neither: the sample is too small to tell
not comparable   the set-up rules the comparison out: another metric, another share of the heads, a
                 task at chance. This rule never looks at the values that the claim is about.
not tested       what the claim is about was not run
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar

from headcount.stats import Interval

Verdict = Literal["supported", "refuted", "undecided", "not comparable", "not tested"]


@dataclass(frozen=True)
class Claim:
    """One statement, what was published about it, what was measured, and the verdict.

    `reason` is the rule behind a verdict that an interval alone does not explain, or says why there
    is no interval.

    >>> fall = Interval(-0.12, low=-0.2, high=-0.04, n=50)
    >>> Claim.of("masking costs accuracy", None, fall, judge(fall, below=0.0)).verdict
    'supported'
    """

    claim: str
    published: str | None
    measured: float
    low: float
    high: float
    verdict: str
    reason: str = ""

    @classmethod
    def of(
        cls,
        claim: str,
        published: str | None,
        interval: Interval,
        verdict: Verdict,
        if_unknown: str = "",
    ) -> Claim:
        """A claim that was judged by an interval; `if_unknown` says why the interval is missing."""
        reason = "" if interval.known else if_unknown or _why_unknown(interval)
        return cls(claim, published, interval.value, interval.low, interval.high, verdict, reason)

    @classmethod
    def of_all(
        cls,
        claim: str,
        published: str | None,
        intervals: Sequence[Interval],
        *,
        above: float | None = None,
        below: float | None = None,
    ) -> Claim:
        """A claim that says "in every …"; it reports the interval farthest from supporting it."""
        farthest = (max if above is None else min)(intervals, key=lambda interval: interval.value)
        verdicts = [judge(interval, above=above, below=below) for interval in intervals]
        return cls.of(claim, published, farthest, all_of(verdicts))

    def because(self, reason: str, verdict: Verdict | None = None) -> Claim:
        """The same claim with a further reason, and with this verdict if one is given.

        >>> Claim("heads matter", None, 0.1, 0.0, 0.2, "undecided").because("Chance.").reason
        'Chance.'
        """
        reasons = " ".join(filter(None, [reason, self.reason]))
        return replace(self, verdict=verdict or self.verdict, reason=reasons)


class Judged(Protocol):
    """One panel that claims are about; `at_chance` is empty unless the whole model is at chance."""

    @property
    def name(self) -> str:
        """What the panel is called in reasons."""

    @property
    def at_chance(self) -> str:
        """One sentence, or an empty text."""


Panel = TypeVar("Panel", bound=Judged)


def above_chance(
    panels: Sequence[Panel],
    judge: Callable[[Sequence[Panel]], Sequence[Claim]],
    *,
    needed: Sequence[Panel] = (),
) -> list[Claim]:
    """Claims about those panels whose whole model is better than chance.

    The other panels are left out, and the claims say so. They are not comparable if no panel is
    left, or if one that is `needed` is at chance; their values are then those of all panels.
    """
    lost = [panel.name for panel in panels if panel.at_chance]
    if not lost:
        return list(judge(panels))
    reason = f"With all heads, the model is at chance on {', '.join(lost)}"
    kept = [panel for panel in panels if not panel.at_chance]
    if not kept or any(panel.at_chance for panel in needed):
        return [claim.because(f"{reason}.", "not comparable") for claim in judge(panels)]
    return [claim.because(f"{reason}, which is left out.") for claim in judge(kept)]


def _why_unknown(interval: Interval) -> str:
    if interval.n < 2:
        return "There is no interval: resampling needs at least two clusters of examples."
    return "There is no interval: the statistic divides by a mean that may be 0."


def judge(
    interval: Interval,
    *,
    above: float | None = None,
    below: float | None = None,
    within: tuple[float, float] | None = None,
) -> Verdict:
    """Judge a claim by a whole interval, never by the point estimate alone.

    The claim is that the true value lies above a bound, below one, or within two (bounds included).
    It is supported if that holds for the whole interval, refuted if it holds for no part of it.

    >>> fall = Interval(-0.12, low=-0.2, high=-0.04, n=50)
    >>> judge(fall, below=0.0), judge(fall, below=-0.05), judge(fall, within=(-0.03, 0.03))
    ('supported', 'undecided', 'refuted')
    """
    if sum(claim is not None for claim in (above, below, within)) != 1:
        raise ValueError("a claim has one of above, below and within")
    low, high = interval.low, interval.high  # comparisons with NaN are false: undecided
    if above is not None:
        supported, refuted = low > above, high <= above
    elif below is not None:
        supported, refuted = high < below, low >= below
    else:
        least, most = within or (math.nan, math.nan)
        supported, refuted = least <= low and high <= most, high < least or low > most
    return "supported" if supported else "refuted" if refuted else "undecided"


def all_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a claim that says "on every …".

    Verdicts "not comparable" and "not tested" count only if there are no others.

    >>> all_of(["supported", "undecided"]), all_of(["undecided", "refuted"])
    ('undecided', 'refuted')
    >>> all_of(["supported", "not comparable"]), all_of(["not comparable"])
    ('supported', 'not comparable')
    """
    for verdict in ("refuted", "undecided", "supported", "not comparable"):
        if verdict in verdicts:
            return verdict
    return "not tested"
