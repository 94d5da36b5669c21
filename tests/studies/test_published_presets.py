"""Each preset `paper` runs from its command to its figure.

Models are tiny, of random weights and exactly the published architectures; data are files in the
published layouts, or come from a stand-in for the `datasets` library. Only numbers are smaller.
"""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from studies import published_data as data

from headcount import HeadcountError
from headcount.cli import main
from headcount.metrics import similarity
from headcount.studies import STUDIES, study_kind
from headcount.studies.verify import verify

FOUR = ("masked-heads", "heads-kept", "head-roles", "token-insertion")


class Letters:
    """Takes the place of the sentence encoder, whose weights are not at hand: counts letters."""

    def embed(self, texts: list[str]) -> np.ndarray:
        counts = np.array([[t.lower().count(c) + 1e-6 for c in "abcdefghijk 123"] for t in texts])
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(similarity, "_loaded", Letters)


def run(study: str, *words: str) -> dict[str, Any]:
    """Run the preset; returns what run.json says."""
    assert main(["run", study, "--preset", "paper", "--quiet", "--no-store", *words]) == 0
    return record(Path("out") / study)


def record(folder: Path) -> dict[str, Any]:
    assert (folder / "figure.png").stat().st_size > 1000
    found: dict[str, Any] = json.loads((folder / "run.json").read_text())
    assert found["settings"]["preset"] == "paper"
    inferred = study_kind(found["study"]).preset("paper").inferred
    assert found["notes"][-len(inferred) :] == [f"† {text}" for text in inferred]
    assert not verify(folder).differences
    return found


def test_masked_heads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two models, one after the other; CogQA with the published split; scored as published."""
    models = [data.model_folder(tmp_path / name, "llama", seed=s) for s, name in enumerate("ab")]
    assert main(["run", "masked-heads", "--preset", "paper", "--model", models[0]]) == 2
    assert "balanced_cot_train_data.json here: download" in capsys.readouterr().err
    data.write_list(Path("balanced_cot_train_data.json"), data.cogqa_records(0, 9))
    data.write_list(Path("balanced_cot_test_data.json"), data.cogqa_records(50, 6))
    small = ["max_new_tokens=3", "probe:epochs=2", "probe:seeds=1", "probe:max_new_tokens=3"]
    words = ["--functions", "retrieval", "math", "--counts", "1", "2", "--seeds", "2"]
    words += ["--anywhere", "3", "--dtype", "float32", "--set", *small]
    for model in models:
        words += ["--model", model]
    assert main(["run", "masked-heads", "--preset", "paper", "--quiet", "--no-store", *words]) == 0
    for name in ("a", "b"):
        found = record(Path("out/masked-heads") / name)
        assert found["settings"]["scope"] == "decode"
        assert found["settings"]["task"]["form"] == "json"
        assert found["facts"]["metrics"][0]["key"] == "published_accuracy"
        texts = " ".join(found["notes"])
        assert "balanced_cot_test_data.json and balanced_cot_train_data.json" in texts
        with Path("out/masked-heads", name, "curves.csv").open() as file:
            assert {row["n"] for row in csv.DictReader(file)} == {"6"}  # the test file's questions


def test_heads_kept(tmp_path: Path) -> None:
    """Two pairs of models in one figure: each panel shows its own."""
    models = [
        data.model_folder(tmp_path / "gpt2", "gpt2"),
        data.sparse_folder(tmp_path / "sparse-gpt2", "gpt2"),
        data.model_folder(tmp_path / "olmo", "olmo"),
        data.sparse_folder(tmp_path / "sparse-olmo", "olmo"),
    ]
    words = ["--n", "6", "--ranked", "4", "--pool", "60", "--seeds", "1", "--counts", "0", "2", "8"]
    for model in models:
        words += ["--model", model]
    found = run("heads-kept", *words)
    assert found["facts"]["shown"] == {
        "greater-than": ["gpt2", "sparse-gpt2"],
        "ioi": ["gpt2", "sparse-gpt2"],
        "docstring": ["olmo", "sparse-olmo"],
        "ioi-long": ["olmo", "sparse-olmo"],
    }
    claims = json.loads(Path("out/heads-kept/claims.json").read_text())
    texts = " ".join(claim["claim"] for claim in claims)
    assert "few heads of sparse-gpt2" in texts
    assert "few heads of sparse-olmo" in texts


def test_heads_kept_asks_for_the_sparse_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "heads-kept", "--preset", "paper"]) == 2
    assert "There is no sparse-gpt2 here: make it" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["files", "hub"])
def test_head_roles(tmp_path: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three data sets in one run, each with settings of its own, from files or from the hub."""
    several = ("1b", "3b", "3b-instruct", "8b") if source == "files" else ("1b",)
    models = [data.model_folder(tmp_path / n, "llama", seed=s) for s, n in enumerate(several)]
    words = ["--n", "3", "--counts", "0", "2", "4", "--seeds", "2", "--updates", "2"]
    words += ["--batch", "3", "--dtype", "float32"]
    kinds = ("linguistic_mappings", "tense", "subject_verb_agreement")
    asked: list[Any] = []
    if source == "files":
        for kind in kinds:
            rows = data.big_bench_rows(kind, 40)
            data.write_lines(tmp_path / "big" / f"{kind}.jsonl", rows)
        words += ["--set", f"big-bench:path={tmp_path / 'big'}"]
        csqa = data.write_lines(tmp_path / "csqa.jsonl", data.commonsense_rows(110))
        maths = data.write_lines(tmp_path / "math.jsonl", data.openmath_rows(140))
        words += [f"commonsense-qa:path={csqa}", f"openmath:path={maths}", "openmath:shortest=120"]
    else:
        monkeypatch.setitem(sys.modules, "datasets", hub(asked))
    for model in models:
        words += ["--model", model]
    found = run("head-roles", *words)
    panels = [(panel["model"], panel["task"]) for panel in found["facts"]["panels"]]
    rows = ("Syntax", "Common Sense", "Math")
    assert panels == [(name, row) for name in several for row in rows]
    verdicts = {c["published"]: c["verdict"] for c in read_claims("head-roles")}
    assert any("Math" in str(text) for text in verdicts)  # judged by the names of the rows
    if source == "hub":
        names = [(args[0], args[1], how["split"]) for args, how in asked]
        big = [("tasksource/bigbench", kind, "train") for kind in kinds]
        assert names == [
            *big,
            ("tau/commonsense_qa", None, "train"),
            ("nvidia/OpenMathInstruct-2", None, "train_1M"),
        ]


def hub(asked: list[Any]) -> ModuleType:
    """A stand-in for the library `datasets`, which remembers what was asked."""

    def load_dataset(*args: Any, **how: Any) -> list[dict[str, Any]]:
        asked.append((args, how))
        if "bigbench" in args[0]:
            return data.big_bench_rows(args[1], 40)
        if "commonsense" in args[0]:
            return data.commonsense_rows(110)
        return data.openmath_rows(140)

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    return module


def read_claims(study: str) -> list[dict[str, Any]]:
    claims: list[dict[str, Any]] = json.loads(Path(f"out/{study}/claims.json").read_text())
    return claims


def test_token_insertion(tmp_path: Path) -> None:
    """Three groups of bars; a model that samples by its own settings is asked several times."""
    models = [
        data.model_folder(tmp_path / "qwen-1.5b", "qwen2"),
        data.model_folder(tmp_path / "qwen-7b", "qwen2", seed=1),
        data.model_folder(tmp_path / "llama-8b", "llama", seed=2, sampled=True),
    ]
    path = data.write_lines(tmp_path / "math.jsonl", data.math_500_rows(12))
    words = ["--prompts", "4", "--set", f"math-500:path={path}", "max_new_tokens=3", "seeds=2"]
    for model in models:
        words += ["--model", model]
    found = run("token-insertion", *words, "--dtype", "float32")
    assert list(found["facts"]["models"]) == ["qwen-1.5b", "qwen-7b", "llama-8b"]
    notes = " ".join(found["notes"])
    assert "qwen-7b decodes greedily, as its own settings say." in notes
    assert "llama-8b draws tokens by its own settings: temperature 0.6, top_p 0.9." in notes
    assert "each model's own decoding settings, 1 to 2 runs" in found["captions"]["figure"]
    assert found["settings"]["accuracy"]["key"] == "published_maths"


def test_presets_name_models_and_what_was_inferred(capsys: pytest.CaptureFixture[str]) -> None:
    for study in FOUR:
        preset = STUDIES[study].presets["paper"]
        assert preset.models
        assert preset.inferred
        with pytest.raises(SystemExit):
            main(["run", study, "--help"])
        told = " ".join(capsys.readouterr().out.split())
        assert all(model in told for model in preset.models)
        assert all(f"† {text}" in told for text in preset.inferred)


def test_settings_of_a_task_that_is_not_there_are_refused() -> None:
    with pytest.raises(HeadcountError, match='the task "maths", which this run of head-roles'):
        study_kind("head-roles").configure("quick", task_settings={"maths": {"n": 3}})
    kind = study_kind("head-roles")
    own = {"bos": "auto", "openmath": {"path": "FILE"}}
    with pytest.raises(HeadcountError, match="Cannot read the task file FILE"):
        kind.configure("paper", task_settings=own, tasks=("openmath",))


def test_gated_models_and_data_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(*args: Any, **how: Any) -> None:
        raise RuntimeError("Dataset 'me/mine' is a gated dataset on the Hub.")

    module = ModuleType("datasets")
    module.load_dataset = load_dataset  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "datasets", module)
    from headcount.tasks.hub import rows_of

    with pytest.raises(HeadcountError, match="hf auth login"):
        list(rows_of("me/mine", "rows"))
