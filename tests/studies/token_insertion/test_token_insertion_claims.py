"""The verdicts of `token-insertion` on made-up outcomes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headcount.claims import Claim
from headcount.heads import HeadLayout
from headcount.metrics.chance import Chance
from headcount.studies.token_insertion.attention import AFFINE, EFFECTS
from headcount.studies.token_insertion.claims import judge_claims
from headcount.studies.token_insertion.grading import Condition, Graded, Outcome
from headcount.studies.token_insertion.internals import QUERIES, Internals, filled, packed, unpacked

INSERTS = ("w/ Mless", "w/ Mful")
LAYOUT = HeadLayout((2, 3))


def internals(
    peak: float, timing: float = 0.95, span: float = 0.3, factor: float = 0.6
) -> Internals:
    rng = np.random.default_rng(0)

    def some(value: float) -> np.ndarray:
        return value * rng.uniform(0.97, 1.03, (12, LAYOUT.total))

    values = {
        "peak": peak,
        "peak_without": 1.0,
        "timing": timing,
        "change": 0.1,
        "span": span,
        "original": 1.0,
        "span_spread": 0.2,
        "original_spread": 0.9,
    }
    assert set(values) == set(EFFECTS)
    effects = {(s, q, e): some(values[e]) for s in INSERTS for q in QUERIES for e in EFFECTS}
    affine = {(s, name): some(factor) for s in INSERTS for name in AFFINE}
    return Internals("m", LAYOUT, 0, 1, effects, affine, {}, {}, {}, 1)


def outcome(without: list[int], with_it: list[int]) -> Outcome:
    answers = {"w/o": without, **dict.fromkeys(INSERTS, with_it)}
    graded = {s: Graded(Condition(s), np.array([right], float), 0) for s, right in answers.items()}
    return Outcome("m", "task", "maths", np.arange(len(without)), graded)


@pytest.mark.parametrize(
    ("without", "with_it", "verdict"),
    [
        ([0] * 40 + [1] * 20, [1] * 20 + [0] * 20 + [1] * 20, "supported"),
        ([1] * 40 + [0] * 20, [0] * 20 + [1] * 20 + [0] * 20, "refuted"),
        ([1, 0] * 30, [1, 0] * 28 + [0, 1] * 2, "undecided"),
        ([1, 0] * 30, [1, 0] * 30, "undecided"),  # equal answers are no proof of no effect
    ],
)
def test_accuracy(without: list[int], with_it: list[int], verdict: str) -> None:
    found = outcome(without, with_it)
    assert [claim.verdict for claim in judge_claims(found, None)] == [verdict] * 2
    interval = found.difference("w/ Mless")
    assert interval.low < interval.high


def judged(seen: Internals) -> list[Claim]:
    """The claims about what the first insert does inside, in head 0.1."""
    return judge_claims(outcome([0, 1] * 20, [0, 1] * 20), seen)[2:8]


def verdicts(seen: Internals) -> list[str]:
    return [claim.verdict for claim in judged(seen)]


def test_what_is_seen_inside() -> None:
    names = ["peaks", "original queries", "deeper", "span", "λ", "λ deeper"]
    assert verdicts(internals(0.5)) == ["supported"] * len(names)
    higher = verdicts(internals(1.5, span=2.0, factor=1.4))
    assert higher == ["refuted"] * len(names)
    assert verdicts(internals(0.5, timing=0.3))[0] == "refuted"  # lower, but not the same spikes
    assert verdicts(internals(1.0))[0] == "undecided"


def test_heads_that_say_nothing_are_left_out() -> None:
    seen = internals(0.5)
    for values in seen.affine.values():
        values[:, 0] = np.nan
        values[0] = np.nan  # a prompt on which none says anything
    assert verdicts(seen) == verdicts(internals(0.5))
    assert len(seen.scaled("w/ Mless", "lambda", [0, 1])) == len(values) - 1
    assert len(seen.scaled("w/ Mless", "lambda", [0])) == 0


def test_the_table_of_heads_takes_a_head_where_it_speaks() -> None:
    values = np.array([[0.2, np.nan, np.nan], [0.4, 0.6, np.nan]])
    np.testing.assert_allclose(filled(values), [[0.2, 0.6, 0.0], [0.4, 0.6, 0.0]])


def test_internals_come_back_from_json() -> None:
    seen = internals(0.5)
    seen.effects["w/ Mless", "all", "span"][0, 0] = np.nan
    tables: Any = {"effects": seen.effects, "affine": seen.affine}
    document = json.loads(json.dumps(packed(tables), allow_nan=False))
    again = replace(seen, **unpacked(document))
    for key, values in seen.effects.items():
        np.testing.assert_allclose(again.effects[key], values, rtol=1e-6)
    for name, values in seen.affine.items():
        np.testing.assert_allclose(again.affine[name], values, rtol=1e-6)
    unknown = judged(again)[3]
    assert "inserted span" in unknown.claim
    assert unknown.verdict == "supported"  # head 0.0 alone has no span


def test_the_head_that_is_drawn() -> None:
    seen = internals(0.5)
    for series in INSERTS:
        seen.effects[series, "all", "change"][:, 3] += 1
    asked = ((1, -1), (1, 2), (0, 1))
    of = [replace(seen, layer=layer, requested=head) for layer, head in asked]
    assert [str(one.head) for one in of] == ["1.1", "1.2", "0.1"]
    assert [one.number for one in of] == [3, 4, 1]
    assert [one.chosen for one in of] == [True, False, False]
    wide = replace(seen, layout=HeadLayout((16, 3)), layer=0, requested=-1)
    assert str(wide.head) == "0.14"  # the published one
    assert not wide.chosen


def test_nothing_is_comparable_at_chance() -> None:
    found = outcome([0] * 55 + [1] * 5, [1] * 60)
    fine, lost = (replace(found, chance=Chance(level, "by hand")) for level in (0.01, 0.1))
    assert fine.at_chance == ""
    assert [claim.verdict for claim in judge_claims(fine, None)] == ["supported"] * 2
    assert "is not clearly above 0.1 (by hand)." in lost.at_chance
    claims = judge_claims(lost, internals(peak=0.5))
    assert {claim.verdict for claim in claims} == {"not comparable"}
    assert claims[0].reason == "With all heads, the model is at chance on task."
