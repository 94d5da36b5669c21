"""Rankings on prompts that were drawn again."""

from __future__ import annotations

import numpy as np
import pytest

from headcount import HeadLayout, HeadScores
from headcount.rankings.reranked import ranked_again


def one_head_each(rows: int) -> HeadScores:
    """Scores in which every prompt speaks for a head of its own, so that weights can be read."""
    return HeadScores.averaged(HeadLayout((rows,)), np.eye(rows), "by hand")


def crossed(templates: int, contents: int) -> np.ndarray:
    return np.array([(t, c) for t in range(templates) for c in range(contents)])


def test_whole_templates_are_drawn_where_there_are_at_least_five() -> None:
    for seed in range(20):
        found = ranked_again(one_head_each(15), crossed(5, 3), seed)
        assert found is not None
        assert found.sum() == pytest.approx(1)
        times = found.reshape(5, 3) * 15  # (templates, contents)
        np.testing.assert_allclose(times, times[:, :1].repeat(3, 1))
        assert times[:, 0].sum() == pytest.approx(5)  # as many as there are


def test_single_prompts_are_drawn_where_templates_are_few() -> None:
    drawn = [ranked_again(one_head_each(12), crossed(2, 6), seed) for seed in range(20)]
    times = np.array(drawn).reshape(20, 2, 6) * 12
    np.testing.assert_allclose(times, times.round(), atol=1e-9)
    np.testing.assert_allclose(times.sum((1, 2)), 12)
    assert (np.ptp(times, axis=2) > 0.5).any(axis=1).all()  # prompts of one template go apart


def test_the_seed_decides() -> None:
    first, again, other = (ranked_again(one_head_each(12), crossed(4, 3), s) for s in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_scores_that_are_not_by_prompt_cannot_be_ranked_again() -> None:
    without = HeadScores(HeadLayout((2,)), np.array([1.0, 2.0]), "by hand")
    assert ranked_again(without, crossed(2, 1), seed=0) is None
    assert ranked_again(one_head_each(3), crossed(2, 2), seed=0) is None  # one sample per fit
