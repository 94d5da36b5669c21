"""`gated` with ablations and biases: the one formula, z' = g·z + b, as a user gives it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import Head, collect, gated, wrap
from headcount.errors import HeadcountError
from headcount.models.model import Model

IDS = torch.tensor([[1, 2, 3, 4, 5], [5, 4, 3, 2, 1]])


@pytest.fixture(scope="module", params=["llama", "gpt2", "falcon"])
def model(request: pytest.FixtureRequest) -> Model:
    return wrap(tiny_model(request.param), toy_tokenizer(), name=request.param)


@torch.no_grad()
def logits(model: Model, heads: Any = (), **how: Any) -> torch.Tensor:
    with gated(model, heads, **how):
        found: torch.Tensor = model.module(IDS).logits
    return found


def outputs(model: Model, **how: Any) -> list[np.ndarray]:
    positions = [range(IDS.shape[1])] * len(IDS)
    return collect(model, IDS.tolist(), positions, progress=False, **how)


def test_a_head_that_is_replaced_by_what_it_says_changes_nothing(model: Model) -> None:
    """As one array per layer, (rows, tokens, heads, size): the shape that `collect` returns."""
    own = outputs(model)
    plain = logits(model)
    torch.testing.assert_close(logits(model, ["0.1"], ablations=own), plain, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(logits(model, ["0.1"]), plain, atol=1e-4)


def test_vectors_by_head_are_arrays_by_layer(model: Model) -> None:
    size = model.sites[0].size
    vectors = {"0.1": torch.randn(size), Head(1, 0): np.random.default_rng(0).normal(size=size)}
    layers = [np.zeros((site.heads, site.size)) for site in model.sites]
    layers[0][1], layers[1][0] = vectors["0.1"].numpy(), vectors[Head(1, 0)]
    for how in ("ablations", "biases"):
        by_head = logits(model, ["0.1", "1.0"], **{how: vectors})
        by_layer = logits(model, ["0.1", "1.0"], **{how: layers})
        torch.testing.assert_close(by_head, by_layer)
    # With the heads off, b is the ablation itself.
    both = [logits(model, ["0.1", "1.0"], **{how: vectors}) for how in ("ablations", "biases")]
    torch.testing.assert_close(*both)


def test_a_bias_is_added_to_what_a_head_says(model: Model) -> None:
    """Steering: no head is off, and each token has its own vector."""
    vector = torch.randn(1, IDS.shape[1], model.sites[0].size)
    own = outputs(model)
    steered = [z.copy() for z in own]
    steered[0][:, :, 1] += vector.numpy()
    replaced = logits(model, ["0.1"], ablations=steered)
    added = logits(model, biases={"0.1": vector})
    torch.testing.assert_close(added, replaced, atol=1e-5, rtol=1e-4)
    assert not torch.allclose(added, logits(model), atol=1e-3)
    none = logits(model, biases={"0.1": torch.zeros(model.sites[0].size)})
    torch.testing.assert_close(none, logits(model))


def test_what_is_collected_under_a_head_set(model: Model) -> None:
    whole, masked = outputs(model), outputs(model, heads=["0.1"])
    np.testing.assert_allclose(whole[0], masked[0], atol=1e-6)  # read before its own gate
    assert not np.allclose(whole[1], masked[1], atol=1e-6)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ({"ablations": {"0.1": [0.0]}}, "ablations of head 0.1 need"),
        ({"biases": {"9.9": [0.0]}}, "no head 9.9"),
        ({"biases": {"here": [0.0]}}, '"here" is not a head'),
        ({"biases": [None]}, "one array for each of the 2"),
        ({"biases": [np.zeros(3), None]}, "biases of layer 0 need a shape that ends in"),
        ({"biases": 3.0}, "a dict by head, or as a list"),
        ({"biases": {"0.1": [float("nan")] * 16}}, "biases of layer 0 are not all finite"),
        ({"biases": {}, "ablations": {}}, "ablations or biases, not both"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_a_sentence(how: dict[str, Any], words: str) -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    with pytest.raises(HeadcountError, match=words):
        logits(model, ["0.1"], **how)
