"""Reconstruction: heads whose writes others can replace leave first, and factors are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, collect, rank, wrap
from headcount.engine.read.activity import writes_together
from headcount.models.gate import gating
from headcount.models.groups import geometry_of
from headcount.models.model import Model
from headcount.models.sites import probe_prompt
from headcount.rankings.reconstruction import least_squares

IDS = [[5, 9, 30, 7], [6, 8, 40, 41], [11, 4, 17]]


def written(model: Model, layer: int) -> torch.Tensor:
    """What each head of a layer writes at every token, read head by head: (tokens, heads, out)."""
    z = [collect(model, [ids], [range(len(ids))], progress=False)[layer][0] for ids in IDS]
    heads = torch.from_numpy(np.concatenate(z))  # (tokens, heads, size)
    weight: Any = model.module.get_submodule(model.sites[layer].module).weight
    columns = weight.detach().T if type(model.module).__name__ != "GPT2LMHeadModel" else weight
    by_head = columns.detach().unflatten(0, (heads.shape[1], heads.shape[2]))
    return torch.einsum("ths,hso->tho", heads, by_head)


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "qwen2"])
def test_what_heads_write_together(name: str) -> None:
    """With a bias, or with a transposed projection, it is the same as head by head."""
    model = wrap(tiny_model(name), toy_tokenizer())
    found = writes_together(model, IDS, progress=False)
    for layer, table in enumerate(found):
        by_head = written(model, layer).double()
        expected = torch.einsum("tho,tgo->hg", by_head, by_head)
        np.testing.assert_allclose(table, expected.numpy(), rtol=1e-4, atol=1e-4)


def test_the_factors_are_those_of_a_regression() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    whole, kept = geometry_of(model), np.array([1, 1, 0, 0, 0, 1, 1, 1], dtype=bool)
    tables = writes_together(model, IDS, progress=False)
    gates = least_squares(tables, kept, whole).reshape(2, 4)
    for layer, here in enumerate(kept.reshape(2, 4)):
        by_head = written(model, layer)
        matrix = by_head[:, here].transpose(1, 2).reshape(-1, int(here.sum())).double()
        target = by_head.sum(1).reshape(-1).double()
        expected = torch.linalg.lstsq(matrix, target[:, None]).solution[:, 0]
        np.testing.assert_allclose(gates[layer][here], expected.numpy(), rtol=1e-3, atol=1e-4)
        assert not gates[layer][~here].any()


@torch.no_grad()
def twins() -> Model:
    """Of every group, head 1 writes twice what head 0 does; group 1 writes as group 0."""
    module = tiny_model("llama")
    for block in module.model.layers:
        attention: Any = block.self_attn
        query, output = attention.q_proj.weight.view(4, 16, -1), attention.o_proj.weight
        query[:] = query[0].clone()
        for name in ("k_proj", "v_proj"):
            weight = getattr(attention, name).weight.view(2, 16, -1)
            weight[1] = weight[0].clone()
        columns = output.view(-1, 4, 16)
        for head, factor in enumerate((1.0, 2.0, 1.0, 2.0)):
            columns[:, head] = columns[:, 0].clone() * factor
    return wrap(module, toy_tokenizer())


@torch.no_grad()
def test_rescaling_rebuilds_what_the_others_wrote() -> None:
    model = twins()
    tables = writes_together(model, IDS, progress=False)
    kept = np.array([0, 1, 0, 0] * 2, dtype=bool)
    gates = least_squares(tables, kept, geometry_of(model))
    np.testing.assert_allclose(gates[kept], 3.0, rtol=1e-4)  # 1 + 2 + 1 + 2 of 2
    ids = probe_prompt(model.module, 1)
    whole = model.module(input_ids=ids).logits
    with gating(model.module, model.sites, torch.from_numpy(gates)[None]):
        torch.testing.assert_close(model.module(input_ids=ids).logits, whole, atol=1e-3, rtol=1e-3)


@torch.no_grad()
def test_heads_that_say_nothing_leave_first() -> None:
    module = tiny_model("llama")
    for layer, silent in enumerate((1, 0)):  # one group of each layer
        weight: Any = module.model.layers[layer].self_attn.v_proj.weight
        weight.view(2, 16, -1)[silent] = 0
    model, lab = wrap(module, toy_tokenizer()), Lab(store=None, progress=False)
    scores = rank(model, toy_task(), "reconstruction", lab=lab)
    expected = [1, 1, 0, 0, 0, 0, 1, 1]
    np.testing.assert_allclose(scores.values, expected, atol=1e-9)
    for layer in (0, 1):  # of the group that speaks, one head of two
        weight = module.model.layers[layer].self_attn.o_proj.weight
        weight.view(-1, 4, 16)[:, 2 * layer] = 0
    model = wrap(module, toy_tokenizer())
    scores = rank(model, toy_task(), "reconstruction", unit="heads", lab=lab)
    # Each group loses one head after the other: the last ones are those that speak.
    assert scores.values[[1, 7]] == pytest.approx(1)
    assert scores.values[[0, 6]] == pytest.approx(0)
    assert scores.goal == "keep"


def test_scores_are_shares_and_an_unknown_unit_is_refused() -> None:
    model, lab = wrap(tiny_model("qwen2"), toy_tokenizer()), Lab(store=None, progress=False)
    scores = rank(model, toy_task(), "reconstruction", unit="heads", lab=lab)
    assert (scores.values > 0).all()
    assert (scores.values <= 1 + 1e-9).all()
    assert (scores.values.reshape(2, 4).max(1) > 0.999).all()
    with pytest.raises(HeadcountError, match=r'no unit "layers" \(known: groups, heads\)'):
        rank(model, toy_task(), "reconstruction", unit="layers", lab=lab)
