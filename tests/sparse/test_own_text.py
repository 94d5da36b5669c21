"""A model's own text: likely tokens only, from any first one, the same twice, kept for later."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from corpus import tiny, write_text
from test_sparsify import SMALL

from headcount import HeadcountError, load_model
from headcount.models.model import Model
from headcount.sparse import text as own_text
from headcount.sparse.settings import Settings
from headcount.sparse.sparsify import sparsify
from headcount.sparse.text import LEAST, Blocks, load_text, training_batches, write_own_text


def written(model: Model, blocks: int, tokens: int, **options: Any) -> Blocks:
    text = write_own_text(model, blocks, tokens, progress=False, **options)
    assert text is not None
    return text


@pytest.mark.parametrize(
    "name", ["llama", "gpt2", "qwen3", "olmo2", "mistral", "gemma3_text", "phi3", "opt", "mixtral"]
)
def test_every_token_is_a_likely_one_after_those_before_it(name: str) -> None:
    model = tiny(name)
    blocks = written(model, 12, 10)
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
    model = replace(model, tokenizer=deepcopy(model.tokenizer))  # other tests share the tokenizer
    model.tokenizer.add_special_tokens({"additional_special_tokens": ["dog"]})
    special = {*model.tokenizer.all_special_ids, model.tokenizer.convert_tokens_to_ids("dog")}
    first = written(model, 400, 2)[:, 0]
    assert not set(first.tolist()) & special
    assert len(set(first.tolist())) > 0.5 * (len(model.tokenizer) - 5)


class Beginning:
    """A tokenizer that puts a token in front of every text."""

    bos_token_id = 3
    all_special_ids = (3, 4)

    def __len__(self) -> int:
        return 30

    def __call__(self, _: str) -> dict[str, list[int]]:
        return {"input_ids": [3, 9]}


@pytest.mark.parametrize("tokens", [2, 5])
def test_where_texts_begin_with_a_token_of_their_own_so_do_blocks(tokens: int) -> None:
    model = replace(tiny(), tokenizer=Beginning())
    starts = own_text._starts(model, 6, seed=0)
    blocks = own_text._write(model, starts, tokens, [0])
    assert blocks.shape == (6, tokens)
    assert blocks.dtype == np.int64
    assert (blocks[:, 0] == 3).all()
    assert len(set(blocks[:, 1].tolist())) > 1


def test_the_same_text_twice_and_another_with_another_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny()
    one = written(model, 6, 8, keep=tmp_path)
    assert np.array_equal(one, written(model, 6, 8))
    assert not np.array_equal(one, written(model, 6, 8, seed=1))
    monkeypatch.setattr(own_text, "_write", None)  # what was kept is not written again
    assert np.array_equal(one, written(model, 6, 8, keep=tmp_path))


def test_writing_that_was_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    monkeypatch.setitem(own_text.ROWS, "cpu", 2)
    whole = written(model, 6, 8)
    for call in range(3):  # time is always up, and yet each call writes two blocks
        found = write_own_text(model, 6, 8, keep=tmp_path, deadline=0.0, progress=False)
        assert len(list(tmp_path.glob("own-*.npy"))) == call + 1
        assert (found is None) == (call < 2)
    assert found is not None
    assert np.array_equal(found, whole)


def test_sparsify_stops_while_the_model_writes_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write_text(tmp_path / "text.txt")
    monkeypatch.setitem(own_text.ROWS, "cpu", 4)
    settings = replace(SMALL, own=0.5)
    said: list[str] = []
    out = tmp_path / "out"
    stopped = sparsify(tiny(), text, out, settings, minutes=0, progress=False, say=said.append)
    assert stopped is None
    assert "Time is up while the model writes its own text" in said[-1]
    assert sparsify(tiny(), text, out, settings, progress=False, say=said.append)


def test_a_step_without_room_for_own_text_says_so(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    said: list[str] = []
    settings = replace(SMALL, batch=1, own=0.3)
    assert sparsify(tiny(), text, tmp_path / "out", settings, progress=False, say=said.append)
    assert any("too few to include text of the model" in line for line in said)


def test_a_model_that_keeps_no_keys_and_values_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_text, "accepted", lambda *_, **__: {"use_cache": False})
    with pytest.raises(HeadcountError, match=r"tiny-llama keeps no keys and values .* --own 0"):
        written(tiny(), 2, 4)


def test_a_run_on_other_own_text_is_refused(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt")
    settings = replace(SMALL, own=0.5)
    out = tmp_path / "out"
    quiet: dict[str, Any] = {"progress": False, "say": lambda _: None}
    assert sparsify(tiny(), text, out, settings, **quiet)
    assert "own_sha256" in (out / "sparse.json").read_text()
    (kept,) = (out / "control").glob("own-*.npy")
    np.save(kept, np.load(kept)[::-1])
    with pytest.raises(HeadcountError, match="own_text"):
        sparsify(tiny(), text, out, settings, **quiet)


def test_where_memory_is_short_fewer_blocks_are_written_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write, sizes = own_text._write, []

    def short(model: Any, starts: Any, *rest: Any) -> Any:
        if len(starts) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        sizes.append(len(starts))
        return write(model, starts, *rest)

    monkeypatch.setattr(own_text, "_write", short)
    assert written(tiny(), 8, 4).shape == (8, 4)
    assert sizes == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), "not enough memory to run tiny-llama"),
        (RuntimeError("something else"), "something else"),
    ],
)
def test_other_errors_are_not_hidden(
    error: Exception, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(own_text, "_write", fail)
    with pytest.raises((HeadcountError, RuntimeError), match=says):
        written(tiny(), 8, 4)


def test_a_few_steps_have_whole_batches() -> None:
    assert Settings(steps=1, batch=6, own=0.5, dense_share=0, anneal=0).own_blocks == 3


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
    fresh = written(model, 64, 16, seed=9)  # not trained on
    for own in (0.0, 0.5):
        settings = replace(SMALL, own=own, lr=1e-2, steps=60, rank=0, batch=8 if own else 4)
        out = tmp_path / str(own)
        assert sparsify(model, text, out, settings, progress=False, say=lambda _: None)
        tuned = load_model(out)
        ids = torch.from_numpy(fresh)
        with torch.no_grad():
            logits = tuned.module(ids).logits[:, :-1]
        losses.append(torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()))
    assert losses[1] < losses[0] - 0.05
