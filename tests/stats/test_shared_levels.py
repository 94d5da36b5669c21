"""What several tables share is one source of chance: their mean is no surer than one of them."""

from __future__ import annotations

import numpy as np
import pytest

from headcount.stats import Resampling, mean_of

N, COUNTS = 30, 4
EACH = np.array([[-0.5], [0.5], [0.0], [1.0], [-1.0]])  # deviations of rankings, or of draws


def test_rankings_drawn_again_are_one_level_of_all_counts() -> None:
    """Four counts with the same rankings, all of whose chance is that of the ranking."""
    items = Resampling(range(N))
    counts = [
        items.estimate(np.zeros(N) + c + 2, reranked=EACH + np.zeros(N)) for c in range(COUNTS)
    ]
    error = EACH.std(ddof=1)
    assert counts[0].spread.error == pytest.approx(error, rel=0.1)
    assert mean_of(counts).spread.error == pytest.approx(counts[0].spread.error)
    assert mean_of(counts).spread.freedom == pytest.approx(len(EACH) - 1)
    assert (counts[0] - counts[1]).spread.error == pytest.approx(0, abs=1e-12)


def test_rankings_of_other_items_or_in_another_number_are_others() -> None:
    one, other = Resampling(range(N), seed=1), Resampling(range(N), seed=2)
    table, again = np.zeros(N) + 2, EACH + np.zeros(N)
    first = one.estimate(table, reranked=again)
    for second in (other.estimate(table, reranked=again), one.estimate(table, reranked=again[:4])):
        expected = np.hypot(first.spread.error, second.spread.error)
        assert (first - second).spread.error == pytest.approx(expected)


def test_named_draws_of_a_difference_are_one_level_of_all_counts() -> None:
    items, top = Resampling(range(N)), np.zeros(N) + 2
    tables = [EACH + c + 3 * np.ones(N) for c in range(COUNTS)]
    shared = [items.difference(top, table, draws=("top", "random")) for table in tables]
    apart = [items.difference(top, table) for table in tables]
    assert shared[0].value == apart[0].value == -1
    assert shared[0].spread.error == pytest.approx(apart[0].spread.error, rel=0.1)
    assert mean_of(shared).spread.error == pytest.approx(shared[0].spread.error)
    assert mean_of(apart).spread.error == pytest.approx(apart[0].spread.error / 2, rel=0.1)
