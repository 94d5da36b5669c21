"""Sparse models on disk and under gates: loaded whole or refused, and gated like any other."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import save_checkpoint
from fast_paths_of_model import left_behind
from safetensors.torch import load_file, save_file
from tiny import VOCAB, tiny_model
from torch import Tensor, nn
from toy import toy_task, toy_tokenizer

from headcount import Head, HeadcountError, evaluate, export, generate, load_model, rank, wrap
from headcount.engine.read.attention import attend
from headcount.engine.read.edges import open_edges
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.sparse.checkpoint import SHIPPED, SparseFacts, write_adapters, write_facts
from headcount.sparse.make_sparse import make_sparse
from headcount.sparse.tunable import LowRank, attach, block_layers, detach, merge


def ids(rows: int = 2, length: int = 10) -> Tensor:
    return torch.randint(3, VOCAB, (rows, length), generator=torch.Generator().manual_seed(1))


def adapters(module: nn.Module, rank: int = 2) -> dict[str, Tensor]:
    made = attach(module, block_layers(module), rank, rank)
    detach(module, made)
    draw = torch.Generator().manual_seed(5)
    tensors = {f"{name}.down": one.down.detach() for name, one in made.items()}
    return tensors | {
        f"{name}.up": torch.randn(one.up.shape, generator=draw) / 10 for name, one in made.items()
    }


def write_sparse(tmp_path: Path, bias: float = 0.0) -> Path:
    base = save_checkpoint(tmp_path / "base")
    folder = tmp_path / "sparse"
    folder.mkdir()
    model = load_model(base)
    shards = write_adapters(folder, adapters(model.module))
    weights = model.identity["weights"]
    write_facts(folder, SparseFacts(str(base), bias, 1.0, shards, base_weights=weights))
    return folder


def sparse_model(name: str = "llama", bias: float = 0.3) -> Model:
    module = tiny_model(name)
    make_sparse(module, bias)
    return wrap(module, toy_tokenizer(), name=f"sparse-{name}")


@pytest.mark.parametrize("name", ["llama", "gpt2"])  # GPT-2 has its matrices the other way round
@torch.no_grad()
def test_merged_adapters_give_what_attached_ones_give(name: str) -> None:
    module = tiny_model(name)
    tensors = adapters(module)
    made = attach(module, block_layers(module), 2, 3.0)
    for layer, adapter in made.items():
        adapter.down.copy_(tensors[f"{layer}.down"])
        adapter.up.copy_(tensors[f"{layer}.up"])
    attached = module(input_ids=ids()).logits
    detach(module, made)
    assert not any(isinstance(child, LowRank) for child in module.modules())
    before = module(input_ids=ids()).logits
    merge(module, tensors, 3.0 / 2)
    merged = module(input_ids=ids()).logits
    torch.testing.assert_close(merged, attached, rtol=1e-4, atol=1e-4)
    assert (merged - before).abs().max() > 0.01


def test_a_folder_loads_with_its_adapters_its_gates_and_its_own_identity(tmp_path: Path) -> None:
    folder = write_sparse(tmp_path)
    model = load_model(folder)
    assert model.name == "sparse"
    assert model.kernel == "sparse, gate bias 0"
    before = model.identity
    facts = json.loads((folder / "sparse.json").read_text())
    (folder / "sparse.json").write_text(json.dumps({**facts, "gate_bias": 2.0}))
    other = load_model(folder)
    assert other.identity["kernel"] != before["kernel"]
    assert other.identity["weights"] != before["weights"]
    with torch.no_grad():
        a, b = (m.module(input_ids=ids()).logits for m in (model, other))
    assert (a - b).abs().max() > 1e-3


def test_adapters_are_not_put_on_other_weights(tmp_path: Path) -> None:
    folder = write_sparse(tmp_path)
    file = tmp_path / "base" / "model.safetensors"
    tensors = load_file(file)
    first = next(iter(tensors))
    save_file({**tensors, first: tensors[first] + 1}, file, metadata={"format": "pt"})
    with pytest.raises(HeadcountError, match="belongs to other weights of"):
        load_model(folder)


def test_large_adapters_are_split_and_every_file_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headcount.sparse.checkpoint.SHARD_BYTES", 3000)
    folder = write_sparse(tmp_path)
    files = sorted(folder.glob("adapters-*.safetensors"))
    assert len(files) > 1
    load_model(folder)
    tensors = load_file(files[1])
    first = next(iter(tensors))
    save_file({**tensors, first: tensors[first] + 1}, files[1])
    with pytest.raises(HeadcountError, match="its checksum differs"):
        load_model(folder)
    files[0].unlink()
    with pytest.raises(HeadcountError, match=r"lacks adapters-1\.safetensors"):
        load_model(folder)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"gate_bias": "much"}, "damaged"),
        ({"format": 9}, "newer headcount"),
        ({"base": "no-such-model"}, "no-such-model"),
        ({"shards": {"../away": "0"}}, "outside its folder"),
        ({"surprise": 1}, "damaged"),
    ],
)
def test_wrong_facts_are_refused(tmp_path: Path, change: dict[str, object], says: str) -> None:
    folder = write_sparse(tmp_path)
    facts = json.loads((folder / "sparse.json").read_text())
    (folder / "sparse.json").write_text(json.dumps(facts | change))
    with pytest.raises(HeadcountError, match=says):
        load_model(folder)


def test_adapters_of_another_model_are_refused(tmp_path: Path) -> None:
    folder = write_sparse(tmp_path)
    other = save_checkpoint(tmp_path / "other", intermediate_size=48)
    facts = json.loads((folder / "sparse.json").read_text())
    (folder / "sparse.json").write_text(
        json.dumps(facts | {"base": str(other), "base_weights": ""})
    )
    with pytest.raises(HeadcountError, match="belongs to another model"):
        load_model(folder)


def test_a_kernel_cannot_be_chosen_for_a_sparse_model(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="which has its own attention kernel"):
        load_model(write_sparse(tmp_path), attention="eager")


def test_names_of_sparse_models_that_do_not_come_along_give_one_sentence() -> None:
    assert not (SHIPPED / "nobody").exists()
    with pytest.raises(HeadcountError, match="headcount sparsify"):
        load_model("sparse:nobody")


@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "olmo2"])
@torch.no_grad()
def test_gates_switch_heads_of_sparse_models_off(name: str) -> None:
    model = sparse_model(name)
    assert not [check for check in model.proof.checks if not check.holds]
    off = [Head(0, 1), Head(1, 2)]
    gates = torch.from_numpy(model.layout.gates(off=off))[None]
    with gating(model.module, model.sites, gates):
        gated = model.module(input_ids=ids(), use_cache=False).logits
    named = dict(model.module.named_modules())
    for head in off:  # the slow way: the columns of the projection that read the head
        site = model.sites[head.layer]
        weight = named[site.module].weight
        columns = weight if name != "gpt2" else weight.T
        columns[:, head.index * site.size : (head.index + 1) * site.size] = 0
    expected = model.module(input_ids=ids(), use_cache=False).logits
    torch.testing.assert_close(gated, expected, rtol=1e-4, atol=1e-4)
    assert left_behind(model.module) == []


def test_fast_paths_evaluation_ranking_and_decoding_work_on_sparse_models() -> None:
    model = sparse_model()
    paths = model.fast_paths
    assert paths.head
    assert paths.trunk is not None
    assert paths.cache
    task = toy_task(6)
    gates = model.layout.gates(off=[Head(0, 0)])
    values = evaluate(model, task, gates, split="all", metric="logprob")
    plain = [
        _logprob(model, example.prompt, example.target) for example in task.examples
    ]  # one example at a time, no fast path
    assert np.allclose(values.values[0], plain, atol=1e-4)
    scores = rank(model, task, "attribution")
    assert np.isfinite(scores.values).all()
    texts = generate(model, ["ba be bi"], max_new_tokens=4, progress=False)
    assert len(texts) == 1


def _logprob(model: Model, prompt: str, target: str) -> float:
    start, end = (model.tokenizer(text)["input_ids"] for text in (prompt, target))
    tokens = torch.tensor([[*start, *end]])
    gates = torch.from_numpy(model.layout.gates(off=[Head(0, 0)]))[None]
    with torch.no_grad(), gating(model.module, model.sites, gates):
        logits = model.module(input_ids=tokens, use_cache=False).logits.log_softmax(-1)
    places = range(len(start) - 1, tokens.shape[1] - 1)
    return float(sum(logits[0, place, tokens[0, place + 1]] for place in places))


def test_attention_weights_are_those_of_open_edges() -> None:
    model = sparse_model(bias=0.0)
    sums = attend(model, [ids()[0].tolist()], lambda _, w, __: w.sum((-1, -2)), progress=False)
    kept = attend(
        model, [ids()[0].tolist()], lambda _, w, __: (w > 0).float().sum((-1, -2)), progress=False
    )
    text = model.tokenizer.decode(ids()[0])
    if model.tokenizer.encode(text) == ids()[0].tolist():
        shares = open_edges(model, [text], progress=False)
        assert np.allclose(kept[0] / 55, shares, atol=1e-6)
    assert (sums < 10).all()  # ten queries, of which none keeps all its weight
    assert kept.max() < 55


def test_open_edges_of_a_dense_model_are_not_asked_for() -> None:
    with pytest.raises(HeadcountError, match="is dense"):
        open_edges(wrap(tiny_model("llama"), toy_tokenizer()), ["ba"])


@torch.no_grad()
def test_exports_stay_sparse(tmp_path: Path) -> None:
    module = tiny_model("llama")
    make_sparse(module, 0.5)
    model = wrap(module, toy_tokenizer())
    folder = export(model, [Head(1, 0)], tmp_path / "out")
    again = load_model(folder)
    assert again.kernel == "sparse, gate bias 0.5"
    gates = torch.from_numpy(model.layout.gates(off=[Head(1, 0)]))[None]
    with gating(module, model.sites, gates):
        expected = module(input_ids=ids()).logits
    torch.testing.assert_close(again.module(input_ids=ids()).logits, expected, atol=1e-4, rtol=1e-4)


def test_a_sparse_model_is_not_made_sparse_again() -> None:
    module = tiny_model("llama")
    make_sparse(module)
    with pytest.raises(HeadcountError, match="sparse attention already"):
        make_sparse(module)
