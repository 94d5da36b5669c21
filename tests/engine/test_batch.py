"""Batches: every example once, its tokens where they belong."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headcount import Example
from headcount.engine.measure.batch import make_batches
from headcount.tasks import Encoded

EXAMPLE = Example("0", "made", " up")


def ids(least: int, most: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(1, 99), min_size=least, max_size=most).map(tuple)


# Prompt, target, foils, corrupted prompt and further answers. Examples are built in the test: type
# checks of our dataclasses look at random items, and strategies may not use chance of their own.
ANSWERS = st.lists(ids(1, 2), max_size=2).map(tuple)
IDS = st.tuples(ids(1, 9), ids(1, 3), ANSWERS, st.none() | ids(1, 9), ANSWERS)


@given(
    examples=st.lists(IDS, min_size=1, max_size=8),
    tokens=st.integers(1, 60),
    corrupted=st.booleans(),
)
def test_batches_hold_each_example_once_and_whole(
    examples: list[Any], tokens: int, corrupted: bool
) -> None:
    encoded = [Encoded(EXAMPLE, *parts) for parts in examples]
    batches = make_batches(encoded, tokens=tokens, corrupted=corrupted)
    assert sorted(e for batch in batches for e in batch.examples) == list(range(len(encoded)))
    for batch in batches:
        assert batch.rows == 1 or batch.ids.numel() <= 1.25 * tokens
        for row, place in enumerate(batch.examples):
            one = encoded[place]
            prompt = one.corrupted if corrupted and one.corrupted else one.prompt
            sequence = [*prompt, *one.target[:-1]]
            ids = batch.ids[row]
            assert ids.tolist() == sequence
            # A target's token is predicted where the token before it stands.
            before = [prompt[-1], *one.target[:-1]]
            assert batch.ids[row, batch.scored[row]].tolist() == before
            assert batch.targets[row].tolist() == list(one.target)
            for found, answers in ((batch.foils, one.foils), (batch.also, one.also)):
                first, filling = [answer[0] for answer in answers], found.shape[1] - len(answers)
                assert found[row].tolist() == first + [-1] * filling


def test_some_rows_of_a_batch() -> None:
    encoded = [Encoded(EXAMPLE, (n, n + 1), (7,), ((8,),), None) for n in range(1, 5)]
    (batch,) = make_batches(encoded, tokens=99)
    part = batch.part(1, 3)
    assert part.examples == batch.examples[1:3]
    for name in ("ids", "scored", "targets", "foils", "also"):
        assert getattr(part, name).tolist() == getattr(batch, name)[1:3].tolist()


@pytest.mark.parametrize("tokens", [1, 6, 7, 12])
def test_a_batch_holds_hardly_more_tokens_than_it_may(tokens: int) -> None:
    """A quarter more is allowed, where it saves a small last batch."""
    encoded = [Encoded(EXAMPLE, (1, 2, 3), (7,), (), None) for _ in range(5)]
    rows = [batch.rows for batch in make_batches(encoded, tokens=tokens)]
    assert max(rows) <= 1.25 * max(1, tokens // 3)
    assert max(rows) - min(rows) <= max(rows) // 2
    assert sum(rows) == 5
