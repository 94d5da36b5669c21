from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from headcount.claims import judge
from headcount.errors import HeadcountError
from headcount.stats import (
    Interval,
    _draw,
    accuracy_interval,
    bootstrap,
    paired_difference,
    ratio_of_means,
    wilson,
)

number = st.floats(-1e3, 1e3, allow_nan=False).map(lambda x: round(x, 6))
tables = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(2, 12)), elements=number)
few = {"resamples": 200}
quick = settings(max_examples=40, deadline=None)


def ends(interval: Interval) -> tuple[float, float]:
    return interval.low, interval.high


# -- the bootstrap


@quick
@given(tables, st.data())
def test_the_interval_contains_the_mean_and_stays_within_the_values(
    table: np.ndarray, data: st.DataObject
) -> None:
    items = table.shape[1]
    labels = data.draw(st.lists(st.integers(0, 3), min_size=items, max_size=items))
    found = bootstrap(table, clusters=labels, **few)
    assert found.value == pytest.approx(table.mean())
    assert found.n == len(set(labels))
    if found.n == 1:
        assert not found.known
    else:
        slack = 1e-9 * (1 + np.abs(table).max())
        assert found.low <= found.value <= found.high
        assert table.min() - slack <= found.low
        assert found.high <= table.max() + slack


@quick
@given(number, st.integers(1, 4), st.integers(2, 9))
def test_a_constant_has_no_width(constant: float, seeds: int, items: int) -> None:
    found = bootstrap(np.full((seeds, items), constant), **few)
    assert ends(found) == pytest.approx((constant, constant), rel=1e-12, abs=1e-12)


@quick
@given(tables, number, st.floats(0.1, 10))
def test_shifting_and_stretching_the_values_does_so_to_the_interval(
    table: np.ndarray, shift: float, scale: float
) -> None:
    before, after = bootstrap(table, **few), bootstrap(shift + scale * table, **few)
    moved = [shift + scale * end for end in ends(before)]
    assert ends(after) == pytest.approx(moved, rel=1e-9, abs=1e-6)


@quick
@given(tables, st.integers(2, 5))
def test_copies_of_items_in_their_clusters_add_no_certainty(table: np.ndarray, copies: int) -> None:
    items = table.shape[1]
    once = bootstrap(table, **few)
    repeated = np.repeat(table, copies, axis=1)
    often = bootstrap(repeated, clusters=[i // copies for i in range(items * copies)], **few)
    assert ends(often) == pytest.approx(ends(once), rel=1e-9, abs=1e-9)
    assert often.n == once.n == items


@quick
@given(tables)
def test_a_wider_level_gives_a_wider_interval(table: np.ndarray) -> None:
    narrow, wide = bootstrap(table, level=0.8, **few), bootstrap(table, level=0.99, **few)
    assert wide.low <= narrow.low
    assert narrow.high <= wide.high


@quick
@given(tables)
def test_the_vectorised_mean_agrees_with_a_plain_loop(table: np.ndarray) -> None:
    labels = [i // 2 for i in range(table.shape[1])]
    fast = bootstrap(table, clusters=labels, **few)
    slow = bootstrap(table, clusters=labels, statistic=np.mean, **few)
    np.testing.assert_allclose(ends(fast), ends(slow), rtol=1e-9, atol=1e-9)


def test_width_is_that_of_the_textbook() -> None:
    values = np.random.default_rng(0).normal(size=60)
    found = bootstrap(values, resamples=20_000)
    standard_error = values.std(ddof=1) / math.sqrt(60)
    assert found.high - found.low == pytest.approx(2 * 1.96 * standard_error, rel=0.03)


def test_resampled_means_of_five_seeds_spread_as_means_of_five_do() -> None:
    seeds = np.array([-2.0, -1.0, 0.5, 1.0, 7.0])
    drawn = _draw(np.random.default_rng(0), 5, 50_000)
    means = drawn @ seeds / drawn.sum(1)
    # Five draws instead of four would give a variance that is a fifth less.
    assert means.var() == pytest.approx(seeds.var(ddof=1) / 5, rel=0.03)


def test_seeds_count() -> None:
    """Ten seeds that agree on nothing are less sure than ten that agree on everything."""
    rng = np.random.default_rng(0)
    agreeing = np.tile(rng.normal(size=(1, 200)), (10, 1))
    differing = agreeing + rng.normal(size=(10, 1))
    calm, wild = bootstrap(agreeing), bootstrap(differing)
    assert wild.high - wild.low > 3 * (calm.high - calm.low)
    alone = bootstrap(agreeing[0])
    assert ends(bootstrap(agreeing[:1])) == ends(alone)


def test_other_statistics() -> None:
    values = np.random.default_rng(0).normal(size=(3, 50))
    values[:, 0] = 1e6
    found = bootstrap(values, statistic=np.median, **few)
    assert -1 < found.low <= found.value == np.median(values) <= found.high < 1


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


# -- coverage: how often a 95 % interval holds the truth, which is 0


def coverage(make: Callable[[np.random.Generator], Interval], times: int = 400) -> float:
    rng = np.random.default_rng(0)
    found = [make(rng) for _ in range(times)]
    return float(np.mean([interval.low <= 0 <= interval.high for interval in found]))


def test_coverage_on_clustered_items() -> None:
    labels = [i // 6 for i in range(150)]

    def sample(rng: np.random.Generator) -> np.ndarray:
        return np.repeat(rng.normal(size=25), 6) + 0.5 * rng.normal(size=150)

    assert 0.90 <= coverage(lambda rng: bootstrap(sample(rng), clusters=labels, **few)) <= 0.99
    # Taking the items for independent claims far too much: the clusters matter.
    assert coverage(lambda rng: bootstrap(sample(rng), **few)) < 0.75


def test_coverage_over_seeds_and_items() -> None:
    def sample(rng: np.random.Generator) -> np.ndarray:
        noise = 0.3 * rng.normal(size=(20, 30))
        return rng.normal(size=(20, 1)) + rng.normal(size=(1, 30)) + noise

    assert 0.90 <= coverage(lambda rng: bootstrap(sample(rng), **few)) <= 0.99
    assert coverage(lambda rng: bootstrap(sample(rng).mean(0), **few)) < 0.85


def test_coverage_of_an_accuracy_near_one() -> None:
    def missed(rng: np.random.Generator, interval: Callable[..., Interval]) -> Interval:
        found = interval((rng.random(60) < 0.97).astype(float), **few)
        return Interval(0.0, found.low - 0.97, found.high - 0.97, found.n)

    assert coverage(lambda rng: missed(rng, accuracy_interval)) >= 0.93
    assert coverage(lambda rng: missed(rng, bootstrap)) < 0.90


# -- differences and ratios


@quick
@given(tables, number)
def test_pairing_removes_what_the_items_share(table: np.ndarray, shift: float) -> None:
    found = paired_difference(table[:1] + shift, table[:1], **few)
    assert ends(found) == pytest.approx((shift, shift), abs=1e-9)


@quick
@given(tables, st.data())
def test_a_difference_turned_round_changes_its_sign(table: np.ndarray, data: st.DataObject) -> None:
    shape = (1, table.shape[1])
    other = data.draw(hnp.arrays(np.float64, shape, elements=number))
    one = paired_difference(table[:1], other, **few)
    two = paired_difference(other, table[:1], **few)
    assert (one.value, *ends(one)) == pytest.approx((-two.value, -two.high, -two.low))


def test_pairing_is_worth_it() -> None:
    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 100)) * 0.1 + rng.normal(size=100)
    b = rng.normal(size=(7, 100)) * 0.1 + a.mean(0) - 0.2
    found = paired_difference(a, b)
    assert judge(found, above=0.1) == "supported"
    assert found.n == 100
    unpaired = bootstrap(a).high - bootstrap(a).low
    assert found.high - found.low < unpaired / 3


def test_the_seeds_of_each_side_widen_the_difference() -> None:
    items = np.random.default_rng(0).normal(size=50)
    seeds = np.random.default_rng(1).normal(size=(8, 1))
    calm = paired_difference(items, items)
    for pair in ((items + seeds, items), (items, items + seeds)):
        wide = paired_difference(*pair)
        assert wide.high - wide.low > calm.high - calm.low + 0.5


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
    whole = np.abs(table[0]) + 1
    found = ratio_of_means(share * whole, whole, **few)
    assert (found.value, *ends(found)) == pytest.approx((share,) * 3)


def test_a_share_of_nothing_is_unknown() -> None:
    rng = np.random.default_rng(0)
    found = ratio_of_means(rng.normal(1, 1, size=50), rng.normal(0, 1, size=50))
    assert not found.known
    assert math.isnan(ratio_of_means([1.0, 1.0], [1.0, -1.0]).value)


# -- shares


@quick
@given(st.integers(1, 500), st.floats(0, 1), st.floats(0.5, 0.999))
def test_wilson_lies_within_0_and_1_around_the_share(n: int, share: float, level: float) -> None:
    found = wilson(share * n, n, level=level)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.low < found.high
    mirrored = wilson(n - share * n, n, level=level)
    assert ends(mirrored) == pytest.approx((1 - found.high, 1 - found.low))


@quick
@given(st.integers(1, 500), st.floats(0.01, 0.99))
def test_wilson_ends_where_the_share_would_be_just_too_far_off(n: int, share: float) -> None:
    """The definition: from either end, the share lies 1.96 standard errors away."""
    found = wilson(share * n, n)
    for end in ends(found):
        assert abs(share - end) == pytest.approx(1.959964 * math.sqrt(end * (1 - end) / n))


def test_successes_beyond_the_trials_are_a_mistake() -> None:
    for successes, n in ((1, 0), (-1, 5), (6, 5)):
        with pytest.raises(ValueError, match="successes"):
            wilson(successes, n)


def test_accuracy_by_bootstrap_in_the_middle_and_by_wilson_at_the_ends() -> None:
    middle = np.arange(100) % 2
    assert accuracy_interval(middle) == bootstrap(middle)
    for right in (0, 2, 97, 100):
        values = np.arange(100) < right
        assert ends(accuracy_interval(values)) == pytest.approx(ends(wilson(right, 100)))


def test_accuracy_near_one_counts_clusters() -> None:
    found = accuracy_interval(np.ones(100), clusters=[i // 10 for i in range(100)])
    assert (found.value, found.n) == (1.0, 10)
    assert ends(found) == ends(wilson(10, 10))
    alone = accuracy_interval(np.ones(10), clusters=["a"] * 10)
    assert ends(alone) == ends(wilson(1, 1))


def test_half_right_everywhere_is_not_certainty() -> None:
    found = accuracy_interval([1, 0] * 20, clusters=[i // 2 for i in range(40)])
    assert ends(found) == ends(wilson(10, 20))


def test_accuracy_near_one_with_seeds_that_disagree() -> None:
    values = np.ones((6, 100))
    values[0, :24] = 0  # one seed of six fails on much: 0.96 in all
    found = accuracy_interval(values)
    assert found.low < wilson(96, 100).low
    assert found.high >= wilson(96, 100).high
    with pytest.raises(ValueError, match="0 to 1"):
        accuracy_interval([0.5, 1.5])


# -- verdicts


@pytest.mark.parametrize(
    ("claim", "verdicts"),
    [
        ({"below": -0.05}, ("supported", "undecided", "refuted")),
        ({"above": -0.05}, ("refuted", "undecided", "supported")),
        ({"within": (-0.05, 0.05)}, ("refuted", "undecided", "supported")),
    ],
)
def test_verdicts(claim: dict[str, float], verdicts: tuple[str, ...]) -> None:
    intervals = [(-0.3, -0.1), (-0.3, 0.0), (-0.02, 0.04)]
    found = [judge(Interval((a + b) / 2, a, b, 50), **claim) for a, b in intervals]  # type: ignore[arg-type]
    assert tuple(found) == verdicts


def test_a_wide_interval_around_a_margin_is_undecided() -> None:
    assert judge(Interval(0.0, -0.5, 0.5, 9), within=(-0.05, 0.05)) == "undecided"


@quick
@given(number, number, number)
def test_above_and_below_never_agree(a: float, b: float, bound: float) -> None:
    interval = Interval((a + b) / 2, min(a, b), max(a, b), 9)
    pair = {judge(interval, above=bound), judge(interval, below=bound)}
    assert pair in ({"undecided"}, {"supported", "refuted"}) or {a, b} & {bound}


def test_a_claim_is_one_claim() -> None:
    interval = Interval(0.0, -1.0, 1.0, 9)
    with pytest.raises(ValueError, match="one of"):
        judge(interval)
    with pytest.raises(ValueError, match="one of"):
        judge(interval, above=0.0, below=1.0)
