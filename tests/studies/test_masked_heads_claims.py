"""The claims of masked-heads, on curves of which we know what must come out."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from function_panels import COUNTS, TOTAL, Function, made

from headcount.claims import Claim
from headcount.heads import HeadLayout
from headcount.studies.masked_heads.claims import bracket, far_unmasked, judge_claims, other_set_up
from headcount.studies.masked_heads.estimates import against_the_direction, rank_rows
from headcount.studies.masked_heads.study import published_counts

FLAT = [0.9, 0.9, 0.9, 0.88, 0.85]
PUBLISHED = {
    "retrieval": Function([0.9, 0.85, 0.75, 0.1, 0.0], FLAT, [1.0, 0.95, 0.9, 0.5, 0.4]),
    "knowledge-recall": Function([0.9, 0.5, 0.6, 0.05, 0.0], FLAT, [1.0, 0.8, 0.8, 0.5, 0.4]),
    "math": Function([0.9, 0.85, 0.7, 0.2, 0.1], FLAT, [1.0, 0.95, 0.9, 0.6, 0.6]),
    "inference": Function([0.9, 0.85, 0.7, 0.2, 0.1], FLAT, [1.0, 0.95, 0.9, 0.6, 0.6]),
}
BACKWARDS = Function([0.9] * 5, [0.9, 0.8, 0.8, 0.8, 0.8], [1.0] * 5)  # random heads cost more
FASTER, ACCURACY, SHAPE, ONSET, FIRST, OURS, LAYERS = range(7)  # the order of the claims


def every(**changes: object) -> dict[str, Function]:
    """All published functions with the same changes."""
    return {key: replace(one, **changes) for key, one in PUBLISHED.items()}  # type: ignore[arg-type]


def judged(functions: Mapping[str, Function], **how: object) -> list[Claim]:
    panels, facts = made(functions, **how)  # type: ignore[arg-type]
    return judge_claims(panels, facts)


def verdicts(functions: Mapping[str, Function], **how: object) -> list[str]:
    return [claim.verdict for claim in judged(functions, **how)]


# What the intervals say


def test_what_was_published_is_supported() -> None:
    claims = judged(PUBLISHED)
    assert [claim.verdict for claim in claims] == ["supported"] * 7
    for claim in claims:
        assert claim.low <= claim.measured <= claim.high
        assert math.isnan(claim.detectable)  # which only an undecided verdict needs
    assert all(claim.published for claim in claims[:OURS])
    assert [claim.published for claim in claims[OURS:]] == [None, None]


def test_rankings_that_find_nothing_refute_the_gap() -> None:
    found = verdicts(every(top=FLAT))
    assert found[FASTER] == found[OURS] == found[LAYERS] == "refuted"
    assert found[SHAPE] != "supported"  # nothing to be flat against


def test_one_panel_that_fails_refutes_every_and_is_the_one_that_is_reported() -> None:
    """Not the luckiest panel with its own interval, but the one farthest from the claim."""
    weak = {**PUBLISHED, "math": BACKWARDS}
    panels, facts = made(weak)
    claims = judge_claims(panels, facts)
    assert claims[OURS].verdict == "refuted"
    assert "of 4 intervals that hold together: Math Calculation." in claims[OURS].reason
    gaps = [panels[2].difference("random", count) for count in COUNTS[1:]]
    assert claims[OURS].measured == pytest.approx(np.mean([gap.value for gap in gaps]))
    # Intervals that hold together are wider than one that stands for itself.
    alone = sum(gaps[1:], start=gaps[0]) * (1 / len(gaps))
    assert claims[OURS].low < alone.interval.low
    assert claims[OURS].high > alone.interval.high


def test_layers_alone_may_explain_the_gap() -> None:
    """Random heads of the same layers that hurt as much as TopK refute the second control only."""
    found = verdicts({k: replace(f, matched=f.top) for k, f in PUBLISHED.items()})
    assert (found[OURS], found[LAYERS]) == ("supported", "refuted")


@pytest.mark.parametrize(
    "top", [[0.9, 0.1, 0.05, 0.0, 0.0], [0.9, 0.9, 0.9, 0.85, 0.1]], ids=["early", "late"]
)
def test_another_collapse_refutes_the_onset(top: list[float]) -> None:
    assert verdicts(every(top=top))[ONSET] == "refuted"


@pytest.mark.parametrize(
    ("counts", "between"),
    [
        ((4, 8, 16, 32), (8, 16)),  # of 256 heads the published range is 8 to 16
        ((6, 12, 24), (6, 24)),
        ((4, 8, 12), "No count from 16 to 24"),  # nothing at its end or behind it
        ((4, 8, 32), "No count from 16 to 24"),
        ((4, 10, 16), "No count from 6 to 8"),
    ],
)
def test_the_onset_is_judged_between_counts_that_bracket_the_published_range(
    counts: tuple[int, ...], between: tuple[int, int] | str
) -> None:
    found = bracket(counts, TOTAL)
    top = {0: 0.9, 4: 0.9, 6: 0.9, 8: 0.85, 10: 0.7, 12: 0.6, 16: 0.1, 24: 0.1, 32: 0.0}
    shares = [top[count] for count in (0, *counts)]
    how = {"top": shares, "random": [0.9] * len(shares), "comet": shares}
    panels, facts = made(every(**how), counts=(0, *counts))
    (claim,) = [c for c in judge_claims(panels, facts) if "collapse" in c.claim]
    if isinstance(between, str):
        assert str(found).startswith(between)
        assert claim.verdict == "not tested"
        assert between in claim.reason
        assert math.isnan(claim.measured)
    else:
        assert found == between
        assert claim.verdict == "supported"


def test_random_heads_that_matter_refute_flatness() -> None:
    steep = [0.9, 0.7, 0.6, 0.5, 0.4]
    found = verdicts(every(top=[0.9, 0.3, 0.1, 0.0, 0.0], random=steep))
    assert found[SHAPE] == "refuted"


def test_another_function_may_fall_first() -> None:
    other = {**PUBLISHED, "retrieval": replace(PUBLISHED["retrieval"], top=[0.9, 0.1, 0, 0, 0])}
    assert verdicts(other)[FIRST] == "refuted"


def test_scaling_uses_the_floors_and_nothing_lies_below_them() -> None:
    """Accuracy falls by half, similarity from 1 to its floor: similarity falls faster."""
    how = {"top": [0.9, 0.45, 0.45, 0.45, 0.45], "comet": [1.0, 0.6, 0.6, 0.6, 0.6]}
    assert verdicts(every(**how))[ACCURACY] == "supported"
    assert verdicts(every(**how, floors=(0.0, 0.6)))[ACCURACY] == "refuted"
    # Far below its floor similarity counts as at its floor, as accuracy at 0 does.
    lost = {"top": [0.9, 0.0, 0.0, 0.0, 0.0], "comet": [1.0, 0.2, 0.2, 0.2, 0.2]}
    claim = judged(every(**lost, floors=(0.0, 0.6)))[ACCURACY]
    assert claim.measured == 0.0
    assert -0.1 < claim.low <= 0 <= claim.high < 0.1


def test_a_model_that_cannot_do_the_task_leaves_shares_undecided() -> None:
    nothing = [0.0] * 5
    panels, _ = made(every(top=nothing, random=nothing, comet=nothing))
    share = panels[0].scaled("exact_match", 4).interval
    assert math.isnan(share.low)
    assert math.isnan(share.high)


def test_an_undecided_claim_says_what_it_would_have_found() -> None:
    near = [0.9, 0.84, 0.84, 0.84, 0.84]  # TopK lies at the margin of 0.05 below RandomK
    claim = judged(every(top=near, random=[0.9] * 5))[OURS]
    assert claim.verdict == "undecided"
    assert (claim.high - claim.low) / 2 < claim.detectable < claim.high - claim.low


# What cannot be compared


def test_another_metric_than_comet_is_not_compared_with_comet() -> None:
    claims = judged(PUBLISHED, similarity="similarity")
    assert claims[ACCURACY].verdict == "not comparable"
    assert "published for COMET" in claims[ACCURACY].reason
    assert claims[FASTER].verdict == "supported"  # on accuracy alone, and it says so
    assert "Only accuracy is judged" in claims[FASTER].reason


@pytest.mark.parametrize(
    ("functions", "how", "reason"),
    [
        ({"math": PUBLISHED["math"]}, {}, "retrieval, knowledge-recall, inference were not run"),
        (PUBLISHED, {"total": 4 * TOTAL}, "No count is near 6.2 % of the heads"),
        (
            {**PUBLISHED, "math": replace(PUBLISHED["math"], top=[0.7, 0.6, 0.5, 0.1, 0.0])},
            {},
            r"more than 0.1 from the published one: Math Calculation 0\.\d+ \(published 0.95\)",
        ),
        (
            {**PUBLISHED, "knowledge-recall": Function([0.97, 0.5, 0.6, 0.05, 0], [0.95] * 5)},
            {},
            r"from the published one: Knowledge Recall 0\.9\d \(published 0.80\)",
        ),
    ],
    ids=["panels", "shares", "too low", "too high"],
)
def test_the_shape_is_compared_with_like(
    functions: dict[str, Function], how: dict[str, object], reason: str
) -> None:
    claims = judged(functions, **how)
    shape = [claim for claim in claims[2:-2] if "accuracy more than masking" not in claim.claim]
    assert shape
    for claim in shape:
        if "brackets" in claim.reason:  # other shares of the heads: the onset was not measured
            assert claim.verdict == "not tested"
            continue
        assert claim.verdict == "not comparable"
        assert not math.isnan(claim.measured)  # the values are there all the same
        assert re.search(reason, claim.reason)
    # That TopK falls faster is compared whatever the unmasked accuracy, as our own claims are.
    compared = [claims[0], *claims[-2:]] if "from the published" in reason else claims[-2:]
    assert "not comparable" not in {claim.verdict for claim in compared}
    assert (claims[0].verdict == "not comparable") == (claims[0] not in compared)


def test_the_rule_of_comparison_looks_at_nothing_that_a_claim_is_about() -> None:
    """Whatever masking does, and to which heads, set-ups are comparable or they are not."""
    for top in (FLAT, [0.9, 0.0, 0.0, 0.0, 0.0]):
        for random in (FLAT, [0.9, 0.0, 0.0, 0.0, 0.0]):
            panels, facts = made(every(top=top, random=random))
            assert other_set_up(panels, COUNTS[1:], facts["total"]) == far_unmasked(panels) == ""


def test_functions_beyond_the_published_ones_are_judged_only_by_our_own_claims() -> None:
    with_other, without = judged({**PUBLISHED, "semantic": BACKWARDS}), judged(PUBLISHED)
    assert [c.measured for c in with_other[:OURS]] == [c.measured for c in without[:OURS]]
    assert [c.verdict for c in with_other[OURS:]] == ["refuted"] * 2
    assert "all 5 functions" in with_other[OURS].claim
    assert len(judged({"semantic": BACKWARDS})) == 2


# Panels at chance


def test_a_panel_at_chance_is_left_out_of_claims() -> None:
    """Whatever its curves say, claims are those of the other panels."""
    lost = Function([0.9] * 5, [0.9, 0.1, 0.1, 0.1, 0.1], chance=0.95)
    panels, facts = made({**PUBLISHED, "semantic": lost})
    assert panels[-1].at_chance.startswith(
        "The whole model is at chance: Accuracy (exact match) 0."
    )
    claims, without = judge_claims(panels, facts)[OURS:], judged(PUBLISHED)[OURS:]
    reason = "With all heads, the model is at chance on Semantic Understanding, which is left out."
    assert all(claim.reason.startswith(reason) for claim in claims)
    found = [(claim.verdict, claim.measured) for claim in claims]
    assert found == [(claim.verdict, claim.measured) for claim in without]


def test_claims_without_a_panel_above_chance_are_not_comparable() -> None:
    claims, without = judged(every(chance=0.99)), judged(PUBLISHED)
    assert {claim.verdict for claim in claims} == {"not comparable"}
    names = "Retrieval, Knowledge Recall, Math Calculation, Inference"
    words = f"With all heads, the model is at chance on {names}."
    assert all(words in claim.reason for claim in claims)
    assert [claim.measured for claim in claims] == [claim.measured for claim in without]


def test_claims_about_all_four_panels_need_all_four() -> None:
    lost = {**PUBLISHED, "math": replace(PUBLISHED["math"], chance=0.99)}
    claims = judged(lost)
    shape, others = claims[SHAPE:OURS], [*claims[:SHAPE], *claims[OURS:]]
    assert {claim.verdict for claim in shape} == {"not comparable"}
    assert {claim.verdict for claim in others} == {"supported"}
    assert all("Math Calculation, which is left out" in claim.reason for claim in others)


# What stands beside the claims


def test_the_rank_of_topk_among_random_draws_is_exact() -> None:
    draws = {"anywhere": [0.9, 0.9, 0.9, 0.9, 0.9]}
    panels, _ = made({"math": replace(PUBLISHED["math"], more=draws)}, draws=99)
    rows = rank_rows(panels)
    assert [row["count"] for row in rows] == [4, 8, 16, 32]
    for row in rows:
        means = panels[0].table("anywhere", row["count"]).mean(1)
        top = panels[0].table("top", row["count"]).mean()
        assert row["p"] == (1 + (means <= top).sum()) / 100
        assert row["draws"] == 99
    assert rows[-1]["p"] == 0.01  # lower than every draw: the least that 99 draws can tell


def test_a_difference_against_the_direction_is_told() -> None:
    better = Function([0.9, 0.9, 0.9, 0.9, 0.9], [0.9, 0.9, 0.9, 0.9, 0.5])
    panels, _ = made({"math": better})
    notes = against_the_direction(panels)
    assert [note.partition(", by")[0] for note in notes] == [
        f"Math Calculation: with 32 heads masked, TopK has a higher accuracy than {words} heads"
        for words in ("random", "layer-matched random")
    ]
    assert against_the_direction(made(PUBLISHED)[0]) == []


def test_rankings_that_were_measured_again_widen_what_is_said_of_topk() -> None:
    again = {"reranked": [0.9, 0.9, 0.3, 0.1, 0.0]}
    spread = Function([0.9, 0.6, 0.5, 0.1, 0.0], FLAT, more=again)
    (fixed,), _ = made({"math": replace(spread, more={})})
    (drawn,), _ = made({"math": spread})
    table = np.repeat([[0.2], [0.8], [0.3], [0.9]], 200, axis=1)  # rankings that disagree
    how = {"model": "made", "task": "math", "ranking": "attribution", "metric": "exact_match"}
    drawn.values.put(table, **how, series="reranked", count=8)
    for of in (lambda p: p.at("top", 8), lambda p: p.difference("random", 8)):
        wide, narrow = of(drawn).interval, of(fixed).interval
        assert wide.value == narrow.value
        assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


@pytest.mark.parametrize(
    ("heads", "counts"),
    [((32,) * 32, [16, 32, 64, 128]), ((9,) * 30, [4, 8, 16, 32]), ((4,) * 2, [1])],
)
def test_counts_are_the_published_fractions(heads: tuple[int, ...], counts: list[int]) -> None:
    assert published_counts(HeadLayout(heads)) == counts
