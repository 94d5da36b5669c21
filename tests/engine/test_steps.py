"""Decoding through the cache: a shared start runs once per head set, and rows leave when done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from fast_paths_of_model import left_behind
from hypothesis import given
from hypothesis import strategies as st
from test_decode import by_whole_passes, go_on, ids_of, model_of, prompts, soft_gates
from toy import WORDS

from headcount.engine.measure.batch import shared_start
from headcount.engine.write import decode
from headcount.engine.write.prefix import Prefix
from headcount.engine.write.steps import ignores_gaps
from headcount.models.model import Model

MODELS = ("llama", "gpt2", "mistral", "bloom", "qwen3_next")  # the last ones keep no plain cache
SHARED = " ".join(WORDS[i % len(WORDS)] for i in range(3, 15))


def asked(lengths: tuple[int, ...] = (2, 3, 2, 1)) -> list[str]:
    return [f"{SHARED} {rest}" for rest in prompts(lengths, seed=1)]


def crossed(texts: list[str], gates: np.ndarray) -> tuple[list[str], np.ndarray]:
    """Every prompt under every head set."""
    return texts * len(gates), np.repeat(gates, len(texts), axis=0)


@contextmanager
def passes(model: Model) -> Iterator[list[tuple[int, int]]]:
    """The (rows, tokens) of each pass."""
    shapes: list[tuple[int, int]] = []
    handle = model.module.get_input_embeddings().register_forward_pre_hook(
        lambda _, args: shapes.append(tuple(args[0].shape))
    )
    try:
        yield shapes
    finally:
        handle.remove()


@pytest.mark.parametrize("model_type", MODELS)
@pytest.mark.parametrize("rows", [None, 3])
def test_every_prompt_under_every_head_set(model_type: str, rows: int | None) -> None:
    model = model_of(model_type)
    texts, gates = crossed(asked(), soft_gates(model, 3))
    expected = [by_whole_passes(model, *both) for both in zip(texts, gates, strict=True)]
    assert ids_of(go_on(model, texts, gates, rows=rows)) == expected
    assert len(set(expected)) > len(asked())
    assert left_behind(model.module) == []


def test_the_shared_start_runs_once_for_each_head_set() -> None:
    model = model_of("llama")
    texts, gates = crossed(asked(), soft_gates(model, 3))
    with passes(model) as shapes:
        go_on(model, texts, gates, max_new_tokens=1)
    shared = shared_start([tuple(model.tokenizer.encode(text)) for text in texts])
    assert shared >= 12
    assert [shape for shape in shapes if shape[1] >= shared] == [(3, shared)]
    assert sum(rows for rows, tokens in shapes if tokens < shared) == len(texts)


def test_without_gates_it_runs_once_for_all() -> None:
    model = model_of("llama")
    with passes(model) as shapes:
        texts = go_on(model, asked(), max_new_tokens=1)
    assert max(shapes, key=lambda shape: shape[1])[0] == 1
    assert [t.ids for t in texts] == [go_on(model, [p], max_new_tokens=1)[0].ids for p in asked()]


def test_scope_decode_leaves_the_prompt_alone() -> None:
    model = model_of("llama")
    texts, gates = crossed(asked((2, 2)), soft_gates(model, 2))
    lengths = [len(model.tokenizer.encode(text)) for text in texts]
    expected = [
        by_whole_passes(model, text, row, spared=length)
        for text, row, length in zip(texts, gates, lengths, strict=True)
    ]
    with passes(model) as shapes:
        assert ids_of(go_on(model, texts, gates, scope="decode")) == expected
    assert max(shapes, key=lambda shape: shape[1])[0] == 1  # one undisturbed start for all


def test_rows_that_have_ended_leave_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    texts, gates = crossed(asked((2,) * 6), soft_gates(model, 2))
    whole = go_on(model, texts, gates)
    end = whole[0].ids[1]  # from now on this token ends a text
    monkeypatch.setattr(decode, "end_tokens", lambda _: {end})
    with passes(model) as shapes:
        cut = go_on(model, texts, gates)
    for before, after in zip(whole, cut, strict=True):
        place = before.ids.index(end) if end in before.ids else None
        assert after.ids == before.ids[:place]
        assert after.finished == (place is not None)
    rows = [rows for rows, tokens in shapes if tokens == 1]
    assert rows == sorted(rows, reverse=True)
    assert rows[-1] < len(texts)


def test_rows_that_end_one_after_the_other_are_not_waited_for() -> None:
    """Too few end at once for the batch to be moved together, but none counts as going on again."""
    model, rows = model_of("llama"), 40
    prompts = [(1 + n % 30, 2 + n // 30) for n in range(rows)]
    prefix = Prefix(model, None, (), ungated=False)
    steps = decode.Steps(prefix, decode.Decoding(max_new_tokens=60))
    calls: list[int] = []

    def ended(texts: list[list[int]]) -> list[bool]:
        calls.append(len(texts))
        return [n == 0 for n in range(len(texts))]  # the first of those that go on

    steps.ended = ended
    texts = steps.run(prompts, [0] * rows)
    assert len(calls) == rows  # one ends in each step, and then it is over
    assert calls == list(range(rows, 0, -1))
    assert [len(text) for text in texts] == list(range(1, rows + 1))


def test_draws_do_not_depend_on_the_way() -> None:
    model = model_of("llama")
    options: dict[str, Any] = {"temperature": 1.5, "top_p": 0.9, "seed": 3}
    together = go_on(model, asked(), **options)
    assert together == [go_on(model, [prompt], **options)[0] for prompt in asked()]
    assert together != go_on(model, asked(), temperature=1.5, top_p=0.9, seed=4)


def test_short_memory_halves_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    texts, gates = crossed(asked(), soft_gates(model, 4))
    expected = go_on(model, texts, gates)
    run = decode.Steps.run

    def short(self: Any, some: Any, sets: Any) -> Any:
        if len(some) > 2:
            raise torch.OutOfMemoryError("out of memory")
        return run(self, some, sets)

    monkeypatch.setattr(decode.Steps, "run", short)
    assert go_on(model, texts, gates) == expected


@given(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), min_size=1, max_size=5))
def test_shared_start(rows: list[list[int]]) -> None:
    found = shared_start([tuple(row) for row in rows])
    assert all(len(row) > found for row in rows)
    assert len({tuple(row[:found]) for row in rows}) == 1
    longer = {tuple(row[: found + 1]) for row in rows}
    assert len(longer) > 1 or any(len(row) == found + 1 for row in rows)


@pytest.mark.parametrize(("model_type", "bears"), [("llama", True), ("gpt2", True)])
def test_different_lengths_share_passes_where_that_is_proven(model_type: str, bears: bool) -> None:
    model = model_of(model_type)
    assert ignores_gaps(model) == bears
    texts, gates = crossed(asked((1, 3, 2, 5)), soft_gates(model, 2))
    go_on(model, texts, gates)  # what is proven when first needed is not seen below
    with passes(model) as shapes:
        together = ids_of(go_on(model, texts, gates))
    assert next(rows for rows, tokens in shapes if tokens == 1) == len(texts)
    assert together == [by_whole_passes(model, *both) for both in zip(texts, gates, strict=True)]


def test_where_it_is_not_proven_lengths_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    texts, gates = crossed(asked((1, 3, 3, 1)), soft_gates(model, 2))
    expected = go_on(model, texts, gates)
    monkeypatch.setattr(decode, "ignores_gaps", lambda _: False)
    with passes(model) as shapes:
        assert go_on(model, texts, gates) == expected
    assert max(rows for rows, tokens in shapes if tokens == 1) == len(texts) // 2
