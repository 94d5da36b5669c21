"""The tiny models that the other tests rely on: each runs, is causal and reads the order."""

import pytest
import torch
from tiny import (
    CANNOT_BUILD,
    NO_SOFTMAX_ATTENTION,
    NOT_CAUSAL,
    NOT_DECODER_ONLY_TEXT,
    VOCAB,
    model_types,
    tiny_model,
)

LEFT_OUT = NOT_DECODER_ONLY_TEXT | CANNOT_BUILD
BUILT = [name for name in model_types() if name not in LEFT_OUT]

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore")


def _texts() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(3, VOCAB, (3, 11), generator=generator)  # (rows, tokens)


@torch.no_grad()
def _logits(model: torch.nn.Module, texts: torch.Tensor) -> torch.Tensor:
    return model(input_ids=texts).logits  # (rows, tokens, vocabulary)


@pytest.mark.parametrize("model_type", BUILT)
def test_runs_and_reads_the_past_alone(model_type: str) -> None:
    model, texts = tiny_model(model_type), _texts()
    logits = _logits(model, texts)
    assert not model.training
    assert model.dtype == torch.float32
    assert logits.shape == (*texts.shape, VOCAB)
    assert logits.isfinite().all()
    assert 0.3 < logits.std() < 3

    swapped = texts.clone()
    swapped[:, [2, 3]] = texts[:, [3, 2]]
    assert (_logits(model, swapped) - logits)[:, 4:].abs().max() > 1e-2

    changed = texts.clone()
    changed[:, -1] = (texts[:, -1] + 17 - 3) % (VOCAB - 3) + 3
    difference = (_logits(model, changed) - logits).abs().amax(dim=(0, 2))  # (tokens,)
    assert difference[-1] > 1e-2
    assert (difference[:-1].max() > 1e-4) == (model_type in NOT_CAUSAL)


def test_same_seed_same_model() -> None:
    texts = _texts()
    first, again, other = (_logits(tiny_model("llama", seed=seed), texts) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)


def test_overrides_reach_the_config() -> None:
    assert tiny_model("gemma2", num_hidden_layers=3).config.num_hidden_layers == 3


def test_the_lists_name_known_types() -> None:
    assert set(LEFT_OUT) | set(NO_SOFTMAX_ATTENTION) | set(NOT_CAUSAL) <= set(model_types())
