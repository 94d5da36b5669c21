"""Intervals of means, differences, ratios and shares: properties that hold for all values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headcount.claims import judge
from headcount.errors import HeadcountError
from headcount.stats import (
    Interval,
    accuracy_interval,
    bootstrap,
    heads_with_effect,
    paired_difference,
    percentile_interval,
    ratio_of_means,
    wilson,
)

number = st.floats(-1e3, 1e3, allow_nan=False).map(lambda x: round(x, 6))
tables = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 12)), elements=number)
quick = settings(max_examples=25, deadline=None)


def ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


def width(interval: Interval) -> float:
    return interval.high - interval.low


# Means


@quick
@given(tables, st.data())
def test_the_interval_holds_the_mean_and_counts_clusters(
    table: np.ndarray, data: st.DataObject
) -> None:
    items = table.shape[1]
    labels = data.draw(st.lists(st.integers(0, 3), min_size=items, max_size=items))
    found = bootstrap(table, clusters=labels)
    assert found.value == pytest.approx(table.mean())
    assert found.n == len(set(labels))
    assert found.known == (found.n > 1)
    if found.known:
        assert found.low <= found.value <= found.high
        assert found.detectable >= width(found) / 2


@quick
@given(number, st.integers(1, 4), st.integers(2, 9))
def test_a_constant_has_no_width(constant: float, draws: int, items: int) -> None:
    table = np.full((draws, items), constant)
    if set(table.flat) <= {0.0, 1.0}:  # right and wrong answers always have a width
        table += 2.0
    found = bootstrap(table)
    assert ends(found) == pytest.approx((table.mean(),) * 2, rel=1e-12, abs=1e-12)


@quick
@given(tables, number, st.floats(0.1, 10))
def test_shifting_and_stretching_the_values_does_so_to_the_interval(
    table: np.ndarray, shift: float, scale: float
) -> None:
    table = table + 1e4  # away from 0 and 1, which are answers
    before, after = bootstrap(table), bootstrap(shift + scale * table)
    moved = [shift + scale * end for end in ends(before)]
    assert ends(after) == pytest.approx(moved, rel=1e-9, abs=1e-6)


@quick
@given(tables, st.integers(2, 5))
def test_copies_of_items_in_their_clusters_add_no_certainty(table: np.ndarray, copies: int) -> None:
    table = table + 1e4
    items = table.shape[1]
    once = bootstrap(table)
    repeated = np.repeat(table, copies, axis=1)
    often = bootstrap(repeated, clusters=[i // copies for i in range(items * copies)])
    assert ends(often) == pytest.approx(ends(once), rel=1e-9, abs=1e-9)
    assert often.n == once.n == items


def test_the_width_is_that_of_the_textbook() -> None:
    values = np.random.default_rng(0).normal(size=60)
    standard_error = values.std(ddof=1) / math.sqrt(60)
    t = 2.001  # of 59 degrees of freedom
    assert width(bootstrap(values)) == pytest.approx(2 * t * standard_error, rel=0.05)


def test_draws_count() -> None:
    """Ten draws that agree on nothing are less sure than ten that agree on everything."""
    rng = np.random.default_rng(0)
    agreeing = np.tile(rng.normal(size=(1, 200)), (10, 1))
    differing = agreeing + rng.normal(size=(10, 1))
    assert width(bootstrap(differing)) > 3 * width(bootstrap(agreeing))
    assert ends(bootstrap(agreeing[:1])) == ends(bootstrap(agreeing[0]))


def test_templates_count_and_few_of_them_are_held_fixed() -> None:
    rng = np.random.default_rng(0)

    def both(templates: int) -> tuple[float, float]:
        each = 120 // templates
        labels = np.repeat(np.arange(templates), each)
        values = np.repeat(rng.normal(size=templates), each) + 0.2 * rng.normal(size=len(labels))
        crossed = np.stack([labels, np.arange(len(labels))], 1)
        return width(bootstrap(values, clusters=crossed)), width(bootstrap(values))

    for templates in (3, 6, 20):
        with_templates, without = both(templates)
        assert with_templates > 1.8 * without
    with_templates, without = both(2)  # these very templates, and no others
    assert with_templates == pytest.approx(without)


def test_the_seed_decides_and_nothing_global_is_touched() -> None:
    values = np.random.default_rng(0).normal(size=30)
    state = str(np.random.get_state())
    assert bootstrap(values, seed=1) == bootstrap(values, seed=1) != bootstrap(values, seed=2)
    assert str(np.random.get_state()) == state


def test_one_cluster_says_that_it_does_not_know() -> None:
    for found in (
        bootstrap([[1.0, 2.0], [3.0, 4.0]], clusters=["a", "a"]),
        paired_difference([1.0, 2.0], [1.0, 1.0], clusters=["a", "a"]),
        ratio_of_means([1.0, 2.0], [1.0, 1.0], clusters=["a", "a"]),
    ):
        assert not found.known
        assert found.n == 1
        assert not math.isnan(found.value)
        assert judge(found, above=-1e9) == "undecided"


def test_what_has_no_mean_is_refused() -> None:
    with pytest.raises(HeadcountError, match="no values"):
        bootstrap([])
    with pytest.raises(HeadcountError, match="NaN"):
        bootstrap([1.0, np.nan])
    with pytest.raises(ValueError, match="shape"):
        bootstrap(np.zeros((2, 2, 2)))
    with pytest.raises(ValueError, match="2 cluster names for 3 items"):
        bootstrap([1.0, 2.0, 3.0], clusters=["a", "b"])
    with pytest.raises(ValueError, match="paired"):
        paired_difference([1.0, 2.0, 3.0], [1.0, 2.0])


# Differences and ratios


@quick
@given(tables, st.floats(1.5, 99))
def test_pairing_removes_what_the_items_share(table: np.ndarray, shift: float) -> None:
    table = table + 1e4  # away from 0 and 1, which are answers
    found = paired_difference(table[:1] + shift, table[:1])
    assert ends(found) == pytest.approx((shift, shift), abs=1e-9)


@quick
@given(tables, st.data())
def test_a_difference_turned_round_changes_its_sign(table: np.ndarray, data: st.DataObject) -> None:
    other = data.draw(hnp.arrays(np.float64, (1, table.shape[1]), elements=number))
    one, two = paired_difference(table[:1], other), paired_difference(other, table[:1])
    assert (one.value, *ends(one)) == pytest.approx((-two.value, -two.high, -two.low))


def test_pairing_is_worth_it() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 100)) * 0.1 + rng.normal(size=100)
    b = rng.normal(size=(7, 100)) * 0.1 + a.mean(0) - 0.2
    found = paired_difference(a, b)
    assert judge(found, above=0.1) == "supported"
    assert found.n == 100
    assert width(found) < width(bootstrap(a)) / 3


def test_the_draws_of_each_side_widen_the_difference() -> None:
    items = np.random.default_rng(0).normal(size=50)
    draws = np.random.default_rng(1).normal(size=(8, 1))
    calm = width(paired_difference(items, items))
    for pair in ((items + draws, items), (items, items + draws)):
        assert width(paired_difference(*pair)) > calm + 0.5


def test_answers_that_never_change_are_not_certain_never_to_change() -> None:
    right = np.arange(100) % 3 > 0
    found = paired_difference(right, right)
    assert found.value == 0
    assert 0.01 < found.high == pytest.approx(-found.low)
    assert found.high < 0.05
    assert width(paired_difference(right[:20], right[:20])) > 2 * width(found)


def test_a_ratio_of_means_is_not_a_mean_of_ratios() -> None:
    rng = np.random.default_rng(0)
    whole = rng.normal(1.0, 1.0, size=200)
    part = 0.4 * whole + 0.01 * rng.normal(size=200)
    whole[0] = 1e-9
    found = ratio_of_means(part, whole)
    assert found.value == pytest.approx(part.mean() / whole.mean())
    assert 0.39 < found.low < 0.4 < found.high < 0.41


@quick
@given(tables, st.floats(0.1, 5))
def test_a_constant_share_has_no_width(table: np.ndarray, share: float) -> None:
    whole = np.abs(table[0]) + 100  # wide enough from 0 for any sample
    found = ratio_of_means(share * whole, whole)
    if found.known:  # a mean that may be 0 has no ratio
        assert (found.value, *ends(found)) == pytest.approx((share,) * 3)
    else:
        assert bootstrap(whole).low <= 0


def test_a_ratio_to_a_negative_mean_is_known_too() -> None:
    whole = -np.linspace(4, 6, 30)
    found = ratio_of_means(0.5 * whole + 0.01, whole)
    assert found.low < found.value < 0.5
    assert found.value == pytest.approx(0.5 - 0.01 / 5)


def test_a_share_of_nothing_is_unknown() -> None:
    rng = np.random.default_rng(0)
    found = ratio_of_means(rng.normal(1, 1, size=50), rng.normal(0, 1, size=50))
    assert not found.known
    assert math.isnan(ratio_of_means([1.0, 1.0], [1.0, -1.0]).value)


# Shares


@quick
@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.5, 4))
def test_wilson_lies_within_0_and_1_around_the_share(n: int, share: float, z: float) -> None:
    found = wilson(share * n, n, z=z)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high
    mirrored = wilson(n - share * n, n, z=z)
    assert ends(mirrored) == pytest.approx((1 - found.high, 1 - found.low))


@quick
@given(st.integers(1, 500), st.floats(0.01, 0.99))
def test_wilson_ends_where_the_share_would_be_just_too_far_off(n: int, share: float) -> None:
    """The definition: from either end, the share lies 1.96 standard errors away."""
    for end in ends(wilson(share * n, n)):
        assert abs(share - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / n))


def test_successes_beyond_the_trials_are_a_mistake() -> None:
    for successes, n in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="successes"):
            wilson(successes, n)


@pytest.mark.parametrize("right", [0, 2, 50, 97, 100])
def test_the_accuracy_of_independent_items_is_about_wilsons(right: int) -> None:
    """Near 0 and 1, where a few answers tell little about their spread, it is wider."""
    found, expected = accuracy_interval(np.arange(100) < right), wilson(right, 100)
    assert found.value == right / 100
    if right == 50:
        assert ends(found) == pytest.approx(ends(expected), abs=0.006)
    assert 0.97 < width(found) / width(expected) < 1.4
    assert found.low <= expected.low + 0.006
    assert found.high >= expected.high - 0.006


def test_items_that_agree_within_templates_are_worth_fewer() -> None:
    """Ten templates, all right or all wrong, are worth ten items, not a hundred."""
    labels = [(i // 10, i) for i in range(100)]
    found = accuracy_interval([i // 10 < 6 for i in range(100)], clusters=labels)
    alone, ten = wilson(60, 100), wilson(6, 10)
    assert width(found) > 0.9 * width(ten) > 1.8 * width(alone)


def test_without_a_failure_nobody_knows_whether_failures_gather_in_templates() -> None:
    labels = [(i // 10, i) for i in range(100)]
    found = accuracy_interval(np.ones(100), clusters=labels)
    assert (found.value, found.high, found.n) == (1.0, 1.0, 100)
    assert found.low == pytest.approx(wilson(math.sqrt(1000), math.sqrt(1000)).low)


def test_accuracy_with_draws_that_disagree() -> None:
    values = np.ones((6, 100))
    values[0, :24] = 0  # one draw of six fails on much: 0.96 in all
    found = accuracy_interval(values)
    assert found.low < wilson(96, 100).low
    with pytest.raises(ValueError, match="0 to 1"):
        accuracy_interval([0.5, 1.5])


# Heads with an effect, and statistics of whole curves


def test_heads_with_an_effect_are_counted_and_noise_is_not() -> None:
    rng = np.random.default_rng(0)
    samples = rng.normal(size=(40, 200))
    assert heads_with_effect(samples) == (0, 0)  # 10 of 200 would pass without a correction
    samples[:, :3] += 2
    samples[:, 3:5] -= 2
    assert heads_with_effect(samples) == (3, 2)
    # Two templates' worth of evidence is not forty prompts' worth.
    shared = np.repeat(rng.normal(size=(5, 1)), 8, axis=0) * 2
    labels = np.stack([np.arange(40) // 8, np.arange(40)], 1)
    assert heads_with_effect(shared + 0.01 * rng.normal(size=(40, 1)), labels) == (0, 0)


def test_percentiles_hold_the_estimate_or_say_nothing() -> None:
    samples = np.linspace(0, 1, 1001)
    assert ends(percentile_interval(0.5, samples, 9, (0.025, 0.975))) == (0.025, 0.975)
    assert ends(percentile_interval(2.0, samples, 9, (0.025, 0.975))) == (0.025, 2.0)
    assert not percentile_interval(0.5, samples, 1, (0.025, 0.975)).known
    for spoilt in (np.nan, np.inf):
        broken = np.where(samples > 0.9, spoilt, samples)
        assert not percentile_interval(0.5, broken, 9, (0.025, 0.975)).known
