"""Attention profiles against maps of eager attention, and what inserts do to them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from fast_paths_of_model import left_behind
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import HeadcountError, wrap
from headcount.models.model import Model
from headcount.studies.token_insertion.attention import (
    EFFECTS,
    affine_fit,
    head_outputs,
    profile_effects,
    profiles,
    uniform_profile,
)

SEQUENCES = [[5, 6, 7, 8, 9, 5, 6, 12, 13], [9, 8, 7, 20, 3], [4, 4, 5, 6, 9, 10, 11, 12, 60]]


@pytest.fixture(scope="module", params=["llama", "gpt2", "gemma3_text"])
def model(request: pytest.FixtureRequest) -> Model:
    return wrap(tiny_model(request.param), toy_tokenizer())


def maps(model: Model, ids: list[int]) -> np.ndarray:
    """All attention maps of one sequence by transformers itself: (heads, queries, keys)."""
    before = model.module.config._attn_implementation  # type: ignore[union-attr]
    model.module.set_attn_implementation("eager")  # type: ignore[operator]
    with torch.no_grad():
        out = model.module(input_ids=torch.tensor([ids]), output_attentions=True)
    model.module.set_attn_implementation(before)  # type: ignore[operator]
    return torch.cat([layer[0] for layer in out.attentions]).double().numpy()


def by_hand(weights: np.ndarray, asking: list[int]) -> np.ndarray:
    heads, tokens, _ = weights.shape
    found = np.full((heads, tokens), np.nan)
    for key in range(tokens):
        later = [query for query in asking if query > key]
        if later:
            found[:, key] = weights[:, later, key].mean(1)
    return found


def test_profiles_equal_the_maps(model: Model) -> None:
    before = left_behind(model.module)  # transformers leaves hooks of its own to read maps
    found = profiles(model, SEQUENCES, progress=False)
    assert left_behind(model.module) == before
    for ids, one in zip(SEQUENCES, found, strict=True):
        expected = by_hand(maps(model, ids), list(range(len(ids))))
        assert one.shape == (model.layout.total, len(ids))
        np.testing.assert_allclose(one, expected, atol=1e-5)
        assert np.isnan(one[:, -1]).all()


def test_only_some_queries(model: Model) -> None:
    asking = [[0, 1, 5, 8], [4], [2, 3, 7]]
    found = profiles(model, SEQUENCES, asking, progress=False)
    for ids, some, one in zip(SEQUENCES, asking, found, strict=True):
        np.testing.assert_allclose(one, by_hand(maps(model, ids), some), atol=1e-5)


def test_head_sets_change_later_layers_only() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    gates = model.layout.gates(off=[model.layout.head(0)])
    (whole,), (gated,) = (
        profiles(model, SEQUENCES[:1], gates=one, progress=False) for one in (None, gates)
    )
    first = model.layout.counts[0]
    np.testing.assert_allclose(whole[:first], gated[:first], atol=1e-6)
    assert np.nanmax(np.abs(whole[first:] - gated[first:])) > 1e-5


def test_bad_input_is_a_sentence(model: Model) -> None:
    with pytest.raises(HeadcountError, match="at least one sequence"):
        profiles(model, [], progress=False)
    with pytest.raises(HeadcountError, match="queries of every sequence"):
        profiles(model, SEQUENCES, [[1]], progress=False)


def test_effects_on_profiles_by_hand() -> None:
    tokens, span = 40, list(range(5, 15))
    original = [place for place in range(tokens + 10) if place not in span]
    rng = np.random.default_rng(0)
    old = rng.uniform(0.01, 0.02, (2, tokens))
    old[:, [8, 12, 17, 20, 25]] = 0.1
    new = np.empty((2, tokens + 10))
    new[:, original] = old * 0.5
    new[:, span] = 0.004
    found = profile_effects(old, new, original, span)
    assert set(found) == set(EFFECTS)
    np.testing.assert_allclose(found["peak_without"], 0.1)
    np.testing.assert_allclose(found["peak"], 0.05)
    np.testing.assert_allclose(found["timing"], 1)
    np.testing.assert_allclose(found["span"], 0.004)
    np.testing.assert_allclose(found["span_spread"], 0, atol=1e-9)
    assert (found["original_spread"] > 0.5).all()
    assert (found["change"] > 0).all()
    short = profile_effects(old[:, :9], new[:, :19], original[:9], span)
    assert np.isnan(short["peak"]).all()  # too few tokens to speak of peaks


def test_a_head_without_preference_is_a_uniform_reader() -> None:
    """Without queries all scores are equal, so every head attends to each token equally."""
    module = tiny_model("llama")
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "q_proj" in name:
                weight.zero_()
    model = wrap(module, toy_tokenizer())
    asking = [[0, 1, 5, 8], [4], [2, 3, 7]]
    for some in (None, asking):
        found = profiles(model, SEQUENCES, some, progress=False)
        for number, (ids, one) in enumerate(zip(SEQUENCES, found, strict=True)):
            expected = uniform_profile(len(ids), None if some is None else some[number])
            np.testing.assert_allclose(one, np.repeat(expected, len(one), axis=0), atol=1e-6)


def test_a_uniform_reader_by_hand() -> None:
    """Early tokens receive more: inserted ones that come early seem to matter, and do not."""
    weights = np.tril(np.ones((1, 60, 60))) / np.arange(1, 61)[None, :, None]
    np.testing.assert_allclose(uniform_profile(60), by_hand(weights, list(range(60))))
    span = list(range(5, 25))
    original = [place for place in range(60) if place not in span]
    found = profile_effects(uniform_profile(40), uniform_profile(60), original, span)
    assert found["span"][0] > 1.2 * found["original"][0]
    assert found["peak"][0] < 0.9 * found["peak_without"][0]


def test_the_affine_fit_finds_what_was_put_in() -> None:
    rng = np.random.default_rng(0)
    old = rng.normal(size=(30, 3, 8))
    factor, bias = np.array([0.5, 0.9, 1.2]), rng.normal(size=(3, 8))
    new = factor[:, None] * old + bias
    fitted, size, explained, _ = affine_fit(old, new)
    np.testing.assert_allclose(fitted, factor)
    lengths = np.linalg.norm(bias, axis=1) / np.linalg.norm(old, axis=2).mean(0)
    np.testing.assert_allclose(size, lengths)
    np.testing.assert_allclose(explained, 1)
    noisy = affine_fit(old, new + rng.normal(size=new.shape))
    assert (noisy[2] < 0.9).all()


def test_a_head_that_says_nothing_is_not_scaled() -> None:
    rng = np.random.default_rng(0)
    old, new = rng.normal(size=(2, 30, 3, 8))
    old[:, 1] = 0  # as where all edges are shut
    for values in affine_fit(old, new):
        np.testing.assert_array_equal(np.isnan(values), [False, True, False])


def test_layer_0_scales_exactly_where_positions_do_not_count() -> None:
    """With one value for all inserted tokens, layer 0 is λ · Attn + bias, token by token."""
    model = wrap(tiny_model("llama"), toy_tokenizer())
    ids, insert = [5, 6, 7, 8, 9, 10, 11, 12], [20] * 6
    old = head_outputs(model, [ids], [range(8)], progress=False)[0]
    new = head_outputs(model, [insert + ids], [range(6, 14)], progress=False)[0]
    assert [z.shape for z in old] == [(8, 4, z.shape[-1]) for z in new]
    factor, *_ = affine_fit(old[0], new[0])
    assert (factor < 1).all()
