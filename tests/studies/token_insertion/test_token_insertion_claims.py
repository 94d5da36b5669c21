"""The estimates and verdicts of `token-insertion` on made-up values."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from studies.token_insertion.made_up import INSERTS, UNIFORM, internals, result

from headcount.claims import Claim
from headcount.heads import HeadLayout
from headcount.studies.token_insertion.estimates import estimate
from headcount.studies.token_insertion.internals import Internals, filled, packed, unpacked
from headcount.studies.token_insertion.panels import panels_of

HALF = [0, 1] * 100
Grades = dict[str, Any]


def both(without: list[int], with_it: list[int]) -> Grades:
    return {"w/o": without, **dict.fromkeys(INSERTS, with_it)}


def accuracy_claims(**models: Grades) -> list[Claim]:
    return list(estimate(*result(models)).claims)


@pytest.mark.parametrize(
    ("without", "with_it", "gain", "same"),
    [
        ([0] * 40 + [1] * 20, [1] * 20 + [0] * 20 + [1] * 20, "supported", "refuted"),
        ([1] * 40 + [0] * 20, [0] * 20 + [1] * 20 + [0] * 20, "refuted", "refuted"),
        ([1, 0] * 30, [1, 0] * 28 + [0, 1] * 2, "undecided", "undecided"),
        ([1, 0] * 30, [1, 0] * 30, "undecided", "undecided"),  # no change in few problems
        ([1, 0] * 500, [1, 0] * 500, "undecided", "supported"),  # nor in many: no two points
    ],
)
def test_accuracy(without: list[int], with_it: list[int], gain: str, same: str) -> None:
    claims = accuracy_claims(m=both(without, with_it))
    assert [claim.verdict for claim in claims] == [gain, same] * 2
    for claim in claims:
        assert claim.low < claim.high
        assert math.isnan(claim.detectable) == (claim.verdict != "undecided")


def test_mcnemar_stands_beside_the_interval() -> None:
    """Nine answers turn right and one wrong: 2 · (1 + 10) / 2¹⁰."""
    without = [0] * 9 + [1] + [0, 1] * 50
    with_it = [1] * 9 + [0] + [0, 1] * 50
    found = estimate(*result({"m": both(without, with_it)}))
    by_hand = 2 * (math.comb(10, 0) + math.comb(10, 1)) / 2**10
    gain = found.claims[0]
    assert gain.p_value == pytest.approx(by_hand)
    assert gain.low > 0  # both say that it helps
    rows = {row["series"]: row for row in found.rows}
    assert rows["w/ Mless minus w/o"]["p"] == pytest.approx(by_hand)
    assert math.isnan(rows["w/o"]["p"])
    changed = found.tables["Answers that change"][0]
    assert (changed["turn right"], changed["turn wrong"]) == (9, 1)
    assert changed["low together"] <= changed["low"]


@pytest.mark.parametrize("seed", range(6))
def test_mcnemar_and_the_interval_agree(seed: int) -> None:
    """Clear effects are clear by both, in the same direction; none is found where none is."""
    rng = np.random.default_rng(seed)
    base = rng.random(400) < 0.5
    for flip, direction in ((0.15, 1), (0.15, -1), (0.0, 0)):
        changed = base.copy()
        movable = ~base if direction > 0 else base
        changed[movable & (rng.random(400) < flip)] = direction > 0
        gain = accuracy_claims(m=both(list(base.astype(int)), list(changed.astype(int))))[0]
        assert (gain.p_value < 0.01) == bool(direction)
        assert np.sign(gain.low) + np.sign(gain.high) == 2 * direction


def test_several_models_are_one_family() -> None:
    better = both([0] * 40 + [1] * 20, [1] * 20 + [0] * 20 + [1] * 20)
    unclear = both([1, 0] * 30, [1, 0] * 28 + [0, 1] * 2)
    alone, *_ = accuracy_claims(one=better)
    claims = accuracy_claims(one=better, other=unclear)
    assert len(claims) == 4
    assert claims[0].verdict == "undecided"
    assert "in every model" in claims[0].claim
    assert "other" in claims[0].reason
    two, *_ = accuracy_claims(one=better, other=better)
    assert two.verdict == "supported"
    assert two.low < alone.low  # both hold together
    assert two.p_value == pytest.approx(min(1.0, 2 * alone.p_value))


def test_sampled_runs_are_a_level_of_their_own() -> None:
    rng = np.random.default_rng(0)
    runs = {s: rng.integers(0, 2, (5, 60)) for s in ("w/o", *INSERTS)}
    found = estimate(*result({"m": runs}))
    assert {row["seeds"] for row in found.rows} == {5}
    assert all(math.isnan(claim.p_value) for claim in found.claims)
    assert "Answers that change" not in found.tables
    panel = panels_of(*result({"m": runs}))[0]
    levels = [level.name for level in panel.differences["w/ Mless"].parts]
    assert levels.count("draws") == 2


def test_a_baseline_far_from_the_published_one_is_not_comparable() -> None:
    high = both([1] * 95 + [0] * 5, [1] * 97 + [0] * 3)
    gain, same, *_ = accuracy_claims(m=high)
    assert gain.verdict == "not comparable"
    assert "0.95" in gain.reason
    assert same.verdict != "not comparable"  # it is our own claim
    fine = both([0] * 40 + [1] * 20, [1] * 20 + [0] * 20 + [1] * 20)
    gain, *_ = accuracy_claims(m=high, n=fine)
    assert gain.verdict == "supported"
    assert "left out" in gain.reason


def judged(seen: Internals) -> list[Claim]:
    """The claims about what the first insert does inside, in head 0.1."""
    return list(estimate(*result({"m": both(HALF, HALF)}, seen)).claims[4:16])


def verdicts(seen: Internals) -> list[str]:
    return [claim.verdict for claim in judged(seen)]


NAMES = (
    *("peaks", "timing", "layer's peaks", "deeper peaks"),
    *("small", "even", "layer's small", "layer's even"),
    *("scaled", "varies less", "scaled deeper", "varies less deeper"),
)


def test_what_is_seen_inside() -> None:
    assert verdicts(internals(peak=0.5)) == ["supported"] * len(NAMES)
    higher = internals(1.4, peak=1.5, timing=0.3, span=2.0, span_spread=0.8)
    assert verdicts(higher) == ["refuted"] * len(NAMES)


def test_hardly_lower_is_not_lower() -> None:
    """An interval of 0.98 to 0.99 excludes 1, and refutes "below 0.95" all the same."""
    hardly = dict(zip(NAMES, judged(internals(0.985, peak=0.8 * 0.985)), strict=True))
    told = ("peaks", "layer's peaks", "deeper peaks", *NAMES[8:])
    for claim in (hardly[name] for name in told):
        assert claim.high < 1
        assert claim.verdict == "refuted"


def test_peaks_that_fall_as_a_uniform_readers_are_no_finding() -> None:
    """A uniform reader's fall to 0.8 of their height, because it reads the inserted tokens too."""
    found = dict(zip(NAMES, judged(internals(peak=0.8)), strict=True))
    for name in ("peaks", "layer's peaks", "deeper peaks"):
        assert found[name].verdict == "refuted"
        assert found[name].measured == pytest.approx(1, abs=0.01)
        assert "A uniform reader gives 0.8." in found[name].reason
    assert "0.798, over that of a uniform reader" in found["peaks"].claim


def test_a_small_lambda_and_less_variation_are_two_claims() -> None:
    seen = internals()
    for series in INSERTS:
        seen.affine[series, "spread"][:] = 1.1
    found = dict(zip(NAMES, judged(seen), strict=True))
    assert found["scaled"].verdict == "supported"
    assert found["scaled"].published
    assert found["varies less"].verdict == "refuted"
    assert found["varies less"].published is None


def test_small_and_even_are_two_claims() -> None:
    uneven = dict(zip(NAMES, judged(internals(span_spread=0.7)), strict=True))
    assert uneven["small"].verdict == "supported"
    assert uneven["even"].verdict == "refuted"
    large = dict(zip(NAMES, judged(internals(span=1.4)), strict=True))
    assert large["small"].verdict == "refuted"
    assert large["even"].verdict == "supported"
    assert large["small"].measured == pytest.approx(1, abs=0.01)
    assert "A uniform reader gives 1.4." in large["small"].reason


def test_a_uniform_reader_is_its_own_measure() -> None:
    """With its own effects, all ratios to it are 1, and inserted tokens have no unevenness."""
    found = internals(heads=dict.fromkeys(range(5), UNIFORM), **{**UNIFORM, "peak": 0.8})
    for key, values in found.uniform.items():
        found.effects[key][:] = values[:, None]  # type: ignore[index]
    claims = dict(zip(NAMES, judged(found), strict=True))
    assert claims["small"].measured == pytest.approx(1)
    assert claims["even"].measured == pytest.approx(0)
    tables = estimate(*result({"m": both(HALF, HALF)}, found)).tables
    rows = tables["Against a uniform reader"]
    assert len(rows) == 2 * 2 * 3 * 5  # inserts, queries, places, measures
    for row in rows:
        assert row["over uniform"] == pytest.approx(1)
        assert row["value"] == pytest.approx(row["uniform reader"])


def test_a_head_chosen_on_one_half_is_judged_on_the_other() -> None:
    """Head 0.0 changes most on the prompts that choose, by luck; on the others it does nothing."""
    seen = internals(choosing=range(0, 24, 2), requested=-1, peak=0.8 * 0.97)
    for series in INSERTS:
        seen.effects[series, "all", "change"][::2, 0] += 1
        seen.effects[series, "all", "peak"][::2, 0] = 0.2
    assert str(seen.head) == "0.0"
    found = estimate(*result({"m": both(HALF, HALF)}, seen))
    peaks, layer = found.claims[4], found.claims[6]
    assert "head 0.0" in peaks.claim
    assert peaks.measured == pytest.approx(0.97, abs=0.02)
    assert peaks.verdict == "refuted"
    assert layer.measured < 0.9  # the mean over the layer is that of all prompts
    choice = {row["head"]: row for row in found.tables["Choice of the head"]}
    assert choice["0.0"]["chosen"] == "yes"
    assert choice["0.0"]["change, prompts that choose"] == pytest.approx(1.1, abs=0.01)
    assert choice["0.0"]["change, prompts that judge"] == pytest.approx(0.1, abs=0.01)
    prompts = {
        row["where"]: row["prompts"]
        for row in found.tables["Against a uniform reader"]
        if row["queries"] == "all"
    }
    assert prompts == {"0.0": 12, "layer 0": 24, "other layers": 24}
    named = replace(seen, requested=0, choosing=())
    claims = estimate(*result({"m": both(HALF, HALF)}, named)).claims
    assert claims[4].measured < 0.9  # nothing was chosen: all prompts count
    assert "Choice of the head" not in estimate(*result({"m": both(HALF, HALF)}, named)).tables


def test_heads_that_say_nothing_are_left_out() -> None:
    seen = internals(peak=0.5)
    for values in seen.affine.values():
        values[:, 0] = np.nan
        values[0] = np.nan  # a prompt on which none says anything
    assert verdicts(seen) == verdicts(internals(peak=0.5))
    panel = panels_of(*result({"m": both(HALF, HALF)}, seen))[0]
    assert panel.mean("w/ Mless", "lambda", "layer 0", "").n == 23
    for values in seen.affine.values():
        values[:, :2] = np.nan
    found = estimate(*result({"m": both(HALF, HALF)}, seen))
    assert {row["layer"] for row in found.tables["Affine check"]} == {1}
    scaled = next(claim for claim in found.claims if "in layer 0, the fitted λ" in claim.claim)
    assert scaled.verdict == "undecided"
    assert "silent" in scaled.reason


def test_the_table_of_heads_takes_a_head_where_it_speaks() -> None:
    values = np.array([[0.2, np.nan, np.nan], [0.4, 0.6, np.nan]])
    np.testing.assert_allclose(filled(values), [[0.2, 0.6, 0.0], [0.4, 0.6, 0.0]])


def test_internals_come_back_from_json() -> None:
    seen = internals(peak=0.5)
    seen.effects["w/ Mless", "all", "span"][0, 0] = np.nan
    tables: Any = {"effects": seen.effects, "affine": seen.affine}
    document = json.loads(json.dumps(packed(tables), allow_nan=False))
    again = replace(seen, **unpacked(document))
    for key, values in seen.effects.items():
        np.testing.assert_allclose(again.effects[key], values, rtol=1e-6)
    for name, values in seen.affine.items():
        np.testing.assert_allclose(again.affine[name], values, rtol=1e-6)
    assert verdicts(again) == verdicts(seen)


def test_the_head_that_is_drawn() -> None:
    seen = internals(peak=0.5, choosing=range(0, 24, 2))
    for series in INSERTS:
        seen.effects[series, "all", "change"][::2, 3] += 1
        seen.effects[series, "all", "change"][1::2, 2] += 9  # on prompts that do not choose
    asked = ((1, -1), (1, 2), (0, 1))
    of = [replace(seen, layer=layer, requested=head) for layer, head in asked]
    assert [str(one.head) for one in of] == ["1.1", "1.2", "0.1"]
    wide = replace(seen, layout=HeadLayout((16, 3)), layer=0, requested=-1)
    assert str(wide.head) == "0.14"  # the published one


def test_nothing_is_comparable_at_chance() -> None:
    grades = {"m": both([0] * 40 + [1] * 20, [1] * 60)}
    fine = estimate(*result(grades, chance=0.01))
    assert fine.claims[0].verdict == "supported"
    lost = estimate(*result(grades, internals(peak=0.5), chance=0.4))
    assert {claim.verdict for claim in lost.claims} == {"not comparable"}
    assert "the model is at chance on problems." in lost.claims[0].reason
    assert "is not clearly above 0.4 (by hand)." in lost.notes[0]
