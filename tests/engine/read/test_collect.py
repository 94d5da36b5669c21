"""Collecting heads' outputs: what a hook by hand reads, at the positions asked for, and no more."""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from fast_paths_of_model import left_behind, random_gates
from tiny import VOCAB, tiny_model
from torch import Tensor
from torch._dynamo.testing import CompileCounter

from headcount import HeadcountError, collect, wrap
from headcount.engine.read.collect import reading
from headcount.models.gate import gating
from headcount.models.model import Model

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore")

# Where the output projections are, how many heads they take, and how large those are.
BY_HAND: dict[str, tuple[list[str], int, int]] = {
    "llama": ([f"model.layers.{i}.self_attn.o_proj" for i in range(2)], 4, 16),
    "gpt2": ([f"transformer.h.{i}.attn.c_proj" for i in range(2)], 4, 8),
    "deepseek_v3": ([f"model.layers.{i}.self_attn.o_proj" for i in range(2)], 4, 10),
    "bert": ([f"bert.encoder.layer.{i}.attention.output.dense" for i in range(2)], 4, 8),
    "longcat_flash": (
        [f"model.layers.{i}.self_attn.{j}.o_proj" for i in range(2) for j in range(2)],
        4,
        10,
    ),
    "qwen3_next": (["model.layers.1.self_attn.o_proj"], 4, 16),  # the other layer has no heads
}


@cache
def model_of(model_type: str) -> Model:
    return wrap(tiny_model(model_type), None)


def texts(lengths: tuple[int, ...] = (5, 9, 5, 7, 9, 9)) -> list[list[int]]:
    rng = random.Random(0)
    return [[rng.randrange(3, VOCAB) for _ in range(length)] for length in lengths]


@torch.no_grad()
def by_hand(model_type: str, ids: list[int]) -> list[np.ndarray]:
    """z at every projection, (tokens, heads, size), of one text alone."""
    module = model_of(model_type).module
    names, heads, size = BY_HAND[model_type]
    seen: dict[str, Tensor] = {}
    handles = [
        module.get_submodule(name).register_forward_pre_hook(
            lambda _, args, name=name: seen.update({name: args[0].clone()})
        )
        for name in names
    ]
    module(input_ids=torch.tensor([ids]), use_cache=False)
    for handle in handles:
        handle.remove()
    return [seen[name].reshape(len(ids), heads, size).numpy() for name in names]


@pytest.mark.parametrize("model_type", BY_HAND)
def test_equals_hooks_by_hand(model_type: str) -> None:
    """Texts of several lengths, in their order; positions from the start and from the end."""
    positions = [[0, 2, -1], [4, -9, 8], [1, 1, 0], [-1, -2, 6], [3, 0, -4], [8, 7, 6]]
    found = collect(model_of(model_type), texts(), positions, progress=False)
    _, heads, size = BY_HAND[model_type]
    assert [z.shape for z in found] == [(6, 3, heads, size)] * len(BY_HAND[model_type][0])
    for place, (ids, chosen) in enumerate(zip(texts(), positions, strict=True)):
        for site, z in zip(found, by_hand(model_type, ids), strict=True):
            np.testing.assert_allclose(site[place], z[chosen], atol=1e-5)
    assert left_behind(model_of(model_type).module) == []


@pytest.mark.parametrize("model_type", BY_HAND)
def test_means_over_positions(model_type: str) -> None:
    positions = [[0], [4, -9, 8, 8], [1, 0], range(7), [3], [-1, -2]]
    found = collect(model_of(model_type), texts(), positions, mean=True, progress=False)
    for place, (ids, chosen) in enumerate(zip(texts(), positions, strict=True)):
        for site, z in zip(found, by_hand(model_type, ids), strict=True):
            np.testing.assert_allclose(site[place], z[list(chosen)].mean(0), atol=1e-5)


def test_nothing_but_what_was_asked_for_is_kept() -> None:
    """The arrays hold no memory but their own, whatever they were cut from."""
    model = model_of("llama")
    for z in collect(model, texts((9,) * 40), [[-1]] * 40, progress=False):
        assert z.dtype == np.float32
        assert z.nbytes == 40 * 1 * 4 * 16 * 4
        base: Any = z
        while isinstance(base, np.ndarray) and base.base is not None:
            base = base.base
        held = base.untyped_storage().nbytes() if isinstance(base, Tensor) else base.nbytes
        assert held == z.nbytes


def test_while_a_batch_runs_only_positions_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of the batches before, when the next one starts."""
    model = model_of("llama")
    model.fast_paths
    monkeypatch.setattr("headcount.engine.read.collect.default_tokens", lambda _: 18)
    storages: list[int] = []
    stack = torch.stack

    def watched(tensors: list[Tensor], *args: Any) -> Tensor:
        storages.extend(one.untyped_storage().nbytes() for one in tensors)
        return stack(tensors, *args)

    monkeypatch.setattr(torch, "stack", watched)
    collect(model, texts((9,) * 6), [[0, -1]] * 6, progress=False)
    two_rows_of_two_positions = 2 * 2 * 4 * 16 * 4
    assert max(storages) == two_rows_of_two_positions


def test_logits_are_computed_at_one_position_only() -> None:
    model = model_of("llama")
    model.fast_paths
    shapes: list[Any] = []
    handle = model.module.lm_head.register_forward_hook(
        lambda _, args, out: shapes.append(out.shape)
    )
    collect(model, texts((9, 9)), [[0], [1]], progress=False)
    handle.remove()
    assert shapes == [(2, 1, VOCAB)]


def test_half_precision_comes_back_as_float32() -> None:
    model = wrap(tiny_model("llama").bfloat16(), None)
    (z, _) = collect(model, texts((5,)), [[0]], progress=False)
    assert z.dtype == np.float32
    np.testing.assert_allclose(z[0], by_hand("llama", texts((5,))[0])[0][:1], atol=0.05)


def test_out_of_memory_halves_the_batch() -> None:
    module = tiny_model("llama")
    model = wrap(module, None)
    expected = collect(model, texts(), [[0]] * 6, progress=False)
    fits = [10]

    def allocate(_: Any, args: Any) -> None:
        if args[0].shape[0] * args[0].shape[1] > fits[0]:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    module.model.layers[1].input_layernorm.register_forward_pre_hook(allocate)
    for got, wanted in zip(
        collect(model, texts(), [[0]] * 6, progress=False), expected, strict=True
    ):
        np.testing.assert_allclose(got, wanted, atol=1e-5)
    fits[0] = 8
    with pytest.raises(HeadcountError, match="single example of 9 tokens"):
        collect(model, texts(), [[0]] * 6, progress=False)


def test_a_model_that_its_user_compiled() -> None:
    torch._dynamo.reset()
    module = tiny_model("llama")
    model = wrap(torch.compile(module, backend=CompileCounter()), None)
    with torch.no_grad():
        model.module(input_ids=torch.tensor(texts((5,))), use_cache=False)
    found = collect(model, texts((5,)), [[0, 1]], progress=False)
    np.testing.assert_allclose(found[1][0], by_hand("llama", texts((5,))[0])[1][:2], atol=1e-5)
    torch._dynamo.reset()


@torch.no_grad()
def test_z_is_read_before_the_gate() -> None:
    """As the attention left it, also inside a context that gates; later sites see the gate."""
    model = model_of("llama")
    ids = torch.tensor(texts((5,)))
    gates = random_gates(model.sites)
    outside, inside = [], []
    with reading(model, lambda site, z: outside.append(z.clone())):
        model.module(input_ids=ids)
    with (
        gating(model.module, model.sites, gates),
        reading(model, lambda site, z: inside.append(z.clone())),
    ):
        model.module(input_ids=ids)
    assert torch.equal(outside[0], inside[0])
    assert not torch.allclose(outside[1], inside[1], atol=1e-3)


@torch.no_grad()
def test_blocks_that_run_several_times_have_a_site_for_each() -> None:
    model = wrap(tiny_model("hrm_text"), None)
    order: list[int] = []
    with reading(model, lambda site, _: order.append(site.index)):
        for _ in range(2):
            model.module(input_ids=torch.tensor(texts((5,))), use_cache=False)
    assert order == [*range(16), *range(16)]


@pytest.mark.parametrize(
    ("positions", "mean", "sentence"),
    [
        ([[0]], False, "positions of each of the 2 sequences, not of 1"),
        ([[0], []], True, "Sequence 1 has 9 tokens: name at least one position"),
        ([[5], [0]], False, r"Sequence 0 has 5 tokens.*asked for: \[5\]"),
        ([[-6], [0]], False, r"Sequence 0 has 5 tokens.*asked for: \[-6\]"),
        ([[0], [0, 1]], False, "equally many positions"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(positions: Any, mean: bool, sentence: str) -> None:
    with pytest.raises(HeadcountError, match=sentence):
        collect(model_of("llama"), texts((5, 9)), positions, mean=mean, progress=False)
    with pytest.raises(HeadcountError, match="at least one sequence"):
        collect(model_of("llama"), [], [], mean=mean, progress=False)
