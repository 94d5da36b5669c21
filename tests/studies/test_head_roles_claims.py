"""The claims of head-roles, on changes of which we know what must come out."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from headcount.claims import Claim
from headcount.heads import HeadLayout
from headcount.rankings.causal_gates.result import CausalGates
from headcount.studies.head_roles.claims import judge_claims
from headcount.studies.head_roles.estimates import estimate
from headcount.studies.head_roles.panels import COLUMNS, SHARED, WHOLE, RolePanel, peaks_of
from headcount.studies.head_roles.published import FIRST, SECOND
from headcount.studies.head_roles.roles import HeadRoles
from headcount.studies.head_roles.toggling import RANDOM
from headcount.value_table import ValueTable

DOCS = Path(__file__).resolve().parents[2] / "docs"
COUNTS = (0, 2, 20, 50)
PROMPTS, SEEDS, HEADS = 60, 3, 270
FALLING = [0.0, -0.5, -2.0, -3.0]
FLAT = [0.0, 0.0, 0.02, -0.05]
RISING = [0.0, 0.4, 0.6, 0.2]
BY_CHANCE = [0.0, -0.1, -0.4, -0.9]  # of random orders
CHANCE = {"level": 0.5, "how": "guessing"}
# Each claim by the words that it starts with.
NAMES = {
    "falls": "facilitation falls",
    "near": "irrelevance stays",
    "rises": "interference rises",
    "early": "interference does not fall early",
    "first": "the first",
    "second": "the second",
    "chance": "roles tell more than chance",
    "math": "Math is by far the most sensitive task, in sum",
    "token": "Math is by far the most sensitive task, by the token",
    "largest": "the largest model",
}


def panel(
    task: str,
    facilitation: list[float] = FALLING,
    irrelevance: list[float] = FLAT,
    interference: list[float] = RISING,
    by_chance: list[float] = BY_CHANCE,
    *,
    counts: tuple[int, ...] = COUNTS,
    noise: float = 0.2,
    tokens: int = 1,
    prompts: int = PROMPTS,
    right: float = 1.0,
    **facts: Any,
) -> RolePanel:
    """A panel with these means; prompts and seeds scatter around them."""
    own = {"task": task, "model": facts.get("model", "a")}
    rng = np.random.default_rng(sum(f"{own}".encode()))
    values = ValueTable(COLUMNS, SHARED)
    values.name_examples([(f"p{i}", f"t{i % 6}", f"c{i}") for i in range(prompts)], **own)
    values.put(np.arange(prompts) < right * prompts, **own, **WHOLE)
    lines = {"facilitation": facilitation, "irrelevance": irrelevance, "interference": interference}
    lines[RANDOM] = [*by_chance, *[-1.0] * len(counts)]
    for role, means in lines.items():
        for count, mean in zip(counts, means, strict=False):
            table = mean + noise * rng.standard_normal((SEEDS, prompts))
            values.put(table, **own, base="soft", series=role, count=count)
    default = {"heads": HEADS, "parameters": 1, "tokens": [tokens] * prompts, "chance": CHANCE}
    carriers = {"carriers": {"facilitation": 100.0, "irrelevance": 100.0, "interference": 12.5}}
    gates = np.full((SEEDS, HEADS), 0.5)
    roles = {"roles": HeadRoles.of(CausalGates(HeadLayout((HEADS,)), gates, gates)).facts()}
    return RolePanel(values, {**default, **carriers, **roles, **own, **facts})


def published(**changes: Any) -> list[RolePanel]:
    math_falls = [0.0, -20.0, -80.0, -150.0]
    return [
        panel("Syntax", **changes),
        panel("Common Sense", **changes),
        panel("Math", math_falls, **changes),
    ]


def named(panels: list[RolePanel]) -> dict[str, Claim]:
    """The claims by their short names."""
    claims = judge_claims(panels)
    found = {
        name: claim
        for claim in claims
        for name, words in NAMES.items()
        if claim.claim.startswith(words)
    }
    assert len(found) == len(claims)
    return found


def verdicts(panels: list[RolePanel]) -> dict[str, str]:
    return {name: claim.verdict for name, claim in named(panels).items()}


def test_what_was_published_is_supported_and_its_contradiction_is_not() -> None:
    claims = named(published())
    found = verdicts(published())
    assert found.pop("second") == "refuted"
    assert found.pop("largest") == "not tested"
    assert set(found.values()) == {"supported"}
    assert list(claims) == list(NAMES)
    for name, claim in claims.items():
        assert claim.low <= claim.measured <= claim.high or name == "largest"
        # The paper sums, and has no random orders.
        assert bool(claim.published) == (name not in ("token", "chance"))


def test_heads_that_any_order_loses_show_no_role() -> None:
    """Facilitation falls, but no further than random orders do."""
    assert named(published())["chance"].measured == pytest.approx(-2 + 0.4, abs=0.1)
    alike = [0.0, -0.5, -1.95, -3.0]
    found = verdicts([panel("Syntax", by_chance=alike, noise=0.02), panel("Common Sense")])
    assert (found["falls"], found["chance"]) == ("supported", "refuted")


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("falls", {"facilitation": [0.0, -0.05, -0.05, -0.05]}),
        ("rises", {"interference": [0.0, 0.02, 0.02, 0.02]}),
        ("chance", {"by_chance": [0.0, -0.5, -1.95, -3.0]}),
        ("second", {"irrelevance": [-0.05] * 4, "interference": [-0.05] * 4}),
    ],
)
def test_a_change_that_differs_from_zero_but_is_tiny_is_no_finding(
    name: str, lines: dict[str, list[float]]
) -> None:
    """Noise is small enough to tell each change from 0."""
    one = panel("Syntax", noise=0.01, **lines)  # type: ignore[arg-type]
    claim = named([one])[name]
    assert claim.verdict == "refuted"
    first = next(iter(lines))
    if first != "by_chance":
        found = one.at(first, 20).interval
        assert found.low > 0 or found.high < 0


def test_claims_say_their_count_as_a_share_and_what_the_end_of_the_range_says() -> None:
    claim = named([panel("Syntax")])["falls"]
    assert "with 20 of 270 heads (7.4 %) ablated" in claim.claim
    assert claim.measured == pytest.approx(-2, abs=0.1)
    assert claim.reason.startswith("At the end of the range, with 50 of 270 heads (18.5 %) ablated")
    assert "-3.0" in claim.reason
    assert claim.reason.endswith("supported.")
    ends_there = named([panel("Syntax", counts=(0, 2, 20))])["falls"]
    assert ends_there.reason == ""


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


@pytest.mark.parametrize(
    ("facilitation", "interference", "verdict"),
    [
        (FALLING, [0, 0.4, -0.3, -1.0], "supported"),  # the end of the range stands beside
        (FALLING, [0, 0.4, -1.0, -1.0], "refuted"),  # it lies above facilitation, and falls
        (FALLING, [0, 0.4, 1.8, 1.0], "supported"),  # it may rise, as the description itself says
        ([0.0, -0.5, 0.5, 1.0], [0, 0.4, 1.0, 1.0], "refuted"),  # the lowest, and does not fall
    ],
)
def test_the_first_description_needs_the_others_to_stay(
    facilitation: list[float], interference: list[float], verdict: str
) -> None:
    panels = [panel("Syntax"), panel("Math", facilitation, interference=interference)]
    claim = named(panels)["first"]
    assert claim.verdict == verdict
    if interference[2] == -1.0:
        assert "Math (a), interference does not fall" in claim.reason


def test_irrelevance_that_falls_refutes_the_first_description_too() -> None:
    for irrelevance in ([0, 0, -1.0, -1.0], [0, 0, 1.0, 1.0]):
        assert verdicts([panel("Syntax", irrelevance=irrelevance)])["first"] == "refuted"


def test_facilitation_that_falls_is_not_flat() -> None:
    """The others fall further, but the second description says that facilitation stays."""
    steep = [0.0, -2.0, -4.0, -8.0]
    for facilitation, verdict in (([0, 0, -0.5, -1], "supported"), (FALLING, "refuted")):
        found = verdicts([panel("Syntax", facilitation, steep, steep)])
        assert found["second"] == verdict


def test_one_panel_is_enough_to_refute_what_is_said_of_every_panel() -> None:
    panels = [*published()[:2], panel("Math", [0.0, 0.2, 0.5, 1.0])]
    claim = named(panels)["falls"]
    assert claim.verdict == "refuted"
    assert "of 3 intervals that hold together: Math (a)." in claim.reason


@pytest.mark.parametrize(
    ("irrelevance", "verdict"),
    [
        ([0, 0, -0.3, -0.6], "supported"),
        ([0, 0, -0.7, -1.0], "refuted"),
        ([0, 0, 0.7, 1.0], "refuted"),  # a rise is not near zero either
        ([0, 0, -0.5, -0.75], "undecided"),
    ],
)
def test_near_zero_is_a_quarter_of_the_fall(irrelevance: list[float], verdict: str) -> None:
    panels = [panel("Syntax", irrelevance=irrelevance), panel("Common Sense")]
    claim = named(panels)["near"]
    assert claim.verdict == verdict
    assert math.isnan(claim.detectable) == (verdict != "undecided")


def test_a_peak_that_chance_made_is_no_peak() -> None:
    """Of many counts some is highest: it must be so on prompts that did not choose it."""
    counts = tuple(range(0, 52, 2))
    flat = [0.0] * len(counts)
    panels = [
        panel(f"task {number}", flat, flat, flat, counts=counts, noise=1.0, model=f"m{number}")
        for number in range(12)
    ]
    supported = [verdicts([one])["rises"] == "supported" for one in panels]
    assert sum(supported) <= 1
    values = [max(one.curve("interference").value[1:]) for one in panels]
    assert min(values) > 0.05  # the highest point of a curve is always a peak
    assert np.mean([peaks_of([one])[0][1].low for one in panels]) < 0


def test_a_peak_is_found_where_it_is() -> None:
    panels = [panel("Common Sense", interference=[0, 0.3, 1.2, -0.5]), panel("Syntax")]
    claim = named(panels)["rises"]
    assert claim.measured == pytest.approx(0.6, abs=0.1)  # that of Syntax, which is lower
    ((count, peak),) = peaks_of(panels[:1])
    assert (count, peak.n) == (20, PROMPTS)
    assert peak.value == pytest.approx(1.2, abs=0.1)
    assert peak.low < 1.2 < peak.high


def test_interference_that_falls_at_once_falls_early() -> None:
    assert verdicts([panel("Syntax", interference=[0, -0.4, 0.5, 0.6])])["early"] == "refuted"


def test_math_need_not_be_the_most_sensitive() -> None:
    panels = [panel("Syntax"), panel("Common Sense"), panel("Math", [0.0, -0.1, -0.2, -0.3])]
    assert verdicts(panels)["math"] == "refuted"
    deeper = [0.0, -0.5, -3.0, -5.0]  # deeper than the others, but not by far
    assert verdicts([*panels[:2], panel("Math", deeper)])["math"] == "refuted"
    claims = named(panels[:2])
    for name in ("math", "token"):
        assert claims[name].verdict == "not tested"
        assert claims[name].reason.startswith("No model was run on all of Syntax")
        assert math.isnan(claims[name].measured)


def test_by_the_token_long_targets_do_not_make_a_task_sensitive() -> None:
    falls = [0.0, -20.0, -40.0, -80.0]
    short = [panel("Syntax"), panel("Common Sense"), panel("Math", falls)]
    assert verdicts(short)["math"] == verdicts(short)["token"] == "supported"
    long = [panel("Syntax"), panel("Common Sense"), panel("Math", falls, tokens=30)]
    assert (verdicts(long)["math"], verdicts(long)["token"]) == ("supported", "refuted")
    gap = named(long)["token"].measured
    assert gap == pytest.approx(-40 / 30 + 2 * 2, abs=0.1)


def test_a_cell_may_be_missing() -> None:
    """Math of one model is not there: the other model still tells which task is most sensitive."""
    both = [*published(), panel("Syntax", model="b"), panel("Common Sense", model="b")]
    claim = named(both)["math"]
    assert claim.verdict == "supported"
    assert "of 2 intervals" in claim.reason
    assert verdicts([*both[:2], *both[3:]])["math"] == "not tested"


def test_the_largest_model_is_held_against_all_smaller_ones() -> None:
    small = [panel("Syntax", model="small"), panel("Syntax", model="mid", parameters=2)]
    large = panel("Syntax", [0.0, -0.2, -0.7, -1.2], model="large", parameters=9)
    assert verdicts([*small, large])["largest"] == "supported"
    large = panel("Syntax", [0.0, -1.0, -4.0, -8.0], model="large", parameters=9)
    claim = named([*small, large])["largest"]
    assert claim.verdict == "refuted"
    assert "of 2 intervals that hold together: Syntax, large and " in claim.reason
    slightly = panel("Syntax", [0.0, -0.45, -1.95, -2.9], model="large", parameters=9, noise=0.01)
    smaller = panel("Syntax", model="small", noise=0.01)
    assert verdicts([smaller, slightly])["largest"] == "refuted"  # less, but hardly
    for panels in (small[:1], [panel("Math"), panel("Math", model="b", parameters=2)]):
        claim = named(panels)["largest"]
        assert (claim.verdict, claim.published) == ("not tested", claim.claim)
        assert "models of different sizes" in claim.reason


def test_models_are_compared_at_the_same_share_of_their_heads() -> None:
    few = panel("Syntax", model="few", heads=27, counts=(0, 2, 8))
    many = panel("Syntax", model="many", parameters=2)
    claims = named([few, many])
    assert "with 2 of 27 heads (7.4 %) and 20 of 270 heads (7.4 %) ablated" in claims["falls"].claim
    gap = few.at("facilitation", 2).value - many.at("facilitation", 20).value
    assert claims["largest"].measured == pytest.approx(-gap)
    assert judge_claims([panel("Syntax", counts=(0,))]) == []


def test_other_shares_of_the_heads_are_not_comparable() -> None:
    claims = named([panel("Syntax"), panel("Math", heads=100, counts=(0, 50))])
    reason = "the nearest that was measured is 50 of 100 heads (50.0 %)."
    for name, claim in claims.items():
        if claim.verdict == "not tested":
            continue
        # Two are about the first heads, wherever the curve ends; one is our own.
        compared = name in ("rises", "early", "chance")
        assert (claim.verdict == "not comparable") == (not compared)
        assert (reason in claim.reason) == (not compared)


def test_a_single_prompt_decides_nothing() -> None:
    claims = named([panel("Syntax", prompts=1)])
    assert all(math.isnan(claim.low) for claim in claims.values())
    not_run = {name for name, claim in claims.items() if claim.verdict == "not tested"}
    assert not_run == {"math", "token", "largest"}
    assert {claim.verdict for claim in claims.values()} == {"not tested", "undecided"}


def test_a_panel_at_chance_is_left_out_of_claims() -> None:
    _, sense, maths = published()
    rising = panel("Syntax", RISING, FALLING, FLAT, right=0.5)
    found = named([rising, sense, maths])
    reason = "With all heads, the model is at chance on Syntax (a)"
    # Comparisons of tasks need each of them.
    for name in ("math", "token"):
        assert found[name].verdict == "not comparable"
        assert found.pop(name).reason.startswith(f"{reason}. ")
    without = named([sense, maths])
    not_run = [name for name, claim in without.items() if claim.verdict == "not tested"]
    assert not_run == ["math", "token", "largest"]
    assert found.pop("largest").verdict == "not tested"
    assert [*found, *not_run] == list(without)
    for name, claim in found.items():
        assert claim.reason.startswith(f"{reason}, which is left out.")
        assert (claim.verdict, claim.measured) == (without[name].verdict, without[name].measured)
    lost = named(published(right=0.4))
    assert lost.pop("largest").verdict == "not tested"
    assert {claim.verdict for claim in lost.values()} == {"not comparable"}


# The tables beside the claims


def tables(one: RolePanel) -> dict[str, list[dict[str, Any]]]:
    found = estimate(one.values, {"bases": ["soft"], "panels": [one.facts]})
    return {title: [dict(row) for row in rows] for title, rows in found.tables.items()}


def test_end_points_stand_beside_the_published_ones() -> None:
    counts = (0, 2, 14, 20, 26, 50)
    own = panel("Syntax", [0, -1, -4, -6, -8, -20], [0] * 6, [0, 0, -1, -1, -2, -5], counts=counts)
    rows = tables(own)["End points"]
    facilitation = [row for row in rows if row["series"] == "facilitation"]
    assert [row["published model"] for row in facilitation] == [
        *("L3.2-1B", "L3.2-3B", "L3.2-3B-I", "L3.1-8B")
    ]
    assert [row["count"] for row in facilitation] == [26, 20, 20, 14]
    assert [row["published"] for row in facilitation] == [
        *("end point -3.2", "end point -2.2", "end point -2.8", "end point -1.2")
    ]
    assert [round(row["value"]) for row in facilitation] == [-8, -6, -6, -4]
    ratios = [row["of the fall"] for row in rows if row["series"] == "interference"]
    np.testing.assert_allclose(ratios, [-2 / 8, -1 / 6, -1 / 6, -1 / 4], atol=0.02)


def test_the_two_descriptions_stand_side_by_side_with_their_verdicts() -> None:
    own = panel("Syntax")
    rows = tables(own)["Two descriptions"]
    found = {claim.published: claim.verdict for claim in judge_claims([own])}
    assert (rows[-1]["first"], rows[-1]["second"]) == (found[FIRST], found[SECOND])
    by_name = {row["what"]: (row["first"], row["second"]) for row in rows}
    assert by_name["third row of panels"] == ("Math", "Match")
    assert by_name["colours in this order"] == ("green, blue, red", "blue, yellow, red")
    page = (DOCS / "studies" / "head-roles.md").read_text(encoding="utf-8")
    for row in rows[:-1]:
        assert f" | {row['first']} | {row['second']} |" in page
    numbered = [row["what"][:2] for row in rows if row["what"][0].isdecimal()]
    assert numbered == ["1.", "2.", "3.", "4."]


def test_peaks_have_the_count_whose_interval_lies_highest() -> None:
    (row,) = tables(panel("Common Sense", interference=[0, 0.3, 1.2, -0.5]))[
        "Peaks of interference"
    ]
    assert (row["count"], row["n"], row["published"]) == (20, PROMPTS, "+0.5, +1, +1.5, +1.2")
    assert row["low together"] <= row["low"] <= row["value"] <= row["high"]
