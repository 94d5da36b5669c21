"""Explained effect on values that are made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.curves.explained import (
    THRESHOLDS,
    Explained,
    explained_effect,
    ratio_of_needed,
    two_sided_ratio,
)
from headcount.stats import Resampling

PROMPTS = 40
ITEMS = Resampling(range(PROMPTS))


def curve(
    *shares: float, scale: float = 4.0, seed: int = 0, noise: float = 0.5
) -> dict[int, np.ndarray]:
    """Prompts that have so much of their effect with 0, 10, 20, … heads."""
    rng = np.random.default_rng(seed)
    none = rng.normal(-1, noise, PROMPTS)
    effect = rng.normal(scale, noise, PROMPTS)
    return {10 * k: (none + share * effect)[None] for k, share in enumerate(shares)}


def explained(*shares: float, **how: float) -> Explained:
    return explained_effect(curve(*shares, **how), ITEMS)  # type: ignore[arg-type]


def test_no_head_explains_nothing_and_all_heads_everything() -> None:
    found = explained(0, 0.4, 0.95, 1)
    np.testing.assert_allclose(found.effect.value, [0, 0.4, 0.95, 1], atol=1e-12)
    assert [count for count, _ in found.points] == [0, 10, 20, 30]
    assert [(found.points[i][1].low, found.points[i][1].high) for i in (0, 3)] == [
        (pytest.approx(0), pytest.approx(0)),
        (pytest.approx(1), pytest.approx(1)),
    ]
    assert found.known
    assert found.span.interval.low > 3


def test_it_is_a_ratio_of_means_and_not_a_mean_of_ratios() -> None:
    none, whole = np.array([0.0, 0.0]), np.array([0.01, 9.99])
    some = np.array([0.02, 0.0])  # twice the effect of the one, nothing of the other
    items = Resampling(["a", "b"])
    found = explained_effect({0: none[None], 1: some[None], 2: whole[None]}, items)
    assert found.effect.value[1] == pytest.approx(0.02 / 10)


def test_areas_are_those_of_trapezoids() -> None:
    """A plateau at 0.9 is 0.1 away from all heads, and one at 1.4 is 0.4 away."""
    flat = explained(0, 0.9, 0.9, 0.9, 1)
    # From 0 to 10 of 40 heads it rises, then it stays, then it rises to 1.
    assert flat.cpr().value == pytest.approx((0.45 + 0.9 + 0.9 + 0.95) / 4)
    assert flat.cmd().value == pytest.approx((0.55 + 0.1 + 0.1 + 0.05) / 4)
    over = explained(0, 1.4, 1.4, 1.4, 1)
    assert over.cpr().value > 1 > over.cmd().value  # CPR rewards what CMD charges
    assert over.cmd().value == pytest.approx((0.7 + 0.4 + 0.4 + 0.2) / 4)
    logs = np.log([10, 20, 30, 40])
    expected = np.trapezoid([0.4, 0.4, 0.4, 0.0], logs) / (logs[-1] - logs[0])
    assert over.cmd("log").value == pytest.approx(expected)


def test_areas_have_intervals_and_differences_are_paired() -> None:
    rng = np.random.default_rng(1)
    values = curve(0, 0.5, 0.8, 1)
    noisy = {n: v + rng.normal(0, 1.0, v.shape) * (0 < n < 30) for n, v in values.items()}
    one = explained_effect(noisy, ITEMS)
    assert one.cmd().interval.low < one.cmd().value < one.cmd().interval.high
    shifted = {n: v + 0.01 * (0 < n < 30) for n, v in noisy.items()}
    gap = (explained_effect(shifted, ITEMS).cpr() - one.cpr()).interval
    alone = one.cpr().interval
    assert 0 < gap.low <= gap.high < 0.1 * (alone.high - alone.low)


def test_heads_needed_and_heads_from_which_the_curve_stays() -> None:
    found = explained(0, 0.95, 0.5, 1.8, 0.7, 0.92, 1)
    assert found.needed().value == 10  # 0.95 · 10 / 0.9, rounded up
    assert found.needed(0.5).value == 6
    assert found.needed(0.99).value == 24  # between 20 and 30 heads
    assert found.two_sided().value == 50
    assert explained(0, 0.9, 1.2, 1.05, 1).two_sided().value == 30
    never = explained(0, 0.5, 0.6, 0.7, 1)
    assert never.needed().value == never.needed().high == 37
    assert never.two_sided().value == 40


def test_intervals_hold_what_other_prompts_would_give() -> None:
    """Where the curve passes the threshold slowly, other prompts would need other counts."""
    rng = np.random.default_rng(1)
    values = {0: np.zeros((1, PROMPTS)), 100: np.full((1, PROMPTS), 1.0)}
    for count, share in ((20, 0.7), (40, 0.88), (60, 0.91), (80, 0.97)):
        values[count] = share + rng.normal(0, 0.15, (1, PROMPTS))
    found = explained_effect(values, ITEMS)
    needed = found.needed()
    assert needed.low < needed.value < needed.high
    for _, interval in found.points[1:4]:
        assert interval.low < interval.value < interval.high


def test_templates_widen_intervals() -> None:
    rng = np.random.default_rng(2)
    values = {
        0: np.zeros((1, 40)),
        1: np.repeat(rng.normal(0.5, 0.3, 8), 5)[None],
        2: np.ones((1, 40)),
    }
    templates = np.stack([np.repeat(np.arange(8), 5), np.arange(40)], 1)
    alone = explained_effect(values, ITEMS).points[1][1]
    together = explained_effect(values, Resampling(templates)).points[1][1]
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_random_orders_are_drawn_too() -> None:
    rng = np.random.default_rng(3)
    level = np.array([0.1, 0.5, 0.9, 0.5])[:, None]  # of each draw
    values = {0: np.zeros((4, 40)), 1: level + rng.normal(0, 0.01, (4, 40)), 2: np.ones((4, 40))}
    found = explained_effect(values, ITEMS)
    assert found.effect.value[1] == pytest.approx(0.5, abs=0.01)
    assert found.points[1][1].low < 0.2
    assert found.points[1][1].high > 0.8


def test_without_an_effect_nothing_is_known() -> None:
    rng = np.random.default_rng(4)
    values = {count: rng.normal(0, 1, (1, 40)) for count in (0, 5, 10)}
    found = explained_effect(values, ITEMS)
    assert not found.known
    assert math.isnan(found.needed().low)
    assert math.isnan(found.needed().value)
    assert math.isnan(found.points[1][1].low)
    assert not math.isnan(found.points[1][1].value)
    assert math.isnan(found.cmd().interval.low)
    ((_, ratio, _),) = ratio_of_needed(found, explained(0, 1), [0.9])
    assert math.isnan(ratio.value)
    backwards = {0: np.ones((1, 40)), 10: np.zeros((1, 40))}
    assert not explained_effect(backwards, ITEMS).known


def test_a_plateau_that_meets_one_threshold_is_seen_as_such() -> None:
    """At 0.9 one curve needs twenty times the heads of the other, elsewhere it does not."""
    plateau = explained(0, 0.89, 0.89, 0.89, 0.89, 0.89, 1, noise=0.01)
    steep = explained(0, 0.97, 0.99, 1, 1, 1, 1, noise=0.01, seed=1)
    ratios = {threshold: ratio for threshold, ratio, _ in ratio_of_needed(plateau, steep)}
    assert list(ratios) == list(THRESHOLDS)
    assert ratios[0.5].value < 1.3
    assert ratios[0.85].value < 1.3
    assert ratios[0.9].value > 5
    # The areas, which are what claims are about, hardly differ by so much.
    assert plateau.cmd().value - steep.cmd().value < 0.12


def test_what_is_not_reached_is_censored() -> None:
    low = explained(0, 0.1, 0.2, 0.3, 1)
    high = explained(0, 0.5, 0.97, 1, 1, seed=1)
    rows = ratio_of_needed(low, high, [0.25, 0.9])
    assert [censored for _, _, censored in rows] == [False, True]
    ((_, tie, _),) = ratio_of_needed(low, low, [0.9])
    assert tie.value == 1


@settings(deadline=None, max_examples=30)
@given(st.lists(st.floats(-2, 3), min_size=1, max_size=6), st.floats(0.1, 5), st.floats(-3, 3))
def test_units_do_not_matter(shares: list[float], scale: float, shift: float) -> None:
    values = curve(0, *shares, 1, noise=0.1)
    moved = {count: scale * table + shift for count, table in values.items()}
    one, other = (explained_effect(some, ITEMS) for some in (values, moved))
    np.testing.assert_allclose(one.effect.value, other.effect.value, atol=1e-9)
    assert 0 < one.needed().value <= one.total
    assert one.cmd().value == pytest.approx(other.cmd().value)
    assert one.cmd().value >= abs(1 - one.cpr().value) - 1e-9


def test_two_sided_needs_are_compared_in_pairs() -> None:
    early, late = explained(0, 0.98, 1.02, 1, 1), explained(0, 0.2, 0.4, 0.7, 1)
    found = two_sided_ratio(early, late)
    assert found.value == pytest.approx(10 / 40)
    # Either number lies above the evaluated count before its own.
    assert (found.low, found.high) == (pytest.approx(1 / 40), pytest.approx(10 / 31))
    back = two_sided_ratio(late, early)
    assert (1 / back.low, 1 / back.high) == (pytest.approx(found.high), pytest.approx(found.low))
    same = two_sided_ratio(late, late)
    assert same.low < 1 == same.value < same.high  # as many on the grid: neither needs fewer
    wide = two_sided_ratio(explained(0, 0.92, 1, 1, 1, noise=6.0), late, members=8)
    assert wide.high >= two_sided_ratio(explained(0, 0.92, 1, 1, 1, noise=6.0), late).high
    assert not two_sided_ratio(early, explained(0, 0.1, 0.1, 0.0, 0.0)).known


def test_equal_curves_are_hardly_ever_told_apart() -> None:
    share, clear, times = np.linspace(0, 1, 9), 0, 40
    for seed in range(times):
        rng, tables = np.random.default_rng(seed), []
        effect = rng.normal(3, 1, PROMPTS)
        for _ in range(2):  # two orders with the same truth, noise between none and all heads
            noise = rng.normal(0, 3, (9, PROMPTS)) * (share * (1 - share))[:, None]
            truth = 1 - (1 - share) ** 3
            tables.append({k: (truth[k] * effect + noise[k])[None] for k in range(9)})
        found = two_sided_ratio(*(explained_effect(table, ITEMS) for table in tables))
        clear += found.high < 1 or found.low > 1
    assert clear <= 0.05 * times
