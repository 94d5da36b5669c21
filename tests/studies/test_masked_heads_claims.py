"""The claims of masked-heads, on curves of which we know what must come out."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from headcount.claims import Claim, all_of
from headcount.curves import Curve, Point
from headcount.engine.measure.head_sets import HeadSetEntry, HeadSets
from headcount.engine.measure.sweep import Values
from headcount.heads import HeadLayout, HeadScores
from headcount.metrics import get_metric
from headcount.metrics.chance import Chance
from headcount.studies.masked_heads.claims import FunctionPanel, judge_claims
from headcount.studies.masked_heads.study import published_counts

COUNTS = [0, 4, 8, 16, 32]
TOTAL = 256
ITEMS = 200


def made(metric: str, top: list[float], random: list[float], seed: int, seeds: int = 4) -> Curve:
    """A curve with these means; its items are right or wrong by chance."""
    rng = np.random.default_rng(seed)
    raw = {}
    for series, means, draws in (("top", top, 1), ("random", random, seeds)):
        for count, mean in zip(COUNTS, means, strict=True):
            raw[series, count] = (rng.random((draws, ITEMS)) < mean).astype(float)
    scores = HeadScores(HeadLayout((TOTAL,)), np.arange(float(TOTAL)), "by hand")
    gates = np.random.default_rng(0).random((sum(map(len, raw.values())), TOTAL))
    labels = [label for label, values in raw.items() for _ in values]
    sets = HeadSets.build(scores.layout, list(map(HeadSetEntry, labels, gates)))
    names = tuple(map(str, range(ITEMS)))
    table = np.empty((len(sets), ITEMS))
    for label, rows in sets.rows.items():
        table[list(rows)] = raw[label]
    values = Values(table, sets, names, np.arange(ITEMS), get_metric(metric), "zero")
    points = tuple(
        Point("m", "t", series, metric, count, 0.0, 0.0, 0.0, ITEMS, 1, 0.0)
        for series, count in raw
    )
    return Curve(points, values, scores, "mask")


def panel(
    name: str,
    top: list[float],
    random: list[float],
    similarity: list[float] | None = None,
    floors: tuple[float, float] = (0.0, 0.0),
) -> FunctionPanel:
    seed = sum(name.encode())
    second = similarity or [min(1.0, value + 0.15) for value in top]
    return FunctionPanel(
        name,
        {"by hand": made("exact_match", top, random, seed)},
        made("similarity", second, [1.0, *random[1:]], seed + 1),
        floors,
    )


FLAT = [0.9, 0.9, 0.9, 0.88, 0.85]
PUBLISHED = [
    panel("Retrieval", [0.9, 0.85, 0.7, 0.1, 0.0], FLAT, [1.0, 0.95, 0.9, 0.5, 0.4]),
    panel("Knowledge Recall", [0.9, 0.5, 0.6, 0.05, 0.0], FLAT, [1.0, 0.8, 0.8, 0.5, 0.4]),
    panel("Math Calculation", [0.9, 0.8, 0.7, 0.2, 0.1], FLAT, [1.0, 0.95, 0.9, 0.6, 0.6]),
]


def verdicts(panels: list[FunctionPanel]) -> list[str]:
    return [claim.verdict for claim in judge_claims(panels, COUNTS, TOTAL)]


def test_what_was_published_is_supported() -> None:
    claims = judge_claims(PUBLISHED, COUNTS, TOTAL)
    assert [claim.verdict for claim in claims] == ["supported"] * 5
    for claim in claims:
        assert claim.low <= claim.measured <= claim.high
        assert claim.published


def test_rankings_that_find_nothing_refute_the_gap() -> None:
    weak = [panel(p.name, FLAT, FLAT) for p in PUBLISHED]
    faster, _, flat, *_ = verdicts(weak)
    assert faster == "refuted"
    assert flat != "supported"  # nothing to be flat against


def test_an_early_collapse_refutes_the_onset() -> None:
    early = [panel(p.name, [0.9, 0.1, 0.05, 0.0, 0.0], FLAT) for p in PUBLISHED]
    assert verdicts(early)[3] == "refuted"


def test_a_late_collapse_refutes_the_onset() -> None:
    late = [panel(p.name, [0.9, 0.9, 0.9, 0.85, 0.1], FLAT) for p in PUBLISHED]
    assert verdicts(late)[3] == "refuted"


def test_random_heads_that_matter_refute_flatness() -> None:
    steep = [0.9, 0.7, 0.6, 0.5, 0.4]
    assert verdicts([panel(p.name, [0.9, 0.3, 0.1, 0.0, 0.0], steep) for p in PUBLISHED])[2] == (
        "refuted"
    )


def test_another_function_may_fall_first() -> None:
    other = [
        panel("Retrieval", [0.9, 0.1, 0.1, 0.0, 0.0], FLAT),
        panel("Knowledge Recall", [0.9, 0.8, 0.7, 0.2, 0.0], FLAT),
    ]
    assert verdicts(other)[4] == "refuted"
    assert len(verdicts(other[:1])) == 4  # nothing to compare it with


def test_scaling_uses_the_floors() -> None:
    """Accuracy falls by half, similarity from 1 to its floor: similarity falls faster."""
    top = [0.9, 0.45, 0.45, 0.45, 0.45]
    near_floor = [1.0, 0.6, 0.6, 0.6, 0.6]
    without = [panel(p.name, top, FLAT, near_floor) for p in PUBLISHED]
    assert verdicts(without)[1] == "supported"
    with_floor = [panel(p.name, top, FLAT, near_floor, (0.0, 0.6)) for p in PUBLISHED]
    assert verdicts(with_floor)[1] == "refuted"


def test_a_model_that_cannot_do_the_task_leaves_shares_undecided() -> None:
    helpless = [panel(p.name, [0.0] * 5, [0.0] * 5) for p in PUBLISHED]
    claims = judge_claims(helpless, COUNTS, TOTAL)
    shares: list[Claim] = [claims[1], claims[3], claims[4]]
    assert [claim.verdict for claim in shares] == ["undecided"] * 3
    assert all(math.isnan(claim.low) for claim in shares)


def at_chance(panel: FunctionPanel) -> FunctionPanel:
    """The same panel with a chance level that no accuracy passes, and with all heads at count 0."""
    curve = panel.accuracy
    gates = curve.values.head_sets.gates.copy()
    gates[curve.values.head_sets.rows["top", 0][0]] = 1
    sets = replace(curve.values.head_sets, gates=gates)
    values = replace(curve.values, head_sets=sets, chance=Chance(0.95, "by hand"))
    lost = replace(curve, values=values, at_chance=values.at_chance)
    return replace(panel, by_ranking={"by hand": lost})


def test_a_panel_at_chance_is_left_out_of_claims() -> None:
    """Whatever its curves say, claims are those of the other panels."""
    retrieval, recall, math_ = PUBLISHED
    steep = at_chance(panel("Semantic", [0.9, 0.9, 0.9, 0.9, 0.9], [0.9, 0.1, 0.1, 0.1, 0.1]))
    assert steep.at_chance.startswith("The whole model is at chance: Accuracy (exact match) 0.")
    claims = judge_claims([retrieval, recall, math_, steep], COUNTS, TOTAL)
    without = judge_claims(PUBLISHED, COUNTS, TOTAL)
    reason = "With all heads, the model is at chance on Semantic, which is left out."
    assert {claim.reason for claim in claims} == {reason}
    found = [(claim.verdict, claim.measured) for claim in claims]
    assert found == [(claim.verdict, claim.measured) for claim in without]


def test_claims_without_a_panel_above_chance_are_not_comparable() -> None:
    lost = [at_chance(panel) for panel in PUBLISHED]
    claims = judge_claims(lost, COUNTS, TOTAL)
    assert {claim.verdict for claim in claims} == {"not comparable"}
    names = "Retrieval, Knowledge Recall, Math Calculation"
    assert {c.reason for c in claims} == {f"With all heads, the model is at chance on {names}."}
    without = judge_claims(PUBLISHED, COUNTS, TOTAL)  # the values are there all the same
    assert [claim.measured for claim in claims] == [claim.measured for claim in without]


def test_a_claim_about_a_panel_at_chance_is_not_comparable() -> None:
    retrieval, recall, math_ = PUBLISHED
    *others, first = judge_claims([retrieval, at_chance(recall), math_], COUNTS, TOTAL)
    assert "Knowledge Recall falls first" in first.claim
    assert first.verdict == "not comparable"
    assert "not comparable" not in {claim.verdict for claim in others}
    *others, first = judge_claims([at_chance(retrieval), recall], COUNTS, TOTAL)
    assert first.verdict == "not comparable"  # nothing is left to compare it with
    assert "not comparable" not in {claim.verdict for claim in others}


@pytest.mark.parametrize(
    ("some", "verdict"),
    [
        (["supported", "supported"], "supported"),
        (["supported", "undecided"], "undecided"),
        (["undecided", "refuted"], "refuted"),
    ],
)
def test_every_means_all(some: list[str], verdict: str) -> None:
    assert all_of(some) == verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("heads", "counts"),
    [((32,) * 32, [16, 32, 64, 128]), ((9,) * 30, [4, 8, 16, 32]), ((4,) * 2, [1])],
)
def test_counts_are_the_published_fractions(heads: tuple[int, ...], counts: list[int]) -> None:
    assert published_counts(HeadLayout(heads)) == counts
