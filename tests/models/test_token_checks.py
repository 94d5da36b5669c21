"""A tokenizer that does not fit its model is told by `headcount doctor`, in one sentence each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from checkpoints import save_checkpoint, tiny_llama, tiny_tokenizer, write_gguf
from tokenizers import decoders
from torch import Tensor

from headcount import generate, load_model, wrap
from headcount.cli import main
from headcount.models import token_checks
from headcount.models.gguf import begin_with_bos
from headcount.models.model import Model
from headcount.models.token_checks import check_bos, token_warnings
from headcount.tasks import Example, Task, encode

BOS = 1
CHAT = "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}hell"


def model(*, adds_bos: bool, **changes: Any) -> Model:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    begin_with_bos(tokenizer, adds_bos)
    return wrap(tiny_llama(**changes), tokenizer, name="tiny")


def reader(*, needs_bos: bool, by: float = 2.0) -> Any:
    """A model that reads texts well if they begin with BOS, or if they do not."""

    def run(_: object, ids: Tensor) -> Tensor:
        right = F.one_hot(ids.roll(-1, 1), 300).float()
        return right * (by if (int(ids[0, 0]) == BOS) == needs_bos else 0.0)

    return run


@pytest.mark.parametrize("adds_bos", [True, False])
@pytest.mark.parametrize("needs_bos", [True, False])
def test_the_worse_rule_is_told(
    monkeypatch: pytest.MonkeyPatch, adds_bos: bool, needs_bos: bool
) -> None:
    tiny = model(adds_bos=adds_bos)
    monkeypatch.setattr(token_checks, "run", reader(needs_bos=needs_bos))
    check = check_bos(tiny)
    assert check is not None
    assert check.prefix == ("<s>" if adds_bos else "")
    assert (check.with_bos < check.without) == needs_bos
    if adds_bos == needs_bos:
        assert not check.warning
    else:
        assert "\n" not in check.warning
        rule = "bos=always" if needs_bos else "bos=never"
        assert check.warning.endswith(f"measure tasks with {rule}.")


def test_a_small_difference_is_not_told(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = model(adds_bos=False)
    monkeypatch.setattr(token_checks, "run", reader(needs_bos=True, by=0.1))
    check = check_bos(tiny)
    assert check is not None
    assert check.with_bos < check.without
    assert not check.warning


def test_losses_are_those_of_the_same_tokens() -> None:
    tiny = model(adds_bos=True)
    ids = tiny.tokenizer.encode(token_checks.TEXT, add_special_tokens=False)[:20]
    long = token_checks._losses(tiny, [BOS, *ids])
    logits = tiny.module(torch.tensor([[BOS, *ids]])).logits[0]
    expected = -logits.log_softmax(-1)[:-1].gather(-1, torch.tensor(ids)[:, None])[:, 0]
    torch.testing.assert_close(long, expected.detach())


def test_no_bos_no_check() -> None:
    tiny = model(adds_bos=False)
    tiny.tokenizer.bos_token = None
    assert check_bos(tiny) is None


def test_token_ids_beyond_the_embedding_are_found() -> None:
    tiny = model(adds_bos=False)
    assert token_warnings(tiny) == []
    tiny.tokenizer.add_tokens(["<one>", "<two>"])
    (warning,) = token_warnings(tiny)
    assert "has 2 token ids that the model does not know (the first is 265, '<one>'" in warning


def test_doctor_prints_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = save_checkpoint(tmp_path / "tiny")
    tokenizer = tiny_tokenizer()
    begin_with_bos(tokenizer, True)
    tokenizer.chat_template = CHAT
    tokenizer.add_tokens(["<one>"])
    tokenizer.save_pretrained(folder)
    assert main(["doctor", str(folder), "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "texts begin with <s>; a short text has a loss of" in text
    assert "! The tokenizer has 1 token ids" in text
    assert "! Both the tokenizer and its chat template put <s> in front" in text
    assert main(["doctor", str(folder), "--device", "cpu", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["bos"]["prefix"] == "<s>"
    assert len(report["warnings"]) == 2


def test_prompts_have_one_bos() -> None:
    """Whether the tokenizer, the template or the text brings it; or all of them."""
    tiny = model(adds_bos=True)
    tiny.tokenizer.chat_template = CHAT
    example = Example("0", "<s>hello", " a", corrupted="<s>hell")
    pieces = Example("1", "<s>hello a", " a", pieces=("<s>hello", " a"))
    for task in (
        Task("t", 1, (example, pieces)),
        Task("t", 1, (example, pieces), bos="always"),
        Task("t", 1, (Example("0", "hello", " a"),), chat=True),
        Task("t", 1, (Example("1", "hello a", " a", pieces=("hello", " a")),), chat=True),
    ):
        for encoded in encode(task, tiny.tokenizer):
            for ids in (encoded.prompt, encoded.corrupted or encoded.prompt):
                assert ids[0] == BOS
                assert BOS not in ids[1:]
            if encoded.borders and not task.chat:
                first = encoded.prompt[: encoded.borders[1]]
                assert tiny.tokenizer.decode(list(first)) == "<s>hello"
    once, twice = generate(tiny, ["hello", "<s>hello"], max_new_tokens=3)
    assert once.ids == twice.ids


@pytest.mark.parametrize("add_bos", [True, False])
def test_the_rule_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, add_bos: bool
) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    path = write_gguf(tmp_path / "tiny.gguf", add_bos=add_bos, family="gemma3")
    tiny = load_model(path, device="cpu")
    assert tiny.facts["prefix"] == ("<s>" if add_bos else "")
    other = load_model(
        write_gguf(tmp_path / "other.gguf", add_bos=not add_bos, family="gemma3"), device="cpu"
    )
    assert tiny.identity["tokenizer"] != other.identity["tokenizer"]
