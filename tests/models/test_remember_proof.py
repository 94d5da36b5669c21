"""Proofs are remembered, and only for the model, code and machine that they were made with."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.models.gpt_neo import modeling_gpt_neo
from transformers.models.llama import modeling_llama

from headcount import HeadcountError, wrap
from headcount.models import model as models
from headcount.models import remember_proof
from headcount.system.paths import cache_dir
from headcount.system.remembered import remember, remembered, remembered_number
from tests.tiny import tiny_model
from tests.toy import toy_tokenizer

Prove = Callable[[nn.Module], object]


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[nn.Module]:
    """The models that were proven, not recalled; every proof is worth keeping."""
    found: list[nn.Module] = []
    prove: Prove = models.prove

    def watched(module: nn.Module) -> object:
        found.append(module)
        return prove(module)

    monkeypatch.setattr(models, "prove", watched)
    monkeypatch.setattr(remember_proof, "SLOW", 0)
    monkeypatch.setenv("HEADCOUNT_PROOFS", "on")
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path))
    return found


def test_a_model_is_proven_once(proven: list[nn.Module]) -> None:
    first, again = (wrap(tiny_model("llama"), toy_tokenizer(), name="tiny") for _ in range(2))
    assert len(proven) == 1
    assert again.proof == first.proof
    paths = first.fast_paths
    third = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    assert third.known_paths == third.fast_paths == paths
    assert len(proven) == 1


def test_the_key_holds_the_code_of_every_decorated_function_in_any_order() -> None:
    """The wrappers of one decorator share their code, and sets are ordered anew in each process."""

    def decorated(function: FunctionType) -> FunctionType:
        @wraps(function)
        def wrapper(*given: object) -> object:
            return function(*given)

        wrapper.__module__ = function.__module__ = "headcount"
        return wrapper  # type: ignore[return-value]

    one, two = decorated(lambda x: x + 1), decorated(lambda x: x + 2)  # type: ignore[arg-type]

    def code(*functions: FunctionType) -> list[str]:
        seen: set[int] = set()
        return sorted(line for each in functions for line in remember_proof._code_of(each, seen))

    assert code(one, two) == code(two, one)
    assert set(code(one)) < set(code(one, two)) > set(code(two))


def test_what_changes_a_proof_is_proven_anew(
    proven: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrapped(module: nn.Module) -> int:
        wrap(module, toy_tokenizer(), name="tiny")
        return len(proven)

    assert wrapped(tiny_model("llama")) == 1
    weights = tiny_model("llama")
    with torch.no_grad():
        weights.model.layers[0].self_attn.o_proj.weight[0, 0] += 1
    assert wrapped(weights) == 2
    assert wrapped(tiny_model("llama").half().float()) == 3
    eager = tiny_model("llama")
    eager.set_attn_implementation("eager")
    assert wrapped(eager) == 4
    hooked = tiny_model("llama")
    hooked.lm_head.register_forward_hook(lambda *_: None)
    assert [wrapped(hooked), wrapped(hooked)] == [5, 6]  # nobody knows what a hook does
    rotate = modeling_llama.apply_rotary_pos_emb

    def other(q: object, k: object, *more: object, **options: object) -> object:
        return rotate(q, k, *more, **options)

    monkeypatch.setattr(modeling_llama, "apply_rotary_pos_emb", other)
    assert wrapped(tiny_model("llama")) == 7


def register(name: str, function: Callable[..., object]) -> nn.Module:
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, sdpa_mask)
    model = tiny_model("llama")
    model.set_attn_implementation(name)
    return model


def by_length(
    module: nn.Module, query: Tensor, *args: Any, change: float = 0.0, **kw: Any
) -> tuple[Tensor, Any]:
    """Attention that depends on the number of tokens in a pass, unless `change` is 0."""
    output, weights = sdpa_attention_forward(module, query, *args, **kw)
    return output * (1 + change * query.shape[2]), weights


def test_code_that_no_checksum_tells_is_proven_anew(proven: list[nn.Module]) -> None:
    wrap(register("mine", partial(by_length)), toy_tokenizer(), name="tiny")
    wrap(register("mine", partial(by_length, change=0.05)), toy_tokenizer(), name="tiny")
    wrap(register("mine", by_length), toy_tokenizer(), name="tiny")
    wrap(register("mine", by_length), toy_tokenizer(), name="tiny")
    made: dict[str, Any] = {"attend": sdpa_attention_forward}
    exec("def function(*args, **kw): return attend(*args, **kw)", made)
    made["function"].__module__ = None
    wrap(register("mine", made["function"]), toy_tokenizer(), name="tiny")
    assert len(proven) == 5


def test_a_replaced_method_is_proven_anew(
    proven: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrap(tiny_model("gpt_neo"), toy_tokenizer(), name="tiny")
    usual = modeling_gpt_neo.GPTNeoSelfAttention._attn
    monkeypatch.setattr(
        modeling_gpt_neo.GPTNeoSelfAttention, "_attn", lambda *args, **kw: usual(*args, **kw)
    )
    wrap(tiny_model("gpt_neo"), toy_tokenizer(), name="tiny")
    assert len(proven) == 2


def test_fast_paths_of_another_kernel_are_forgotten(proven: list[nn.Module]) -> None:
    """Also where the kernel changes after the model was wrapped, or between two calls."""
    register("mine", partial(by_length, change=0.05))
    first = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    assert first.fast_paths.cache
    second = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    for model in (first, second):
        model.module.set_attn_implementation("mine")
        model.notice_changes()
        assert not model.fast_paths.cache
        assert not model.late
    third = wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    assert third.fast_paths.cache


def test_an_attention_function_that_mixes_heads_is_refused() -> None:
    def mixing(*args: Any, **kw: Any) -> Any:
        output, weights = sdpa_attention_forward(*args, **kw)
        return output + output.mean(2, keepdim=True), weights

    with pytest.raises(HeadcountError):
        wrap(register("mixing", mixing), toy_tokenizer(), name="tiny")


def test_damaged_memory_counts_as_none(proven: list[nn.Module]) -> None:
    wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    (file,) = cache_dir().rglob(remember_proof.FILE)
    book = json.loads(file.read_text(encoding="utf-8"))
    for damaged in ("{", json.dumps([]), json.dumps({key: {"proof": 1} for key in book})):
        file.write_text(damaged, encoding="utf-8")
        wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    assert len(proven) == 4


def test_nothing_is_remembered_when_switched_off(
    proven: list[nn.Module], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADCOUNT_PROOFS", "off")
    for _ in range(2):
        wrap(tiny_model("llama"), toy_tokenizer(), name="tiny")
    assert len(proven) == 2
    assert not list(cache_dir().rglob(remember_proof.FILE))


def test_numbers_that_are_none_count_as_unknown(proven: list[nn.Module]) -> None:
    path = cache_dir() / "some.json"
    for text in (
        f'{{"rate": {"9" * 400}}}',
        '{"rate": -1}',
        '{"rate": true}',
        '{"rate": "1"}',
        "[",
    ):
        path.write_text(text, encoding="utf-8")
        assert remembered_number("some.json", "rate") is None
    remember("some.json", "rate", 2.5)
    assert remembered_number("some.json", "rate") == 2.5


def test_processes_that_remember_at_once_lose_nothing(proven: list[nn.Module]) -> None:
    facts = [str(number) for number in range(40)]
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda fact: remember("some.json", fact, fact), facts))
    assert set(remembered("some.json")) == set(facts)
