"""Exact tests, held against a count of all possible outcomes."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.stats import mcnemar, rank_probability

answers = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=10)


@settings(max_examples=40, deadline=None)
@given(answers)
def test_mcnemar_counts_all_ways_in_which_answers_may_change(
    pairs: list[tuple[bool, bool]],
) -> None:
    a, b = zip(*pairs, strict=True)
    changed = [int(x) - int(y) for x, y in pairs if x != y]
    seen = abs(sum(changed))
    ways = [abs(sum(signs)) for signs in product((-1, 1), repeat=len(changed))]
    assert mcnemar(a, b) == pytest.approx(np.mean([way >= seen for way in ways]))
    assert mcnemar(a, b) == mcnemar(b, a)


def test_mcnemar_looks_only_at_what_changes() -> None:
    assert mcnemar([1, 1, 0, 0], [1, 1, 0, 0]) == 1
    one = mcnemar([1] * 8 + [0] * 2, [0] * 8 + [1] * 2)
    assert mcnemar([1] * 8 + [0] * 2 + [1] * 500, [0] * 8 + [1] * 2 + [1] * 500) == one


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=20), st.integers(0, 5))
def test_a_rank_is_never_below_one_of_all(draws: list[int], value: int) -> None:
    found = rank_probability(value, draws)
    assert 1 / (1 + len(draws)) <= found <= 1
    assert found == pytest.approx(sum(x <= value for x in [*draws, value]) / (1 + len(draws)))


def test_a_rank_is_wrong_as_seldom_as_it_says() -> None:
    """If the value is a draw like the others, p ≤ 0.05 happens 5 times in 100."""
    rng = np.random.default_rng(0)
    p = np.array([rank_probability(x[0], x[1:]) for x in rng.normal(size=(4000, 20))])
    assert np.mean(p <= 0.05) == pytest.approx(0.05, abs=0.015)
    assert np.mean(p <= 0.5) == pytest.approx(0.5, abs=0.03)
