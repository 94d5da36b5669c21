"""Proofs are remembered, and only for the model, code and machine that they were made with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from transformers.models.llama import modeling_llama

from headcount import wrap
from headcount.models import model as models
from headcount.models import remember_proof
from headcount.system.paths import cache_dir
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
