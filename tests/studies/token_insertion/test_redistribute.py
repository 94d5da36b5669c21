"""Activation redistribution against the formula by hand, and activations of the first MLP."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fast_paths_of_model import left_behind
from tiny import tiny_model
from torch import Tensor
from toy import toy_tokenizer

from headcount import HeadcountError, generate, wrap
from headcount.models.model import Model
from headcount.studies.token_insertion.activations import (
    ActivationRedistribution,
    _seed,
    activation_statistics,
    on_activations,
)

IDS = torch.tensor([[5, 6, 7, 8, 9, 5, 6, 12], [9, 8, 7, 20, 3, 4, 4, 4]])


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer())


def by_hand(a: np.ndarray, uniform: np.ndarray, arm: ActivationRedistribution) -> np.ndarray:
    """One row, entry by entry."""
    flat = a.ravel().astype(np.float64)
    sizes = np.abs(flat)
    order = np.sort(sizes)
    middle = order[(len(order) - 1) // 2]  # the lower median, as torch has it
    off = np.sort(np.abs(sizes - middle))
    epsilon = 1.4826 * arm.c * off[(len(off) - 1) // 2]
    share = min(max((sizes < epsilon).mean(), 0.02), 0.25)
    small = np.argsort(sizes, kind="stable")[: int(np.float32(share) * np.float32(len(flat)))]
    top, bottom = np.percentile(flat, arm.p1), abs(flat.min())
    found = flat.copy()
    for place in small:
        value = uniform[place] * top if flat[place] >= 0 else -uniform[place] * bottom
        found[place] = value + flat[place] if arm.variant == "add" else value
    return found.reshape(a.shape)


@pytest.mark.parametrize("variant", ["replace", "add"])
@pytest.mark.parametrize(("c", "p1"), [(0.13, 99.5), (2.0, 90.0), (0.001, 95.0)])
def test_the_formula(variant: Any, c: float, p1: float) -> None:
    arm = ActivationRedistribution(variant, c, p1, seed=3)
    a = torch.randn(2, 5, 40, generator=torch.Generator().manual_seed(1))
    changed = arm.change(a, 7)
    ones = ActivationRedistribution("replace", c, p1, seed=3)
    # What the same numbers draw is read off a tensor whose top is 1.
    flat = torch.linspace(0.0, 1.0, 200).view(1, 5, 40)
    assert ones.change(flat, 7).shape == flat.shape
    uniform = torch.rand(200, generator=torch.Generator().manual_seed(_seed(3, 7, 5))).numpy()
    for row in range(2):
        expected = by_hand(a[row].numpy(), uniform, arm)
        np.testing.assert_allclose(changed[row].numpy(), expected, atol=1e-5)


def test_rows_do_not_depend_on_each_other() -> None:
    arm = ActivationRedistribution()
    a = torch.randn(3, 4, 30, generator=torch.Generator().manual_seed(0))
    together = arm.change(a, 0)
    alone = torch.cat([arm.change(row[None], 0) for row in a])
    torch.testing.assert_close(together, alone)
    assert not torch.equal(arm.change(a, 0), arm.change(a, 1))  # another place, other numbers
    assert not torch.equal(arm.change(a, 0), ActivationRedistribution(seed=1).change(a, 0))
    half = arm.change(a.bfloat16(), 0)
    assert half.dtype == torch.bfloat16


def logits(model: Model) -> Tensor:
    with torch.no_grad():
        return model.module(input_ids=IDS).logits


def test_it_acts_and_leaves_nothing_behind(model: Model) -> None:
    before = logits(model)
    with ActivationRedistribution(c=3.0).acting(model):
        inside = logits(model)
        assert torch.equal(inside, logits(model))  # seeded: the same again
    assert (inside - before).abs().max() > 1e-4
    assert torch.equal(before, logits(model))
    with pytest.raises(KeyboardInterrupt), ActivationRedistribution().acting(model):
        raise KeyboardInterrupt
    assert left_behind(model.module) == []
    assert torch.equal(before, logits(model))


def test_decoding_alone_and_in_a_batch(model: Model) -> None:
    start = list(range(5, 15))  # which would run once for all, and be redistributed by itself
    prompts = [[*start, *end] for end in ([20, 21], [30, 31], [22, 40])]
    options: dict[str, Any] = {"max_new_tokens": 6, "share": False, "progress": False}
    with ActivationRedistribution(c=3.0).acting(model):
        together = generate(model, prompts, **options)
        alone = [generate(model, [prompt], **options)[0] for prompt in prompts]
    assert together == alone


def test_statistics_of_activations(model: Model) -> None:
    kept: list[Tensor] = []
    with on_activations(model, lambda a, _: kept.append(a)):
        logits(model)
    (a,) = kept
    sequences = IDS.tolist()
    found, limits = activation_statistics(model, sequences, [[0, 3], [7]], progress=False)
    assert [one.shape for one in found] == [(2, 4), (1, 4)]
    for row, place, one in ((0, 3, found[0][1]), (1, 7, found[1][0])):
        sizes = a[row, place].abs().double().numpy()
        ranked = np.sort(sizes)
        pairs = np.abs(sizes[:, None] - sizes[None]).sum()
        gini = pairs / (2 * len(sizes) * sizes.sum())
        expected = [(ranked < limits[row]).mean(), sizes.sum(), np.linalg.norm(sizes), gini]
        np.testing.assert_allclose(one, expected, rtol=1e-4)
    wide, same = activation_statistics(
        model, sequences, [[0], [0]], limits=np.full(2, 1e9), progress=False
    )
    assert [one[0, 0] for one in wide] == [1, 1]
    assert same.tolist() == [1e9, 1e9]


def test_bad_input_is_a_sentence(model: Model) -> None:
    with pytest.raises(HeadcountError, match=r'no redistribution "replase".*Did you mean'):
        ActivationRedistribution("replase")  # type: ignore[arg-type]
    with pytest.raises(HeadcountError, match="c above 0"):
        ActivationRedistribution(c=0)
    with (
        pytest.raises(HeadcountError, match="There is no layer 9"),
        ActivationRedistribution(layer=9).acting(model),
    ):
        pass


@pytest.mark.parametrize("model_type", ["gpt2", "qwen3", "phi3", "gemma2"])
def test_other_architectures_have_their_activations(model_type: str) -> None:
    other = wrap(tiny_model(model_type), toy_tokenizer())
    found, _ = activation_statistics(other, IDS.tolist(), [[1], [1]], progress=False)
    assert np.isfinite(found).all()
