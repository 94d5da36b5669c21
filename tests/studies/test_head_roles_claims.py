"""The claims of head-roles, on changes of which we know what must come out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headcount.claims import Claim
from headcount.studies.head_roles.claims import judge_claims
from headcount.studies.head_roles.toggling import RoleCurves

COUNTS = (0, 2, 10, 50)
PROMPTS, SEEDS = 60, 3
FALLING = [0.0, -0.5, -2.0, -3.0]
FLAT = [0.0, 0.0, 0.02, -0.05]
RISING = [0.0, 0.4, 0.6, 0.2]
NAMES = ["falls", "near", "rises", "early", "first", "second", "math", "largest"]


def panel(
    task: str,
    facilitation: list[float] = FALLING,
    irrelevance: list[float] = FLAT,
    interference: list[float] = RISING,
    *,
    model: str = "a",
    parameters: int = 1,
    counts: tuple[int, ...] = COUNTS,
    noise: float = 0.2,
) -> RoleCurves:
    """A panel with these means; prompts and seeds scatter around them."""
    rng = np.random.default_rng(sum(f"{task}{model}".encode()))
    lines = {
        "facilitation": facilitation,
        "irrelevance": irrelevance,
        "interference": interference,
    }
    changes = {
        (role, count): mean + noise * rng.standard_normal((SEEDS, PROMPTS))
        for role, means in lines.items()
        for count, mean in zip(counts, means, strict=False)
    }
    return RoleCurves(task, model, "soft", counts, changes, np.arange(PROMPTS), parameters)


def published(**changes: object) -> list[RoleCurves]:
    math_falls = [0.0, -20.0, -80.0, -150.0]
    return [
        panel("Syntax", **changes),  # type: ignore[arg-type]
        panel("Common Sense", **changes),  # type: ignore[arg-type]
        panel("Math", math_falls, **changes),  # type: ignore[arg-type]
    ]


def verdicts(panels: list[RoleCurves]) -> dict[str, str]:
    claims = judge_claims(panels)
    names = NAMES[: len(claims)]
    if len({p.parameters for p in panels}) > 1 and "Math" not in {p.task for p in panels}:
        names = [*NAMES[:6], "largest"]
    return {name: claim.verdict for name, claim in zip(names, claims, strict=True)}


def test_what_was_published_is_supported_and_its_contradiction_is_not() -> None:
    claims = judge_claims(published())
    found = verdicts(published())
    assert found.pop("second") == "refuted"
    assert set(found.values()) == {"supported"}
    assert len(claims) == 7
    for claim in claims:
        assert claim.low <= claim.measured <= claim.high
        assert claim.published


def test_the_other_description_can_win_too() -> None:
    swapped = [
        panel(task, [0.0, 0.0, 0.02, 0.05], FALLING, [0.0, -0.5, -1.0, -2.0])
        for task in ("Syntax", "Common Sense", "Math")
    ]
    found = verdicts(swapped)
    assert found["first"] == "refuted"
    assert found["second"] == "supported"
    assert found["falls"] != "supported"
    assert found["rises"] == found["early"] == "refuted"
    assert found["near"] == "refuted"


def test_one_panel_is_enough_to_refute_what_is_said_of_every_panel() -> None:
    panels = [*published()[:2], panel("Math", [0.0, 0.2, 0.5, 1.0])]
    assert verdicts(panels)["falls"] == "refuted"


@pytest.mark.parametrize(
    ("irrelevance", "verdict"),
    [
        ([0, 0, -0.3, -0.6], "supported"),
        ([0, 0, -0.5, -1.0], "refuted"),
        ([0, 0, 0.5, 1.0], "refuted"),  # a rise is not near zero either
        ([0, 0, -0.4, -0.75], "undecided"),
    ],
)
def test_near_zero_is_a_quarter_of_the_fall(irrelevance: list[float], verdict: str) -> None:
    panels = [panel("Syntax", irrelevance=irrelevance), panel("Common Sense")]
    assert verdicts(panels)["near"] == verdict


def test_a_peak_that_chance_made_is_no_peak() -> None:
    """Of many counts some is highest: it must be so on prompts that did not choose it."""
    counts = tuple(range(0, 52, 2))
    flat = [0.0] * len(counts)
    supported = 0
    for number in range(12):
        one = panel(
            f"task {number}", flat, flat, flat, counts=counts, noise=1.0, model=f"m{number}"
        )
        supported += judge_claims([one])[2].verdict == "supported"
    assert supported <= 1


def test_a_peak_is_found_where_it_is() -> None:
    claim = judge_claims([panel("Common Sense", interference=[0, 0.3, 1.2, -0.5])])[2]
    assert claim.measured == pytest.approx(1.2, abs=0.1)
    assert f"Common Sense {claim.measured:.3g} [" in claim.claim


def test_interference_that_falls_at_once_falls_early() -> None:
    assert verdicts([panel("Syntax", interference=[0, -0.4, 0.5, 0.6])])["early"] == "refuted"


def test_math_need_not_be_the_most_sensitive() -> None:
    panels = [panel("Syntax"), panel("Common Sense"), panel("Math", [0.0, -0.1, -0.2, -0.3])]
    assert verdicts(panels)["math"] == "refuted"
    assert len(judge_claims(panels[:2])) == 6


def test_the_largest_model_is_held_against_all_smaller_ones() -> None:
    small = [panel("Syntax", model="small", parameters=1), panel("Syntax", model="mid")]
    less = [0.0, -0.2, -0.7, -1.2]
    large = panel("Syntax", less, model="large", parameters=9)
    assert verdicts([*small, large])["largest"] == "supported"
    large = panel("Syntax", [0.0, -1.0, -4.0, -8.0], model="large", parameters=9)
    assert verdicts([*small, large])["largest"] == "refuted"
    rises = judge_claims([*small, large])[2].claim
    assert "Syntax of small" in rises
    assert "Syntax of large" in rises


def test_models_with_fewer_heads_are_compared_at_what_all_have() -> None:
    few = panel("Syntax", model="few", counts=(0, 2, 8))
    many = panel("Syntax", model="many", counts=(0, 2, 8, 50))
    claims = judge_claims([few, many])
    assert "2 heads" in claims[3].claim
    assert "8 heads" in claims[0].claim
    assert judge_claims([panel("Syntax", counts=(0,))]) == []


def test_a_single_prompt_decides_nothing() -> None:
    changes = {
        (role, count): np.full((SEEDS, 1), -1.0)
        for role in ("facilitation", "irrelevance", "interference")
        for count in COUNTS
    }
    one = RoleCurves("Syntax", "a", "soft", COUNTS, changes, np.array([0]))
    claims: list[Claim] = judge_claims([one])
    assert {claim.verdict for claim in claims} == {"undecided"}
    assert all(math.isnan(claim.low) for claim in claims)


def test_a_panel_at_chance_is_left_out_of_claims() -> None:
    _, sense, maths = published()
    rising = replace(panel("Syntax", RISING, FALLING, FLAT), at_chance="At chance.")
    *others, most_sensitive = judge_claims([rising, sense, maths])
    reason = "With all heads, the model is at chance on Syntax (a)"
    assert {claim.reason for claim in others} == {f"{reason}, which is left out."}
    without = judge_claims([sense, maths])
    found = [(claim.verdict, claim.measured) for claim in others]
    assert found == [(claim.verdict, claim.measured) for claim in without]
    # A comparison of tasks needs each of them.
    assert (most_sensitive.verdict, most_sensitive.reason) == ("not comparable", f"{reason}.")
    lost = [replace(panel, at_chance="At chance.") for panel in published()]
    assert {claim.verdict for claim in judge_claims(lost)} == {"not comparable"}
