"""Estimates: arithmetic on values and resamples, levels put together, families that hold."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headcount.stats import Estimate, Resampling, combine, constant, mean_of, simultaneous
from headcount.stats.estimate import Z95, quantile_of_t
from headcount.stats.resampling import _draw

N = 30
ITEMS = Resampling(range(N))
number = st.floats(-100, 100, allow_nan=False).map(lambda x: round(x, 3))
values = hnp.arrays(np.float64, (N,), elements=number).map(lambda table: table + 1000)
quick = settings(max_examples=25, deadline=None)


def width(estimate: Estimate) -> float:
    return estimate.interval.high - estimate.interval.low


# Arithmetic


@quick
@given(values, values, st.floats(-3, 3))
def test_arithmetic_on_estimates_is_arithmetic_on_values(
    one: np.ndarray, other: np.ndarray, factor: float
) -> None:
    """On the same items, a sum of estimates is the estimate of a sum."""
    by_parts = ITEMS.estimate(one) + ITEMS.estimate(other) * factor
    at_once = ITEMS.estimate(one + factor * other)
    assert by_parts.value == pytest.approx(at_once.value)
    assert width(by_parts) == pytest.approx(width(at_once), abs=1e-8)
    back = by_parts - ITEMS.estimate(other) * factor
    assert width(back) == pytest.approx(width(ITEMS.estimate(one)), abs=1e-8)


@quick
@given(values)
def test_an_estimate_minus_itself_is_certain(one: np.ndarray) -> None:
    same = ITEMS.estimate(one)
    assert (same - same).value == width(same - same) == 0
    assert mean_of([same, same]).value == pytest.approx(same.value)
    assert width(mean_of([same, same])) == pytest.approx(width(same))


@quick
@given(values)
def test_columns_are_estimated_as_if_each_stood_alone(one: np.ndarray) -> None:
    table = np.stack([one, one**2, np.ones(N)], 1)  # (items, columns)
    low, high = ITEMS.columns(table).ends()
    for column, (a, b) in enumerate(zip(low[:2], high[:2], strict=True)):
        alone = ITEMS.estimate(table[:, column]).interval
        assert (a, b) == pytest.approx((alone.low, alone.high), rel=1e-9)
    assert (low[2], high[2]) == (1, 1)


def test_constants_add_no_width_and_have_no_interval_of_their_own() -> None:
    some = ITEMS.estimate(np.arange(N))
    assert width(some + constant(5)) == pytest.approx(width(some))
    assert not constant(5).interval.known
    assert constant(5).n == 0


def test_other_items_are_independent_so_their_variances_add() -> None:
    rng = np.random.default_rng(0)
    one = Resampling(range(200), seed=1).estimate(rng.normal(size=200))
    two = Resampling(range(200), seed=2).estimate(rng.normal(size=200))
    together = math.hypot(one.spread.error, two.spread.error)
    assert (one - two).spread.error == pytest.approx(together)
    assert (one - two).n == 200


# Levels


def test_resampled_means_of_five_spread_as_means_of_five_do() -> None:
    units = np.array([-2.0, -1.0, 0.5, 1.0, 7.0])
    drawn = np.concatenate([_draw((seed,), 5) for seed in range(20)])
    means = drawn @ units / drawn.sum(1)
    # Five draws instead of four would give a variance that is a fifth less.
    assert means.var() == pytest.approx(units.var(ddof=1) / 5, rel=0.03)


def test_variances_of_crossed_levels_are_put_together() -> None:
    """V(templates) + V(contents) − V(items), for values that are a sum of both and noise."""
    rng = np.random.default_rng(0)
    templates, contents = (index.ravel() for index in np.indices((12, 15)))
    values = rng.normal(size=12)[templates] + rng.normal(size=15)[contents]
    values += rng.normal(size=180)
    found = Resampling(np.stack([templates, contents], 1)).estimate(values)
    by_name = {level.name: part.var() for level, part in found.parts.items()}
    assert set(by_name) == {"items", "1", "2"}
    expected = by_name["1"] + by_name["2"] - by_name["items"]
    assert found.spread.error**2 == pytest.approx(expected)
    # The truth: each template's and content's own variance, over their numbers.
    assert found.spread.error**2 == pytest.approx(1 / 12 + 1 / 15 + 1 / 180, rel=0.6)
    assert found.spread.freedom == pytest.approx(11)  # of the level with the fewest units


def test_templates_that_happen_to_agree_prove_nothing() -> None:
    """The error is at least that of independent items, with as few degrees of freedom."""
    labels = np.stack([np.arange(60) % 6, np.arange(60)], 1)
    values = np.tile(np.linspace(-1, 1, 10).repeat(6), 1)  # the same in all templates
    found, alone = Resampling(labels).estimate(values), Resampling(range(60)).estimate(values)
    assert found.spread.error == pytest.approx(alone.spread.error, rel=0.05)
    assert width(found) == pytest.approx(width(alone) * 2.571 / 2.0, rel=0.06)  # t of 5 and 59


def test_unequal_templates_are_worth_fewer_degrees_of_freedom() -> None:
    labels = np.repeat(np.arange(6), [50, 2, 2, 2, 2, 2])
    found = Resampling(np.stack([labels, np.arange(60)], 1)).estimate(np.arange(60.0))
    assert found.spread.freedom == pytest.approx(1)  # one large template and five crumbs


def test_draws_with_a_name_are_the_same_draws() -> None:
    rng = np.random.default_rng(0)
    each = rng.normal(size=(6, 1))
    one, two = each + rng.normal(size=(6, N)) * 0.01, each + np.full(N, 5.0)
    items = Resampling(range(N))
    paired = items.estimate(one, draws="orders") - items.estimate(two, draws="orders")
    apart = items.estimate(one) - items.estimate(two)
    assert width(paired) < width(apart) / 10


def test_rankings_that_were_drawn_again_add_their_spread() -> None:
    values = np.random.default_rng(0).normal(size=N)
    again = np.array([[-0.5], [0.5], [0.0], [1.0], [-1.0]]) + np.zeros(N)
    fixed, drawn = ITEMS.estimate(values), ITEMS.estimate(values, reranked=again)
    assert drawn.value == fixed.value  # the ranking that was asked for
    extra = drawn.spread.error**2 - fixed.spread.error**2
    assert extra == pytest.approx(again[:, 0].var(ddof=1), rel=0.1)


def test_the_number_of_resamples_does_not_decide() -> None:
    """Other seeds draw other resamples, and find nearly the same interval."""
    values = np.random.default_rng(0).normal(size=N)
    widths = [width(Resampling(range(N), seed=seed).estimate(values)) for seed in range(10)]
    assert np.std(widths) < 0.03 * np.mean(widths)


# Ratios


def test_few_items_give_an_unknown_ratio_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        items = Resampling(range(3))
        whole = items.estimate([0.1, 2.0, 4.0])  # may be 0
        share = items.estimate([0.2, 0.2, 0.3]).scaled(0.0, whole)
        assert math.isnan(share.interval.low)
        assert share.value == pytest.approx(0.7 / 6.1)
        nothing = items.estimate([1.5, 2.0, 2.5]).over(items.estimate([2.0, -4.0, 2.0]))
        assert math.isnan(nothing.value)


@quick
@given(values, st.floats(0.1, 2))
def test_scaling_puts_the_floor_at_0_and_the_whole_at_1(one: np.ndarray, floor: float) -> None:
    whole = ITEMS.estimate(one)
    assert whole.scaled(floor, whole).value == pytest.approx(1)
    assert width(whole.scaled(floor, whole)) == pytest.approx(0, abs=1e-9)
    assert (constant(floor) + whole * 0.0).scaled(floor, whole).value == pytest.approx(0)


# Families


@quick
@given(st.integers(2, 8), st.integers(0, 99))
def test_a_family_is_wider_than_its_members_and_no_wider_than_bonferroni(
    members: int, seed: int
) -> None:
    noise = np.random.default_rng(seed).normal(size=(members, N))
    family = [ITEMS.estimate(row) for row in noise]
    bonferroni = quantile_of_t(2.9, N - 1) / quantile_of_t(Z95, N - 1)  # 0.05 / 8 two-sided is 2.73
    for one, together in zip(family, simultaneous(family), strict=True):
        ratio = (together.high - together.low) / width(one)
        assert together.value == one.value
        assert 1 < ratio < bonferroni


def test_members_that_go_together_cost_little() -> None:
    rng = np.random.default_rng(0)
    items, common = Resampling(range(400)), rng.normal(size=400)
    alike = [items.estimate(common + 0.01 * rng.normal(size=400)) for _ in range(16)]
    other = [items.estimate(rng.normal(size=400)) for _ in range(16)]
    near, far = simultaneous(alike)[0], simultaneous(other)[0]
    assert (near.high - near.low) / width(alike[0]) < 1.25
    assert (far.high - far.low) / width(other[0]) > 1.45


def test_a_family_of_one_is_its_member_and_what_is_unknown_stays_so() -> None:
    one = ITEMS.estimate(np.arange(N))
    assert simultaneous([one]) == [one.interval]
    lost = Resampling(["a"] * N).estimate(np.arange(N))
    first, second = simultaneous([one, lost])
    assert first.low == pytest.approx(one.interval.low)
    assert not second.known


@pytest.mark.parametrize(
    ("z", "freedom", "t"),
    [(1.959964, 1, 12.706), (1.959964, 5, 2.571), (1.959964, 30, 2.042), (2.575829, 10, 3.169)],
)
def test_quantiles_of_t_are_those_of_the_tables(z: float, freedom: float, t: float) -> None:
    assert quantile_of_t(z, freedom) == pytest.approx(t, abs=0.01 if freedom == 1 else 0.002)


def test_a_detectable_effect_is_found_eight_times_in_ten() -> None:
    """That far from a margin, four of five samples have an interval that leaves it out."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(300, N))
    far = float(np.mean([ITEMS.estimate(row).interval.detectable for row in noise]))
    found = [ITEMS.estimate(far + row).interval.low > 0 for row in rng.normal(size=(300, N))]
    assert np.mean(found) == pytest.approx(0.8, abs=0.08)


def test_a_function_of_estimates_is_applied_level_by_level() -> None:
    one, two = ITEMS.estimate(np.arange(N)), Resampling(range(9), seed=1).estimate(np.arange(9))
    product = combine(np.multiply, one, two)
    assert product.value == one.value * two.value
    relative = math.hypot(one.spread.error / one.value, two.spread.error / two.value)
    assert product.spread.error == pytest.approx(product.value * relative)


def test_an_interval_does_not_depend_on_what_was_estimated_before() -> None:
    """Answers without a wrong one have a width that noise gives them: the values seed it."""
    right, wrong = np.ones(12), np.zeros(12)
    items = Resampling(range(12), seed=3)
    first = items.estimate(right).interval, items.difference(right, wrong).interval
    other = Resampling(range(12), seed=3)
    assert (other.difference(right, wrong).interval, other.estimate(right).interval) == first[::-1]
    assert first[0].low < 1 < first[0].high
