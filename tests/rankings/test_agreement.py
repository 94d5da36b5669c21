"""Agreement of rankings, against counting by hand and against truth that is made up."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from planted import plant

from headcount import HeadcountError, HeadLayout, HeadScores, rank
from headcount.rankings.agreement import agreement, chance_overlap, ranks, spearman, stability
from headcount.stats import bootstrap
from headcount.system.files import to_json

LAYOUT = HeadLayout((10, 10))
VALUES = st.lists(st.integers(-5, 5), min_size=3, max_size=20)


def scored(values: Any, samples: Any = None, ranking: str = "m") -> HeadScores:
    layout = HeadLayout((len(values),))
    given_samples = None if samples is None else np.asarray(samples, dtype=float)
    return HeadScores(layout, np.asarray(values, dtype=float), ranking, samples=given_samples)


# Spearman


@given(values=VALUES)
def test_ranks_are_means_over_ties(values: list[int]) -> None:
    expected = [
        np.mean([place + 1 for place, v in enumerate(sorted(values)) if v == value])
        for value in values
    ]
    np.testing.assert_allclose(ranks(np.array(values, dtype=float)), expected)


@given(pairs=st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=3, max_size=30))
def test_spearman_is_pearsons_of_ranks(pairs: list[tuple[int, int]]) -> None:
    one, other = np.array(pairs, dtype=float).T
    found = spearman(one, other)
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert math.isnan(found)
        return
    assert found == pytest.approx(np.corrcoef(ranks(one), ranks(other))[0, 1], abs=1e-12)
    assert found == spearman(other, one)
    assert spearman(-one, other) == pytest.approx(-found)
    assert spearman(np.exp(one), other) == pytest.approx(found)  # only the order counts
    assert spearman(one, one) == 1


def test_spearman_without_ties_by_the_formula_of_the_books() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.permutation(30).astype(float), rng.permutation(30).astype(float)
    expected = 1 - 6 * ((one - other) ** 2).sum() / (30 * (30**2 - 1))
    assert spearman(one, other) == pytest.approx(expected)


# Overlap and chance


@pytest.mark.parametrize(("total", "count"), [(6, 2), (7, 5), (9, 4), (5, 5), (8, 1)])
def test_chance_is_what_all_draws_give(total: int, count: int) -> None:
    """Every draw of the second ranking is equally likely: count them all."""
    best = set(range(count))
    shares = sorted(len(best & set(c)) / count for c in combinations(range(total), count))
    mean, low, high = chance_overlap(total, count)
    assert mean == pytest.approx(np.mean(shares))
    assert low == shares[math.ceil(0.025 * len(shares)) - 1]
    assert high == shares[math.ceil(0.975 * len(shares)) - 1]


@given(total=st.integers(1, 400), share=st.floats(0.01, 1))
def test_chance_surrounds_its_mean(total: int, share: float) -> None:
    count = max(1, round(total * share))
    mean, low, high = chance_overlap(total, count)
    assert mean == pytest.approx(count / total)
    assert 0 <= low <= mean + 1 / count
    assert mean - 1 / count <= high <= 1


def test_random_rankings_agree_as_chance_says() -> None:
    rng = np.random.default_rng(1)
    inside = []
    for _ in range(200):
        pair = {name: scored(rng.random(60)) for name in "ab"}
        found = agreement(pair, [4, 16])
        assert abs(found.correlation[0, 1]) < 0.6
        inside += [o.chance_low <= o.share <= o.chance_high for o in found.overlaps]
    assert np.mean(inside) >= 0.95  # discrete: more than 95 % lie within


def test_overlap_counts_the_heads_in_common() -> None:
    one, other = scored([9, 8, 7, 6, 1, 0]), scored([9, 1, 7, 8, 6, 0])
    found = agreement({"one": one, "other": other}, counts=[1, 2, 3, 6, 0])
    assert [(o.count, o.share) for o in found.overlaps] == [(1, 1), (2, 0.5), (3, 2 / 3), (6, 1)]
    assert found.counts == [1, 2, 3, 6]
    assert found.overlaps[1].chance == pytest.approx(2 / 6)


def test_counts_are_powers_of_two_up_to_half() -> None:
    values = np.arange(20.0)
    pair = {"a": HeadScores(LAYOUT, values, "m"), "b": HeadScores(LAYOUT, -values, "m")}
    found = agreement(pair)
    assert found.counts == [1, 2, 4, 8]
    assert found.correlation[0, 1] == -1
    assert [o.share for o in found.overlaps] == [0, 0, 0, 0]


def test_every_pair_is_there_once() -> None:
    rng = np.random.default_rng(0)
    rankings = {name: scored(rng.random(12)) for name in "abcd"}
    found = agreement(rankings, [3])
    assert [(o.one, o.other) for o in found.overlaps] == list(combinations("abcd", 2))
    np.testing.assert_array_equal(found.correlation, found.correlation.T)
    np.testing.assert_array_equal(np.diag(found.correlation), 1)


def test_what_cannot_be_compared_is_refused() -> None:
    a = scored(np.arange(6))
    with pytest.raises(HeadcountError, match="at least two"):
        agreement({"a": a})
    with pytest.raises(HeadcountError, match='"a" and "b" are of different models'):
        agreement({"a": a, "b": scored(np.arange(8))})
    with pytest.raises(HeadcountError, match="Cannot choose 7 heads"):
        agreement({"a": a, "b": a}, [7])


def test_scores_that_are_all_one_correlate_with_nothing() -> None:
    found = agreement({"a": scored([1, 1, 1]), "b": scored([1, 2, 3])}, [1])
    assert math.isnan(found.correlation[0, 1])
    assert math.isnan(found.correlation[0, 0])
    assert "nan" in str(found)
    assert json.loads(to_json(found.to_json()))["spearman"][0][1] is None


def test_planted_rankings_agree() -> None:
    planted = plant(needed=["0.1", "1.3", "2.0"], interfering=["0.2"])
    names = ("ablation", "attribution", "random")
    found = agreement({name: rank(planted.model, planted.task, name) for name in names}, [3])
    shares = {(o.one, o.other): o.share for o in found.overlaps}
    assert shares["ablation", "attribution"] == 1
    assert found.stability["ablation"].value > 0.5
    assert math.isnan(found.stability["random"].value)  # it has no samples


# Stability


def noisy(noise: float, rows: int = 40, seed: int = 0) -> HeadScores:
    rng = np.random.default_rng(seed)
    samples = np.linspace(0, 1, 30) + noise * rng.normal(size=(rows, 30))
    return scored(samples.mean(0), samples)


def test_stability_falls_with_noise_and_rises_with_samples() -> None:
    by_noise = [stability(noisy(noise)).value for noise in (0.01, 0.5, 2, 20)]
    assert by_noise == sorted(by_noise, reverse=True)
    assert by_noise[0] > 0.99
    assert abs(by_noise[-1]) < 0.4
    assert stability(noisy(2, rows=400)).value > stability(noisy(2, rows=20)).value


def test_the_interval_holds_the_value_and_what_others_would_find() -> None:
    """Coverage: in most samples of 40, the interval holds the mean over all such samples."""
    found = [stability(noisy(2, seed=seed), resamples=200) for seed in range(40)]
    truth = np.mean([one.value for one in found])
    assert all(-1 <= one.low <= one.value <= one.high <= 1 for one in found)
    assert np.mean([one.low <= truth <= one.high for one in found]) > 0.8
    assert np.mean([one.high - one.low for one in found]) < 0.6


def test_too_few_samples_have_no_interval() -> None:
    four, two, one = (stability(noisy(0.1, rows=rows)) for rows in (4, 2, 1))
    assert four.known
    assert not two.known
    assert two.value > 0.8
    assert math.isnan(one.value)
    assert stability(scored([1, 2, 3])).n == 0


def test_samples_of_one_cluster_stay_together() -> None:
    """Corrupted prompts in both halves would agree with each other, however noisy they are."""
    samples = np.repeat(np.random.default_rng(0).normal(size=(6, 30)), 10, axis=0)
    scores = scored(samples.mean(0), samples)
    clusters = np.repeat(np.arange(6), 10)
    apart, together = stability(scores), stability(scores, clusters)
    assert apart.value > 0.4
    assert together.value < 0.2
    assert (apart.n, together.n) == (60, 6)
    crossed = np.stack([clusters % 2, clusters], 1)  # of two templates, each with three contents
    assert stability(scores, crossed).n == 6
    with pytest.raises(ValueError, match="5 clusters for 60 samples"):
        stability(scores, clusters[:5])


def test_the_same_seed_gives_the_same_interval() -> None:
    assert stability(noisy(1)) == stability(noisy(1)) != stability(noisy(1), seed=1)


# Intervals of single heads


def test_intervals_are_those_of_the_bootstrap() -> None:
    scores = noisy(0.5)
    clusters = np.arange(40) // 2
    for names in (None, clusters):
        found = scores.intervals(names)
        assert found.shape == (30, 2)
        assert scores.samples is not None
        for head in (0, 17):
            expected = bootstrap(scores.samples[:, head], clusters=names)
            width = expected.high - expected.low
            np.testing.assert_allclose(
                found[head], [expected.low, expected.high], atol=0.15 * width
            )


@given(rows=st.integers(2, 12), seed=st.integers(0, 99))
def test_intervals_hold_the_mean(rows: int, seed: int) -> None:
    assume(rows > 3)
    samples = np.random.default_rng(seed).random((rows, 5))
    ends = scored(samples.mean(0), samples).intervals()
    assert (ends[:, 0] <= samples.mean(0)).all()
    assert (samples.mean(0) <= ends[:, 1]).all()


def test_intervals_that_cannot_be_known() -> None:
    assert np.isnan(scored([1, 2]).intervals()).all()
    assert np.isnan(scored([1, 2], [[1, 2]]).intervals()).all()
    assert np.isnan(scored([1, 2], [[1, 2], [1, 2]]).intervals(["a", "a"])).all()
    with pytest.raises(ValueError, match="1 clusters for 2 samples"):
        scored([1, 2], [[1, 2], [1, 2]]).intervals(["a"])


# What is printed and written


def test_the_table_holds_the_numbers() -> None:
    one, other = noisy(1), noisy(1, seed=1)
    text = str(agreement({"attribution": one, "ablation": other}, [4]))
    assert "attribution / ablation" in text
    assert "Spearman correlation of the scores" in text
    assert "n = 40" in text
    assert len({len(line) for line in text.splitlines()[1:4]}) == 1  # a square of columns
    without = {name: replace(s, samples=None) for name, s in (("a", one), ("b", other))}
    assert "Stability" not in str(agreement(without, [4]))


def test_json_is_complete() -> None:
    found = agreement({"a": noisy(1), "b": noisy(1, seed=1)}, [4])
    data = json.loads(to_json(found.to_json()))
    assert data["format"] == "headcount agreement 1"
    assert data["rankings"] == ["a", "b"]
    assert data["heads"] == 30
    assert data["spearman"][0][1] == found.correlation[0, 1]
    assert data["overlaps"][0]["share"] == found.overlaps[0].share
    assert data["stability"]["a"]["n"] == 40
