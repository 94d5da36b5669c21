"""Decoding in slots, as on a GPU but without captured graphs: texts equal those of whole passes."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from fast_paths_of_model import left_behind
from test_decode import by_whole_passes, go_on, ids_of, model_of, prompts, soft_gates
from test_steps import asked, crossed
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import HeadcountError, wrap
from headcount.engine.measure.forward import fits
from headcount.engine.write import continuous, decode
from headcount.engine.write.continuous import decodes_in_slots
from headcount.engine.write.slots import Slots, slots_for
from headcount.models import gpu_kernels
from headcount.models.memory import within_memory
from headcount.models.model import SLOTS, Model

MODELS = ("llama", "gpt2", "qwen2", "gpt_neox", "olmo", "phi")


@contextmanager
def passes(model: Model) -> Iterator[list[tuple[int, int]]]:
    """The (rows, tokens) of each pass, seen by a hook that only watches."""
    shapes: list[tuple[int, int]] = []

    def watch(_: Any, __: Any, kwargs: dict[str, Any]) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))

    with model.module.register_forward_pre_hook(watch, with_kwargs=True):
        yield shapes


@pytest.fixture(autouse=True)
def in_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "uses_slots", lambda model, gated: decodes_in_slots(model, gated))


@pytest.mark.parametrize("model_type", MODELS)
def test_texts_are_those_of_whole_passes(model_type: str) -> None:
    """Prompts of different lengths, in fewer slots than prompts, each under gates of its own."""
    model = model_of(model_type)
    assert decodes_in_slots(model, True)
    some = prompts((9, 4, 6, 1, 4, 12, 3))
    gates = soft_gates(model, len(some))
    expected = [by_whole_passes(model, *both) for both in zip(some, gates, strict=True)]
    for rows in (None, 3, 1):
        assert ids_of(go_on(model, some, gates, rows=rows)) == expected
    assert expected != ids_of(go_on(model, some))
    assert left_behind(model.module) == []


@pytest.mark.parametrize("model_type", ["bloom", "mistral", "qwen3_next", "bart"])
def test_other_models_are_not_decoded_in_slots(model_type: str) -> None:
    """They count positions by the mask, have a window, or keep no plain cache."""
    assert not decodes_in_slots(model_of(model_type), True)


def test_a_model_with_other_steps_fails_the_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the steps forgot the gates, or wrote to wrong positions, nobody would notice later."""
    model = wrap(tiny_model("llama"), toy_tokenizer())
    admit = Slots.admit

    def ungated(self: Slots, slots: Any, cache: Any, lengths: Any, tokens: Any, _: Any) -> None:
        admit(self, slots, cache, lengths, tokens, None)

    monkeypatch.setattr(Slots, "admit", ungated)
    assert not decodes_in_slots(model, True)
    assert decodes_in_slots(model, False)

    def late(self: Slots, slots: Any, cache: Any, lengths: Any, tokens: Any, gates: Any) -> None:
        admit(self, slots, cache, lengths, tokens, gates)
        self.positions += 1

    monkeypatch.setattr(Slots, "admit", late)
    assert not decodes_in_slots(wrap(tiny_model("llama"), toy_tokenizer()), False)


def test_a_finished_text_makes_room_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps never have more rows than slots, and their number is that of the work."""
    model = model_of("llama")
    monkeypatch.setattr(continuous, "CHECK", 2)
    some = prompts((3,) * 8)
    whole = go_on(model, some)
    end = whole[0].ids[1]
    monkeypatch.setattr(decode, "end_tokens", lambda _: {end})
    with passes(model) as shapes:
        texts = go_on(model, some, rows=2)
    for before, after in zip(whole, texts, strict=True):
        place = before.ids.index(end) if end in before.ids else None
        assert after.ids == before.ids[:place]
        assert after.finished == (place is not None)
    steps = [rows for rows, tokens in shapes[1:] if tokens == 1]  # the first shows the cache
    assert set(steps) == {2}
    assert len(steps) < 8 * 7 / 2


def test_the_shared_start_runs_once_for_each_head_set() -> None:
    model = model_of("llama")
    texts, gates = crossed(asked(), soft_gates(model, 3))
    expected = [by_whole_passes(model, *both) for both in zip(texts, gates, strict=True)]
    assert ids_of(go_on(model, texts, gates)) == expected
    with passes(model) as shapes:
        go_on(model, texts, gates, max_new_tokens=1)
    assert shapes == [(1, 1), (3, 12), (12, 3)]  # the first shows the shapes of the cache


def test_scope_decode_leaves_the_prompt_alone() -> None:
    model = model_of("llama")
    some, gates = prompts(), soft_gates(model, 5)
    expected = [
        by_whole_passes(model, prompt, row, spared=len(prompt.split()))
        for prompt, row in zip(some, gates, strict=True)
    ]
    assert ids_of(go_on(model, some, gates, scope="decode")) == expected


@pytest.mark.parametrize("options", [{}, {"top_p": 0.9}])
def test_draws_are_the_same_in_any_way(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    model = model_of("llama")
    gates = soft_gates(model, 5)
    options = {**options, "temperature": 1.5, "seed": 3}
    texts = go_on(model, prompts(), gates, rows=2, **options)
    monkeypatch.setattr(decode, "uses_slots", lambda *_, **__: False)
    assert go_on(model, prompts(), gates, **options) == texts


def test_stop_strings_and_ends_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    long = go_on(model, prompts())
    words = long[0].text.split()
    stop = f"{words[1]} {words[2]}"
    for check in (1, 3, 16):
        monkeypatch.setattr(continuous, "CHECK", check)
        texts = go_on(model, prompts(), stop=stop)
        monkeypatch.setattr(decode, "uses_slots", lambda *_, **__: False)
        assert go_on(model, prompts(), stop=stop) == texts
        monkeypatch.setattr(decode, "uses_slots", lambda model, gated: True)


def test_the_whole_context_can_be_used() -> None:
    """Also where learned positions end: steps past the end of a text must not read beyond them."""
    for name in ("gpt2", "llama"):
        model = model_of(name)
        limit = model.context_limit
        assert limit is not None
        text, other = go_on(model, prompts((limit - 4, 3)), max_new_tokens=5)
        assert text.finished or len(text.ids) == 5
        assert other.finished or len(other.ids) == 5


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.parametrize("seed", [0, 2, 3, 4, 5])
def test_a_text_that_fills_the_context_keeps_its_last_token(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has ended while the other slots go on: steps past its end must not overwrite it."""
    model, new, rng = model_of(name), 20, np.random.default_rng(seed)
    lengths = (model.context_limit - new + 1, 30, 20, 10, 8)
    some = [tuple(map(int, rng.integers(3, 75, n))) for n in lengths]
    monkeypatch.setattr(decode, "end_tokens", lambda _: set())
    long, early, *_ = ids_of(go_on(model, some, max_new_tokens=new))
    end = next((token for token in early[:8] if token not in long), None)
    assert end is not None
    monkeypatch.setattr(decode, "end_tokens", lambda _: {end})  # the second slot is filled again
    texts = go_on(model, some, rows=2, max_new_tokens=new)
    monkeypatch.setattr(decode, "uses_slots", lambda *_, **__: False)
    assert go_on(model, some, max_new_tokens=new) == texts


def test_slots_are_freed_with_the_model() -> None:
    gc.collect()
    gc.disable()
    try:
        model = wrap(tiny_model("llama"), toy_tokenizer())
        slots = slots_for(model, 2, 128)
        gone = ref(slots), ref(model)
        del slots, model
        assert [one() for one in gone] == [None, None]
    finally:
        gc.enable()


def test_short_memory_means_fewer_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of("llama")
    some, gates = prompts(), soft_gates(model, 5)
    expected = go_on(model, some, gates)
    run, counts = Slots.run, []

    def short(self: Slots, *args: Any) -> Any:
        counts.append(self.count)
        if self.count > 2:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return run(self, *args)

    monkeypatch.setattr(Slots, "run", short)
    assert go_on(model, some, gates) == expected
    assert max(counts) > 2

    def none(self: Slots, *_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(Slots, "run", none)
    with pytest.raises(HeadcountError, match="not enough memory"):
        go_on(model, some, gates)


def test_short_memory_frees_the_slots_of_the_last_decoding() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    for work in (lambda run: fits(model, run), lambda run: within_memory(model, run, 9, 9)):
        vars(model)[SLOTS] = "slots"
        tries: list[bool] = []

        def run(*_: Any, tries: list[bool] = tries) -> None:
            tries.append(SLOTS in vars(model))
            if tries[-1]:
                raise torch.OutOfMemoryError("CUDA out of memory.")

        work(run)
        assert tries == [True, False]


@pytest.mark.parametrize("fault", ["raises", "differs"])
def test_kernels_that_do_not_work_are_set_aside(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where Triton finds no compiler, for one, torch's kernels do the work, and this is said."""
    model, agrees = wrap(tiny_model("llama"), toy_tokenizer()), continuous._agrees
    monkeypatch.setattr(gpu_kernels, "_aside", False)
    monkeypatch.setattr(continuous, "kernels_run", lambda _: not gpu_kernels._aside)

    def faulty(model: Model, gated: bool) -> bool:
        if gpu_kernels._aside:
            return agrees(model, gated)
        if fault == "raises":
            raise ValueError("no compiler")
        return False

    monkeypatch.setattr(continuous, "_agrees", faulty)
    with pytest.warns(UserWarning, match="no compiler|other numbers"):
        assert decodes_in_slots(model, True)
    assert gpu_kernels._aside
    gpu_kernels._aside = False
    monkeypatch.setattr(continuous, "_agrees", lambda *_: False)  # the kernels are not at fault
    assert not decodes_in_slots(model, False)
    assert not gpu_kernels._aside


def test_logits_that_are_not_numbers_are_refused() -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer(), name="broken")
    assert decodes_in_slots(model, False)
    with torch.no_grad():
        module.lm_head.weight[5] = torch.nan
    for options in ({}, {"temperature": 1.0}):
        with pytest.raises(HeadcountError, match="broken gave logits that are not finite"):
            go_on(model, prompts(), **options)


def test_a_hooked_model_is_left_to_the_plain_loop() -> None:
    """A captured step would not call the hook again."""
    model = wrap(tiny_model("llama"), toy_tokenizer())
    assert decodes_in_slots(model, False)
    handle = model.module.model.norm.register_forward_hook(lambda *_: None)
    assert not decodes_in_slots(model, False)
    handle.remove()
    assert decodes_in_slots(model, False)


def test_no_prompt_and_one_token() -> None:
    model = model_of("llama")
    assert go_on(model, []) == []
    assert ids_of(go_on(model, prompts(), max_new_tokens=1)) == [
        ids[:1] for ids in ids_of(go_on(model, prompts()))
    ]
    np.testing.assert_equal(len(go_on(model, prompts(), ["0.1"])), 5)
