"""Linear layers that read the same input run as one product, with the same outputs."""

from __future__ import annotations

import pytest
import torch
from fast_paths_of_model import left_behind
from tiny import tiny_model
from torch import nn

from headcount.models.merged import merge_products
from headcount.models.sites import probe_prompt, run

# How many products, and how many gated MLPs, a tiny model of two layers has.
EXPECTED = {"llama": (4, 2), "qwen2": (4, 2), "olmo": (4, 2), "phi": (2, 0), "gemma": (4, 0)}


@pytest.mark.parametrize("model_type", EXPECTED)
def test_logits_are_the_same(model_type: str) -> None:
    module = tiny_model(model_type)
    ids = probe_prompt(module, 2)
    expected = run(module, ids)
    merged = merge_products(module, torch.inf)
    assert merged is not None
    assert (len(merged.products), len(merged.mlps)) == EXPECTED[model_type]
    with merged.in_use():
        got = run(module, ids)
    torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
    assert left_behind(module) == []


def test_gpt2_has_nothing_to_merge() -> None:
    """Its queries, keys and values are one product already."""
    assert merge_products(tiny_model("gpt2"), torch.inf) is None


def test_no_copies_without_room() -> None:
    module = tiny_model("llama")
    merged = merge_products(module, torch.inf)
    assert merged is not None
    assert merge_products(module, merged.nbytes - 1) is None


def test_changed_weights_are_copied_again() -> None:
    module = tiny_model("llama")
    merged = merge_products(module, torch.inf)
    assert merged is not None
    with torch.no_grad():
        module.model.layers[1].mlp.up_proj.weight.data.mul_(3.0)
    ids = probe_prompt(module, 1)
    with merged.in_use():
        stale = run(module, ids)
    merged.refresh()
    with merged.in_use():
        fresh = run(module, ids)
    expected = run(module, ids)
    torch.testing.assert_close(fresh, expected, atol=1e-5, rtol=1e-5)
    assert (stale - expected).abs().max() > 1e-3


def test_layers_of_another_kind_are_left_alone() -> None:
    """A subclass of Linear may compute something else, as one with an adapter does."""

    class Louder(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * super().forward(x)

    module = tiny_model("llama")
    for layer in module.model.layers:
        layer.mlp.up_proj.__class__ = Louder
        layer.self_attn.k_proj.__class__ = Louder
    merged = merge_products(module, torch.inf)
    assert merged is not None
    assert [len(product.layers) for product in merged.products] == [2, 2]  # queries and values
    assert not merged.mlps
    ids = probe_prompt(module, 2)
    with merged.in_use():
        got = run(module, ids)
    torch.testing.assert_close(got, run(module, ids), atol=1e-5, rtol=1e-5)


def test_a_layer_that_was_replaced_since_is_not_merged() -> None:
    """Which layers are merged is remembered, and an adapter may have come into the model since."""

    class Adapted(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + x.mean(-1, keepdim=True)

    module = tiny_model("llama")
    assert merge_products(module, torch.inf) is not None
    for layer in module.model.layers:
        layer.self_attn.q_proj.__class__ = Adapted
    merged = merge_products(module, torch.inf)
    assert merged is not None
    ids = probe_prompt(module, 2)
    with merged.in_use():
        got = run(module, ids)
    torch.testing.assert_close(got, run(module, ids), atol=1e-5, rtol=1e-5)
