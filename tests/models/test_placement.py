"""Where weights go, with accelerate and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.checkpoints import save_checkpoint
from texts import answers
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Store, evaluate, load_model, rank
from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.plan import Plan
from headcount.engine.measure.runner import Runner
from headcount.lab import Lab
from headcount.models import load
from headcount.models import load_options as options
from headcount.models.model import Model
from headcount.tasks import encode

MAPS: dict[str, Any] = {
    "auto": "auto",
    "some layers on disk": {
        "model.embed_tokens": "cpu",
        "model.layers.0": "cpu",
        "model.layers.1": "disk",
        "model.layers.2": "disk",
        "model.norm": "cpu",
        "model.rotary_emb": "cpu",
        "lm_head": "disk",
    },
}


@pytest.mark.parametrize("installed", [True, False])
def test_weights_go_straight_to_a_gpu_where_accelerate_is(
    installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = torch.device("cuda", 0)
    monkeypatch.setattr(options, "check_device", lambda device: place)
    monkeypatch.setattr(options, "has_accelerate", lambda: installed)
    expected: dict[str, Any] = {"device_map": {"": place}} if installed else {}
    assert options.check_placement(None, None) == expected


def test_without_accelerate_they_are_moved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[Any] = []
    usual = torch.nn.Module.to

    def noting(self: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
        moved.extend(args)
        return usual(self, *args, **kwargs)

    folder = save_checkpoint(tmp_path / "tiny")
    monkeypatch.setattr(load, "has_accelerate", lambda: False)
    monkeypatch.setattr(torch.nn.Module, "to", noting)
    load.load_pretrained(folder, device="cpu")
    assert moved[-1] == torch.device("cpu")


# Device maps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model("llama", num_hidden_layers=3).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plain(folder: Path) -> Model:
    return load_model(folder, device="cpu")


@pytest.fixture(scope="module", params=MAPS)
def mapped(folder: Path, request: pytest.FixtureRequest) -> Model:
    return load_model(folder, device_map=MAPS[request.param])


def test_a_mapped_model_is_the_same_model(plain: Model, mapped: Model) -> None:
    if torch.accelerator.is_available():
        pytest.skip("an accelerator takes what the map leaves free")
    assert mapped.identity == plain.identity
    assert mapped.fast_paths == plain.fast_paths


@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_gates_act_as_on_one_device(
    plain: Model, mapped: Model, ablation: str, tmp_path: Path
) -> None:
    total = plain.layout.total
    gates = np.concatenate([np.ones((1, total)), 1 - np.eye(total)])
    task = toy_task(16)
    expected = evaluate(plain, task, gates, ablation=ablation, metric="logprob").values
    with Store(tmp_path / "store.sqlite") as store:
        found = evaluate(mapped, task, gates, ablation=ablation, lab=Lab(store), metric="logprob")
    np.testing.assert_allclose(found.values, expected, atol=1e-4)


def test_derivatives_and_texts(plain: Model, mapped: Model) -> None:
    task = toy_task(12)
    expected, found = (rank(m, task, "attribution") for m in (plain, mapped))
    np.testing.assert_allclose(found.values, expected.values, atol=1e-4)
    gates = 1 - np.eye(plain.layout.total)[:4]
    texts = [answers(m, task, gates).texts.tolist() for m in (plain, mapped)]
    assert texts[0] == texts[1]


def test_spread_blocks_are_not_compiled(plain: Model, folder: Path) -> None:
    spread = load_model(folder, device_map=MAPS["some layers on disk"])
    assert (plain.spread, spread.spread) == (False, True)
    plan = Plan(60, plain.fast_paths, fold=True, compile=True)
    for model in (plain, spread):
        batch = make_batches(encode(toy_task(2), model.tokenizer), tokens=60)[0]
        assert Runner(model, batch, plan, None).compile == (not model.spread)
