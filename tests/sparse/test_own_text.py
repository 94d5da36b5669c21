"""A model's own text: likely tokens only, from any first one, the same twice, kept for later."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from corpus import tiny, write_text
from test_sparsify import SMALL

from headcount.sparse import own_text
from headcount.sparse.own_text import LEAST, write_own_text
from headcount.sparse.sparsify import sparsify
from headcount.sparse.text import load_text, training_batches


def test_every_token_is_a_likely_one_after_those_before_it() -> None:
    model = tiny()
    blocks = write_own_text(model, 12, 10, progress=False)
    assert blocks.shape == (12, 10)
    with torch.no_grad():
        logits = model.module(torch.from_numpy(blocks)).logits
    p = logits.softmax(-1)
    best = p.amax(-1)[:, :-1]
    drawn = p[:, :-1].gather(-1, torch.from_numpy(blocks)[:, 1:, None]).squeeze(-1)
    assert bool((drawn >= 0.999 * LEAST * best).all())
    assert not bool((drawn == best).all())  # drawn, not the likeliest each time


def test_blocks_begin_anywhere_in_the_vocabulary_but_not_with_special_tokens() -> None:
    model = tiny()
    first = write_own_text(model, 200, 2, progress=False)[:, 0]
    assert not set(first.tolist()) & set(model.tokenizer.all_special_ids)
    assert len(set(first.tolist())) > 0.5 * (len(model.tokenizer) - 5)


def test_the_same_text_twice_and_another_with_another_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny()
    one = write_own_text(model, 6, 8, keep=tmp_path, progress=False)
    assert np.array_equal(one, write_own_text(model, 6, 8, progress=False))
    assert not np.array_equal(one, write_own_text(model, 6, 8, seed=1, progress=False))
    monkeypatch.setattr(own_text, "_write", None)  # what was kept is not written again
    assert np.array_equal(one, write_own_text(model, 6, 8, keep=tmp_path, progress=False))


def test_where_memory_is_short_fewer_blocks_are_written_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, sizes = own_text._write, []

    def short(model: object, starts: list[tuple[int, ...]], *rest: object) -> object:
        if len(starts) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(len(starts))
        return write(model, starts, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(own_text, "_write", short)
    assert write_own_text(tiny(), 8, 4, progress=False).shape == (8, 4)
    assert sizes == [2, 2, 2, 2]


def test_batches_hold_so_many_of_its_blocks(tmp_path: Path) -> None:
    model = tiny()
    text = write_text(tmp_path / "text.txt")
    data = load_text(text, model.tokenizer, 16, held_out=10, constraint=10, progress=False)
    own = np.full((5, 16), -1)
    mixed = list(islice(training_batches(replace(data, own=own), 8, 2, seed=0), 4))
    given = list(islice(training_batches(data, 6, 0, seed=0), 4))
    for both, text_alone in zip(mixed, given, strict=True):
        assert np.array_equal(both[:6], text_alone)
        assert (both[6:] == -1).all()


def test_training_on_it_keeps_the_model_nearer_to_what_it_wrote(tmp_path: Path) -> None:
    model = tiny()
    text = write_text(tmp_path / "text.txt")
    losses = []
    fresh = write_own_text(model, 64, 16, seed=9, progress=False)  # not trained on
    for own in (0.0, 0.5):
        settings = replace(SMALL, own=own, lr=1e-2, steps=60, rank=0, batch=8 if own else 4)
        out = tmp_path / str(own)
        assert sparsify(model, text, out, settings, progress=False, say=lambda _: None)
        from headcount import load_model

        tuned = load_model(out)
        ids = torch.from_numpy(fresh)
        with torch.no_grad():
            logits = tuned.module(ids).logits[:, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
    assert losses[1] < losses[0] - 0.05
