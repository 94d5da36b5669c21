"""Key/value heads: which query heads share one, and gates on them in place of query heads."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from custom import CustomLM, Flat
from fast_paths_of_model import left_behind
from tiny import tiny_model
from torch import nn
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, Store, evaluate, load_model, rank, wrap
from headcount.heads import HeadLayout, HeadScores
from headcount.models import key_value
from headcount.models.key_value import KeyValueHeads
from headcount.models.model import Model
from headcount.models.streaming import AttentionCall, Streaming

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers about kernels it has not got

GROUPED = {  # query heads of each key/value head, in models of four query heads
    "llama": 2,
    "gpt2": 1,
    "gemma2": 2,  # changes its scores, and is gated all the same
    "gpt_oss": 2,  # sinks
    "deepseek_v3": 1,  # latent attention: every query head has keys of its own
    "hrm_text": 1,  # blocks run several times
    "mistral": 2,
}


@cache
def model_of(model_type: str) -> Model:
    return wrap(tiny_model(model_type), toy_tokenizer())


@pytest.mark.parametrize("model_type", GROUPED)
def test_a_key_value_head_is_gated_like_all_of_its_query_heads(model_type: str) -> None:
    model, task = model_of(model_type), toy_task(6)
    grouped, each = model.by_key_value_heads(), GROUPED[model_type]
    assert grouped.layout == HeadLayout(tuple(n // each for n in model.layout.counts), "kv")
    assert grouped.by_key_value_heads() is grouped
    gates = np.random.default_rng(0).uniform(-0.5, 1.5, (3, grouped.layout.total))
    one, other = (
        evaluate(some, task, g, metric="logprob", lab=Lab(store=None)).values
        for some, g in ((grouped, gates), (model, gates.repeat(each, axis=1)))
    )
    np.testing.assert_allclose(one, other, atol=1e-5)
    assert not left_behind(model.module)


def test_their_keys_and_values_are_measured() -> None:
    assert model_of("llama").key_values == (KeyValueHeads(2, 32),) * 2
    assert model_of("mistral").key_values == (KeyValueHeads(2, 32, window=8),) * 2
    sizes = KeyValueHeads(2, 32, window=8)
    assert sizes.kept(100) == 8 * 32
    assert sizes.kept(100, Streaming(2, 3)) == 5 * 32
    assert sizes.kept(100, Streaming(20, 30)) == 8 * 32  # it never keeps more than its window


def test_scores_and_stored_values_tell_the_two_units_apart(tmp_path: Path) -> None:
    """Without groups, both units have as many heads."""
    model = model_of("gpt2")
    grouped, task = model.by_key_value_heads(), toy_task(8)
    assert grouped.layout.counts == model.layout.counts
    assert grouped.facts["unit"] == "kv"
    assert "unit" not in model.facts
    scores = rank(grouped, task, "attribution", lab=Lab(store=None))
    assert HeadScores.from_json(scores.to_json()).layout == grouped.layout
    with pytest.raises(
        HeadcountError, match=r"for 8 key/value heads in 2 layers.*has 8 heads in 2"
    ):
        rank(model, task, scores)
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        for one in (model, grouped):
            evaluate(one, task, np.zeros(8), lab=lab)
        assert lab.measured["value"] == 2 * len(task.split("test"))


def test_a_score_by_attention_is_the_largest_of_the_query_heads() -> None:
    model, task = model_of("llama"), toy_task(8)
    by_query = rank(model, task, "attention-previous", lab=Lab(store=None))
    grouped = rank(model.by_key_value_heads(), task, "attention-previous", lab=Lab(store=None))
    assert by_query.samples is not None
    largest = by_query.samples.reshape(len(by_query.samples), 4, 2).max(-1)
    np.testing.assert_array_equal(grouped.samples, largest)


def test_a_file_of_scores_with_another_unit_is_refused() -> None:
    data = HeadScores(HeadLayout((2,), "kv"), np.ones(2), "by hand").to_json()
    assert data["unit"] == "kv"
    for unit in ("groups", ["kv"]):
        with pytest.raises(HeadcountError, match="unit must be one of head, kv"):
            HeadScores.from_json({**data, "unit": unit})


def test_attention_of_its_own_is_refused_by_name() -> None:
    for module, name in ((tiny_model("bloom"), "BloomAttention"), (CustomLM(Flat), "Flat")):
        with pytest.raises(HeadcountError, match=rf"\({name}\) does not run through transformers'"):
            wrap(module, toy_tokenizer()).by_key_value_heads()
    with pytest.raises(HeadcountError, match="4 query and 2 key/value heads for 2 slices"):
        model_of("diffllama").by_key_value_heads()
    with pytest.raises(HeadcountError, match='There is no unit "group"'):
        load_model("smollm2-135m-q4", unit="group")  # type: ignore[arg-type]


def test_heads_that_are_grouped_otherwise_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query heads that share a key/value head, but do not stand side by side."""
    plain = AttentionCall.run

    def interleaved(call: AttentionCall, *given: torch.Tensor) -> torch.Tensor:
        return plain(call, *given)[:, :, [0, 2, 1, 3]]

    monkeypatch.setattr(AttentionCall, "run", interleaved)
    module: nn.Module = tiny_model("llama")
    with pytest.raises(HeadcountError, match="Cannot prove the key/value heads of "):
        wrap(module, toy_tokenizer()).by_key_value_heads()
    assert not left_behind(module)
    assert key_value.by_module(module, wrap(module, None).sites)  # its kernel is its own again
