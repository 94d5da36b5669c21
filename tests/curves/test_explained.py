"""Explained effect on values that are made by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount.curves.explained import explained_effect, ratio_of_counts

PROMPTS = 40


def curve(
    *shares: float, scale: float = 4.0, seed: int = 0, noise: float = 0.5
) -> dict[int, np.ndarray]:
    """Prompts that have so much of their effect with 0, 10, 20, … heads."""
    rng = np.random.default_rng(seed)
    none = rng.normal(-1, noise, PROMPTS)
    effect = rng.normal(scale, noise, PROMPTS)
    return {10 * k: (none + share * effect)[None] for k, share in enumerate(shares)}


def test_no_head_explains_nothing_and_all_heads_everything() -> None:
    found = explained_effect(curve(0, 0.4, 0.95, 1), range(PROMPTS))
    np.testing.assert_allclose(found.values, [0, 0.4, 0.95, 1], atol=1e-12)
    assert [count for count, _ in found.points] == [0, 10, 20, 30]
    assert [(found.points[i][1].low, found.points[i][1].high) for i in (0, 3)] == [
        (pytest.approx(0), pytest.approx(0)),
        (pytest.approx(1), pytest.approx(1)),
    ]
    assert found.known
    assert found.span.low > 3


def test_it_is_a_ratio_of_means_and_not_a_mean_of_ratios() -> None:
    none, whole = np.array([0.0, 0.0]), np.array([0.01, 9.99])
    some = np.array([0.02, 0.0])  # twice the effect of the one, nothing of the other
    found = explained_effect({0: none[None], 1: some[None], 2: whole[None]}, ["a", "b"])
    assert found.values[1] == pytest.approx(0.02 / 10)


def test_first_and_last_crossing() -> None:
    found = explained_effect(curve(0, 0.95, 0.5, 1.8, 0.7, 0.92, 1), range(PROMPTS))
    assert (found.first().value, found.last().value) == (10, 50)
    assert (found.first(0.5).value, found.last(0.5).value) == (10, 10)
    assert (found.first(0.99).value, found.last(0.99).value) == (30, 60)
    steep = explained_effect(curve(0, 1, 1), range(PROMPTS))
    assert (steep.first().value, steep.last().value) == (10, 10)


def test_intervals_hold_what_other_prompts_would_give() -> None:
    """Where the curve passes the threshold slowly, other prompts would need other counts."""
    rng = np.random.default_rng(1)
    values = {0: np.zeros((1, PROMPTS)), 100: np.full((1, PROMPTS), 1.0)}
    for count, share in ((20, 0.7), (40, 0.88), (60, 0.91), (80, 0.97)):
        values[count] = share + rng.normal(0, 0.15, (1, PROMPTS))
    found = explained_effect(values, range(PROMPTS))
    first = found.first()
    assert first.low < first.high
    for _, interval in found.points[1:4]:
        assert interval.low < interval.value < interval.high


def test_clusters_widen_intervals() -> None:
    rng = np.random.default_rng(2)
    values = {
        0: np.zeros((1, 40)),
        1: np.repeat(rng.normal(0.5, 0.3, 8), 5)[None],
        2: np.ones((1, 40)),
    }
    alone = explained_effect(values, range(40)).points[1][1]
    together = explained_effect(values, np.repeat(np.arange(8), 5)).points[1][1]
    assert together.high - together.low > 1.5 * (alone.high - alone.low)


def test_random_orders_are_drawn_too() -> None:
    rng = np.random.default_rng(3)
    level = np.array([0.1, 0.5, 0.9])[:, None]  # of each draw
    values = {0: np.zeros((3, 40)), 1: level + rng.normal(0, 0.01, (3, 40)), 2: np.ones((3, 40))}
    found = explained_effect(values, range(40))
    assert found.values[1] == pytest.approx(0.5, abs=0.01)
    assert found.points[1][1].low < 0.35
    assert found.points[1][1].high > 0.65


def test_without_an_effect_nothing_is_known() -> None:
    rng = np.random.default_rng(4)
    values = {count: rng.normal(0, 1, (1, 40)) for count in (0, 5, 10)}
    found = explained_effect(values, range(40))
    assert not found.known
    assert math.isnan(found.first().low)
    assert math.isnan(found.first().value)
    assert math.isnan(found.points[1][1].low)
    assert not math.isnan(found.points[1][1].value)
    assert math.isnan(ratio_of_counts(found, explained_effect(curve(0, 1), range(40))).value)
    backwards = {0: np.ones((1, 40)), 10: np.zeros((1, 40))}
    assert not explained_effect(backwards, range(40)).known
    assert not explained_effect({0: np.zeros((1, 3)), 1: np.ones((1, 3))}, ["a"] * 3).known


def test_the_ratio_of_counts() -> None:
    dense = explained_effect(curve(0, 0.2, 0.5, 0.7, 0.95, 1), range(PROMPTS))
    sparse = explained_effect(curve(0, 0.5, 0.97, 1, 1, 1, seed=1), range(PROMPTS))
    ratio = ratio_of_counts(dense, sparse)
    # 40 heads and 20 were found, and between 30 and 40, and 10 and 20, nothing was tried.
    assert (ratio.value, ratio.low, ratio.high) == (2, 31 / 20, 40 / 11)
    assert ratio_of_counts(sparse, dense).value == 0.5


def test_equal_counts_and_other_grids_decide_nothing() -> None:
    values = curve(0, 0.1, 0.2, 0.3, 0.4, 1)  # 0.9 only with all heads
    found = explained_effect(values, range(PROMPTS))
    assert (found.first().value, found.first().low) == (50, 41)
    tie = ratio_of_counts(found, found)
    assert tie.low < 1 < tie.high
    rising = curve(0, 0.3, 0.6, 0.95, 1, 1)
    coarse = {count: rising[count] for count in (0, 20, 50)}
    one, other = (explained_effect(some, range(PROMPTS)) for some in (coarse, rising))
    ratio = ratio_of_counts(one, other)
    assert ratio.value > 1 > ratio.low


@given(st.lists(st.floats(-2, 3), min_size=1, max_size=6), st.floats(0.1, 5), st.floats(-3, 3))
def test_units_do_not_matter(shares: list[float], scale: float, shift: float) -> None:
    values = curve(0, *shares, 1, noise=0.1)
    moved = {count: scale * table + shift for count, table in values.items()}
    one, other = (explained_effect(some, range(PROMPTS), resamples=50) for some in (values, moved))
    np.testing.assert_allclose(one.values, other.values, atol=1e-9)
    assert 0 < one.first().value <= one.counts[-1]
    assert one.first().value <= one.last().value
