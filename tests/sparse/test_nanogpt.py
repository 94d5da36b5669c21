"""Checkpoints in the layout of nanoGPT: what is written computes the same, and no pickle runs."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from tasks.tiny_tokenizers import byte_level
from torch import nn

from headcount import HeadcountError, load_model
from headcount.sparse.make_sparse import gate_bias
from headcount.sparse.nanogpt import convert, read_checkpoint

WIDTH, HEADS, LAYERS, VOCABULARY, POSITIONS = 24, 3, 2, 96, 32


class Block(nn.Module):
    """A block as nanoGPT writes it, with the sparse layer of the paper (b = 0)."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH, bias=bias)
        self.attn = nn.ModuleDict(
            {
                "c_attn": nn.Linear(WIDTH, 3 * WIDTH, bias=bias),
                "c_proj": nn.Linear(WIDTH, WIDTH, bias=bias),
            }
        )
        self.ln_2 = nn.LayerNorm(WIDTH, bias=bias)
        self.mlp = nn.ModuleDict(
            {
                "c_fc": nn.Linear(WIDTH, 4 * WIDTH, bias=bias),
                "c_proj": nn.Linear(4 * WIDTH, WIDTH, bias=bias),
            }
        )
        mask = torch.ones(POSITIONS, POSITIONS).tril()
        self.attn.register_buffer("bias", mask.view(1, 1, POSITIONS, POSITIONS))

    def forward(self, x: torch.Tensor, sparse: bool) -> torch.Tensor:
        rows, tokens, _ = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(rows, tokens, HEADS, -1).transpose(1, 2) for part in parts)
        scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
        hidden = self.attn.bias[:, :, :tokens, :tokens] == 0
        weights = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        if sparse:
            weights = weights * (scores > 0)
        heads = (weights @ v).transpose(1, 2).reshape(rows, tokens, WIDTH)
        x = x + self.attn["c_proj"](heads)
        inner = nn.functional.gelu(self.mlp["c_fc"](self.ln_2(x)))
        return x + self.mlp["c_proj"](inner)


class NanoGPT(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(VOCABULARY, WIDTH),
                "wpe": nn.Embedding(POSITIONS, WIDTH),
                "h": nn.ModuleList(Block(bias) for _ in range(LAYERS)),
                "ln_f": nn.LayerNorm(WIDTH, bias=bias),
            }
        )
        self.lm_head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.transformer["wte"].weight = self.lm_head.weight
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.4)

    def forward(self, ids: torch.Tensor, sparse: bool) -> torch.Tensor:
        parts = self.transformer
        x = parts["wte"](ids) + parts["wpe"](torch.arange(ids.shape[1]))
        for block in parts["h"]:
            x = block(x, sparse)
        return self.lm_head(parts["ln_f"](x))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tokenizer")
    byte_level().save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(("sparse", "bias", "wrapped"), [(True, True, True), (False, False, False)])
def test_the_folder_computes_what_the_checkpoint_does(
    tmp_path: Path, words: str, sparse: bool, bias: bool, wrapped: bool
) -> None:
    torch.manual_seed(0)
    module = NanoGPT(bias).eval()
    state = {f"_orig_mod.{name}": value for name, value in module.state_dict().items()}
    arguments = {"n_head": HEADS, "n_layer": LAYERS, "dropout": 0.0}
    content = {"model": state, "model_args": arguments, "iter_num": 7} if wrapped else state
    torch.save(content, tmp_path / "final.pth")
    how: dict[str, Any] = {"gate_bias": 0.0 if sparse else None, "heads": None if wrapped else 3}
    folder = convert(tmp_path / "final.pth", tmp_path / "made", tokenizer=words, **how)
    assert not list(folder.glob("*.pt*"))  # safetensors alone
    model = load_model(folder)
    assert model.layout.counts == (HEADS,) * LAYERS
    assert gate_bias(model.module) == (0.0 if sparse else None)
    ids = torch.randint(3, VOCABULARY, (2, 9))
    with torch.no_grad():
        wanted = module(ids, sparse)
        found = model.module(input_ids=ids).logits
    assert torch.allclose(found, wanted, atol=1e-4 * float(wanted.abs().max()))


class Malicious:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self.marker,)


@pytest.mark.parametrize("by_torch", [True, False])
def test_a_pickle_with_code_is_refused_and_not_run(tmp_path: Path, by_torch: bool) -> None:
    marker, path = tmp_path / "ran", tmp_path / "final.pth"
    content = {"model": {"transformer.wte.weight": torch.ones(2, 2)}, "x": Malicious(marker)}
    if by_torch:
        torch.save(content, path)
    else:
        path.write_bytes(pickle.dumps(Malicious(marker)))
    with pytest.raises(HeadcountError, match=r"could run code|no checkpoint"):
        read_checkpoint(path)
    assert not marker.exists()
    with pytest.raises(HeadcountError, match="headcount convert"):
        load_model(path)
    assert not marker.exists()
    pickle.loads(pickle.dumps(Malicious(marker)))  # it would run
    assert marker.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda state: state.pop("transformer.h.1.mlp.c_fc.weight"), "h.1.mlp.c_fc"),
        (lambda state: state.update(extra=torch.ones(1)), "extra"),
        (lambda state: state.pop("transformer.wte.weight"), "layout of nanoGPT"),
        (lambda state: state.pop("transformer.wpe.weight"), "--heads"),
        (dict.clear, "no tensors"),
    ],
)
def test_other_checkpoints_are_refused_by_name(tmp_path: Path, change: Any, words: str) -> None:
    state = dict(NanoGPT().state_dict())
    change(state)
    torch.save({"model": state, "model_args": {"n_head": HEADS}}, tmp_path / "final.pth")
    with pytest.raises(HeadcountError, match=words):
        convert(tmp_path / "final.pth", tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_cut_file_is_a_sentence(tmp_path: Path) -> None:
    torch.save({"model": NanoGPT().state_dict()}, tmp_path / "whole.pth")
    (tmp_path / "cut.pth").write_bytes((tmp_path / "whole.pth").read_bytes()[:500])
    with pytest.raises(HeadcountError, match="damaged"):
        read_checkpoint(tmp_path / "cut.pth")
    with pytest.raises(HeadcountError, match="Cannot read"):
        read_checkpoint(tmp_path / "none.pth")
