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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar

from headcount.stats import Estimate, Interval, simultaneous

Verdict = Literal["supported", "refuted", "undecided", "not comparable", "not tested"]


@dataclass(frozen=True)
class Claim:
    """One statement, what was published about it, what was measured, and the verdict.

    reason      the rule behind a verdict that an interval alone does not explain, why there is no
                interval, or which member of a family is reported
    detectable  where undecided: how far beyond the margin the truth must lie for such a sample to
                decide 8 times in 10, in the panel that decides
    p_value     of an exact test, where there is one

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
    detectable: float = math.nan
    p_value: float = math.nan

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
        detectable = interval.detectable if verdict == "undecided" else math.nan
        ends = interval.value, interval.low, interval.high
        return cls(claim, published, *ends, verdict, reason, detectable)

    @classmethod
    def of_family(
        cls,
        claim: str,
        published: str | None,
        family: Mapping[str, Estimate],
        *,
        above: float | None = None,
        below: float | None = None,
    ) -> Claim:
        """A claim that says "in every …", judged by intervals that hold together.

        The chance that any of them misses its truth is at most 5 %. It reports the member that
        decides the verdict, with its own interval, and names it: see `deciding`.
        """
        intervals = dict(zip(family, simultaneous(list(family.values())), strict=True))
        name, verdict = deciding(intervals, above=above, below=below)
        found = cls.of(claim, published, intervals[name], verdict)
        if len(family) == 1:
            return found
        told = f"Farthest from the claim, of {len(family)} intervals that hold together: {name}."
        return found.because(told)

    @classmethod
    def not_tested(cls, claim: str, published: str | None, why: str) -> Claim:
        """A claim about something that was not run; `why` says what is missing, in a sentence.

        >>> Claim.not_tested("recall falls first", None, "Only one function was run.").verdict
        'not tested'
        """
        return cls(claim, published, math.nan, math.nan, math.nan, "not tested", why)

    def because(self, reason: str, verdict: Verdict | None = None) -> Claim:
        """The same claim with a further reason, and with this verdict if one is given.

        Another verdict than "undecided" has no smallest effect that the sample would find. What was
        not tested stays so: there is nothing that could be compared.

        >>> Claim("heads matter", None, 0.1, 0.0, 0.2, "undecided").because("Chance.").reason
        'Chance.'
        """
        reasons = " ".join(filter(None, [reason, self.reason])).strip()
        verdict_now = self.verdict if self.verdict == "not tested" else verdict or self.verdict
        detectable = self.detectable if verdict_now == "undecided" else math.nan
        return replace(self, verdict=verdict_now, reason=reasons, detectable=detectable)


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
        return "There is no interval: resampling needs at least two examples."
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


def deciding(
    intervals: Mapping[str, Interval],
    *,
    above: float | None = None,
    below: float | None = None,
    within: tuple[float, float] | None = None,
) -> tuple[str, Verdict]:
    """The member of a family that decides a claim about all of them, and the verdict.

    A refuted member decides, or else an undecided one; among equals, the one whose interval reaches
    farthest from where the claim says, and an interval that is not known reaches farthest of all.

    >>> sure, wide = Interval(-0.1, -0.11, -0.09, n=50), Interval(-2.0, -7.0, 3.0, n=50)
    >>> deciding({"Syntax": sure, "Math": wide}, below=0.0)
    ('Math', 'undecided')
    """
    verdicts = {
        name: judge(interval, above=above, below=below, within=within)
        for name, interval in intervals.items()
    }
    verdict = all_of(list(verdicts.values()))
    decisive = [name for name in intervals if verdicts[name] == verdict]
    return max(decisive, key=lambda name: _missing(intervals[name], above, below, within)), verdict


def _missing(
    interval: Interval,
    above: float | None,
    below: float | None,
    within: tuple[float, float] | None,
) -> float:
    """How far the interval reaches out of where the claim says: its end that is farthest off."""
    if not interval.known:
        return math.inf
    if above is not None:
        return above - interval.low
    if below is not None:
        return interval.high - below
    least, most = within or (math.nan, math.nan)
    return max(least - interval.low, interval.high - most)


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
