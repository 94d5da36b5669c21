"""Claims: which member of a family is reported, and what goes with each verdict."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import pytest

from headcount.claims import Claim, above_chance, deciding
from headcount.stats import Estimate, Interval, Resampling, simultaneous


def family(**means_and_spreads: tuple[float, float]) -> dict[str, Estimate]:
    """Members of 40 items, each with a mean and a standard deviation."""
    noise = np.linspace(-1, 1, 40)
    noise = (noise - noise.mean()) / noise.std()
    return {
        name: Resampling(range(40), seed=seed).estimate(mean + noise * spread)
        for seed, (name, (mean, spread)) in enumerate(means_and_spreads.items())
    }


def own(members: Mapping[str, Estimate], name: str) -> Interval:
    return dict(zip(members, simultaneous(list(members.values())), strict=True))[name]


@pytest.mark.parametrize(
    ("members", "reported", "verdict"),
    [
        # The value of Math is the lowest, but its interval is what leaves the claim open.
        ({"Syntax": (-0.1, 0.06), "Math": (-2.0, 30.0)}, "Math", "undecided"),
        # A refuted member decides, also beside one whose interval reaches farther up.
        ({"Syntax": (0.1, 0.06), "Math": (2.0, 30.0)}, "Syntax", "refuted"),
        # Of two refuted members, and of two supported ones, the one that is farther off.
        ({"Syntax": (0.1, 0.06), "Math": (0.2, 0.06)}, "Math", "refuted"),
        ({"Syntax": (-0.1, 0.06), "Math": (-0.2, 0.06)}, "Syntax", "supported"),
        # Of two undecided ones, too.
        ({"Syntax": (0.0, 1.0), "Math": (0.0, 3.0), "Recall": (-9.0, 0.1)}, "Math", "undecided"),
    ],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_family_reports_the_member_that_decides(
    members: dict[str, tuple[float, float]], reported: str, verdict: str, sign: int
) -> None:
    made = family(**{name: (sign * mean, spread) for name, (mean, spread) in members.items()})
    side = {"below": 0.0} if sign == 1 else {"above": 0.0}
    claim, interval = Claim.of_family("falls", None, made, **side), own(made, reported)
    assert claim.verdict == verdict
    assert (claim.measured, claim.low, claim.high) == (interval.value, interval.low, interval.high)
    assert claim.reason.endswith(f"{len(members)} intervals that hold together: {reported}.")
    expected = interval.detectable if verdict == "undecided" else math.nan
    assert claim.detectable == pytest.approx(expected, nan_ok=True)


def test_an_unknown_member_leaves_the_claim_open_and_is_named() -> None:
    made = family(Syntax=(-0.1, 0.06), Math=(-1.0, 40.0))
    made["Recall"] = Resampling(["a"] * 5).estimate(np.full(5, -3.0))
    claim = Claim.of_family("falls", None, made, below=0.0)
    assert claim.verdict == "undecided"
    assert "hold together: Recall." in claim.reason
    assert "There is no interval" in claim.reason


def test_a_band_is_left_where_the_interval_reaches_farthest_out_of_it() -> None:
    near, far = Interval(0.0, -0.2, 0.04, n=9), Interval(0.02, -0.04, 0.13, n=9)
    inside = Interval(0.0, -0.01, 0.01, n=9)
    assert deciding({"a": near, "b": far, "c": inside}, within=(-0.1, 0.1)) == ("a", "undecided")
    assert deciding({"b": far, "c": inside}, within=(-0.1, 0.1)) == ("b", "undecided")
    assert deciding({"c": inside}, within=(-0.1, 0.1)) == ("c", "supported")


def test_what_was_not_run_is_not_tested() -> None:
    claim = Claim.not_tested("recall falls first", "by 20 %", "Only one function was run.")
    assert (claim.verdict, claim.reason) == ("not tested", "Only one function was run.")
    assert claim.published == "by 20 %"
    numbers = (claim.measured, claim.low, claim.high, claim.detectable, claim.p_value)
    assert all(map(math.isnan, numbers))


def test_only_an_undecided_claim_says_what_it_would_have_found() -> None:
    found = Interval(0.1, -0.1, 0.3, n=40)
    claim = Claim.of("heads matter", None, found, "undecided")
    assert claim.because("A reason.").detectable == pytest.approx(found.detectable)
    assert math.isnan(claim.because("Another metric.", "not comparable").detectable)

    class AtChance:
        name, at_chance = "Math", "It is at chance."

    (judged,) = above_chance([AtChance()], lambda _: [claim])
    assert judged.verdict == "not comparable"
    assert math.isnan(judged.detectable)
