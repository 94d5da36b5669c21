"""Random controls: from outside the heads under test, layer by layer where asked."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, HeadLayout, rank, wrap
from headcount.rankings.random_draws import draw_matched, draw_random

COUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=6)
SEEDS = st.integers(0, 2**32 - 1)


def choose(layout: HeadLayout, share: float, seed: int) -> list[int]:
    """Some of the heads, in any order, as a ranking would give them."""
    count = round(share * layout.total)
    return np.random.default_rng(seed).permutation(layout.total)[:count].tolist()


@given(counts=COUNTS, share=st.floats(0, 1), size=st.integers(0, 40), seed=SEEDS)
def test_random_heads_lie_outside(counts: list[int], share: float, size: int, seed: int) -> None:
    layout = HeadLayout(tuple(counts))
    outside = choose(layout, share, seed)
    left = layout.total - len(outside)
    if size > left:
        with pytest.raises(HeadcountError, match=f"only {left} of {layout.total} are left"):
            draw_random(layout, size, outside=outside, seed=seed)
        return
    drawn = draw_random(layout, size, outside=outside, seed=seed)
    assert len(set(drawn.tolist())) == size
    assert not set(drawn.tolist()) & set(outside)
    assert all(0 <= number < layout.total for number in drawn)
    np.testing.assert_array_equal(drawn, draw_random(layout, size, outside=outside, seed=seed))


@given(counts=COUNTS, share=st.floats(0, 0.5), seed=SEEDS)
def test_matched_heads_lie_in_the_same_layers(counts: list[int], share: float, seed: int) -> None:
    layout = HeadLayout(tuple(counts))
    chosen = choose(layout, share, seed)
    assume(2 * len(chosen) <= layout.total)
    drawn, unmatched = draw_matched(layout, chosen, seed=seed)
    assert len(set(drawn.tolist())) == len(chosen)
    assert not set(drawn.tolist()) & set(chosen)
    wanted = Counter(layout.layers[chosen].tolist())
    found = Counter(layout.layers[drawn].tolist())
    spare = {layer: counts[layer] - wanted[layer] for layer in range(len(counts))}
    for layer, need in wanted.items():
        assert found[layer] >= min(need, spare[layer])
    elsewhere = sum(max(0, need - spare[layer]) for layer, need in wanted.items())
    assert unmatched == pytest.approx(elsewhere / max(len(chosen), 1))
    if not elsewhere:
        assert found == wanted


@given(counts=COUNTS, share=st.floats(0.5, 1), seed=SEEDS)
def test_more_than_half_cannot_be_matched(counts: list[int], share: float, seed: int) -> None:
    layout = HeadLayout(tuple(counts))
    chosen = choose(layout, share, seed)
    assume(2 * len(chosen) > layout.total)
    with pytest.raises(HeadcountError, match="use smaller counts"):
        draw_matched(layout, chosen, seed=seed)


@pytest.mark.parametrize(
    ("chosen", "layers"),
    [
        ([4, 5], [1, 1]),  # all of layer 2: layer 1 is as near as layer 3, and comes first
        ([4, 5, 2, 3], [0, 0, 3, 3]),  # layers 1 and 2: each takes from its neighbour
        ([6, 7], [2, 2]),
        ([0], [0]),
    ],
)
def test_the_nearest_layers_fill_in(chosen: list[int], layers: list[int]) -> None:
    layout = HeadLayout((2, 2, 2, 2))
    for seed in range(5):
        drawn, unmatched = draw_matched(layout, chosen, seed=seed)
        assert sorted(layout.layers[drawn].tolist()) == layers
        assert unmatched == (0 if chosen == [0] else 1)


def test_seeds_draw_differently_and_every_head_has_its_turn() -> None:
    layout = HeadLayout((8, 8))
    for draw in (
        lambda seed: draw_random(layout, 3, outside=[0, 1, 9], seed=seed),
        lambda seed: draw_matched(layout, [0, 1, 9], seed=seed)[0],
    ):
        drawn = [frozenset(draw(seed).tolist()) for seed in range(60)]
        assert len(set(drawn)) > 30
        assert frozenset.union(*drawn) == set(range(16)) - {0, 1, 9}


def test_a_random_ranking_is_a_permutation_by_its_seed() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    task = toy_task()
    zero, again, one = (rank(model, task, "random", seed=seed) for seed in (0, 0, 1))
    assert zero.order().tolist() == again.order().tolist() != one.order().tolist()
    assert sorted(zero.order().tolist()) == list(range(8))
