"""Heads are ranked by derivatives only if the model has them, and if they are right."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from tiny import tiny_model
from torch import Tensor, nn
from toy import toy_task, toy_tokenizer
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from headcount import HeadcountError, rank, wrap
from headcount.models.model import Model
from headcount.rankings import prove_derivative
from headcount.rankings.prove_derivative import require_derivative

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore")

RANKINGS: dict[str, dict[str, Any]] = {
    "attribution": {},
    "integrated-gradients": {"steps": 2},
    "facilitation": {"updates": 1, "seeds": 1, "batch": 2},
}


def refusal(model: Model, ranking: str) -> str:
    """The sentence with which a ranking refuses a model."""
    with pytest.raises(HeadcountError) as caught:
        rank(model, toy_task(24), ranking, **RANKINGS[ranking])
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith("or rank by ablation or patching.")
    return text


def wrapped(module: nn.Module) -> Model:
    return wrap(module, toy_tokenizer(), name="tiny")


@contextmanager
def registered(attend: Callable[..., Any]) -> Iterator[nn.Module]:
    """A tiny model whose attention is this function."""
    AttentionInterface.register("own", attend)
    AttentionMaskInterface.register("own", sdpa_mask)
    try:
        module = tiny_model("llama")
        module.set_attn_implementation("own")
        yield module
    finally:
        AttentionInterface._global_mapping.pop("own")
        AttentionMaskInterface._global_mapping.pop("own")


@pytest.mark.parametrize("ranking", RANKINGS)
def test_a_kernel_without_a_backward_pass(ranking: str) -> None:
    module = tiny_model("llama")
    module.set_attn_implementation("flex_attention")
    text = refusal(wrapped(module), ranking)
    assert text.startswith(
        "tiny has no derivatives on cpu with the attention kernel flex_attention"
    )


@pytest.mark.parametrize("ranking", RANKINGS)
def test_weights_that_are_quantised(ranking: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch lets go of this, users have not yet
        module = torch.ao.quantization.quantize_dynamic(
            tiny_model("llama"), {nn.Linear}, dtype=torch.qint8
        )
    text = refusal(wrapped(module), ranking)
    assert "tiny has no derivatives on cpu" in text
    assert "weights that are not quantised" in text


@pytest.mark.parametrize("ranking", RANKINGS)
def test_attention_that_records_no_gradients(ranking: str) -> None:
    """Heads still have derivatives, through the residual stream, but not all of them."""

    @torch.no_grad()
    def attend(*args: Any, **kwargs: Any) -> tuple[Tensor, None]:
        return sdpa_attention_forward(*args, **kwargs)

    with registered(attend) as module:
        text = refusal(wrapped(module), ranking)
    assert text.startswith("The derivatives of tiny are wrong")
    assert "another attention kernel than own" in text


def test_attention_of_your_own_that_records_them() -> None:
    with registered(sdpa_attention_forward) as module:
        require_derivative(wrapped(module))


@pytest.mark.parametrize(
    "model_type", ["llama", "gpt2", "gemma2", "mixtral", "qwen2_moe", "opt", "qwen3_next"]
)
def test_ordinary_models_pass(model_type: str) -> None:
    require_derivative(wrapped(tiny_model(model_type)))


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_half_precision_passes(model_type: str) -> None:
    require_derivative(wrapped(tiny_model(model_type).bfloat16()))


@pytest.mark.parametrize("kernel", ["eager", "sdpa"])
def test_kernels_pass(kernel: str) -> None:
    module = tiny_model("llama")
    module.set_attn_implementation(kernel)
    require_derivative(wrapped(module))


def test_is_proven_once_and_again_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    proofs: list[Model] = []
    prove = prove_derivative._is_right
    monkeypatch.setattr(
        prove_derivative, "_is_right", lambda model: proofs.append(model) or prove(model)
    )
    model = wrapped(tiny_model("llama"))
    for _ in range(2):
        rank(model, toy_task(8))
    assert len(proofs) == 1
    model.module.set_attn_implementation("eager")  # type: ignore[operator]
    rank(model, toy_task(8))
    assert len(proofs) == 2


def test_weights_that_are_no_numbers_are_not_blamed_on_derivatives() -> None:
    module = tiny_model("llama")
    model = wrapped(module)
    with torch.no_grad():
        module.lm_head.weight[7] = torch.nan
    with pytest.raises(HeadcountError, match="tiny gave logits that are not finite numbers"):
        require_derivative(model)


def test_too_little_memory_is_no_missing_derivative(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(model: Model) -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(prove_derivative, "_is_right", full)
    with pytest.raises(torch.OutOfMemoryError):
        require_derivative(wrapped(tiny_model("llama")))
