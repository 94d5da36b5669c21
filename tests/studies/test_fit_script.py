"""scripts/fit_role_gates.py, as on a machine that has little more than torch and transformers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model

from headcount import run_study
from headcount.models.model import load_model
from headcount.rankings.causal_gates.result import CausalGates

ROOT = Path(__file__).resolve().parents[2]

# Whatever headcount itself imports of these fails; transformers may have what it needs.
BARE = """
import builtins, importlib.util, runpy, sys
missing = {"gguf", "platformdirs", "accelerate", "peft", "datasets", "pyarrow", "pip"}
usual, found = builtins.__import__, importlib.util.find_spec
def without(name, globals=None, *rest, **more):
    asks = (globals or {}).get("__name__", "")
    if name.split(".")[0] in missing and asks.startswith("headcount"):
        raise ModuleNotFoundError(f"No module named {name!r}")
    return usual(name, globals, *rest, **more)
builtins.__import__ = without
importlib.util.find_spec = lambda name, *rest: None if name in missing else found(name, *rest)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "some-folder"
    tiny_model("llama", vocab_size=2000, max_position_embeddings=1024).save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return folder


def test_gates_are_fitted_with_little_installed(folder: Path, tmp_path: Path) -> None:
    script = [sys.executable, "-c", BARE, str(ROOT / "scripts" / "fit_role_gates.py")]
    options = ["--model", str(folder), "--name", "tiny", "--tasks", "syntax", "--seeds", "2"]
    options += ["--updates", "2", "--batch", "8", "--out", "gates", "--device", "cpu"]
    there = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(tmp_path)}
    for name in ("HEADCOUNT_CACHE", "XDG_CACHE_HOME"):
        there.pop(name, None)
    found = subprocess.run(
        [*script, *options], capture_output=True, text=True, cwd=tmp_path, env=there, check=False
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("tiny on cpu, weights ")
    gates = CausalGates.load(tmp_path / "gates" / "tiny" / "syntax.json")
    assert (gates.seeds, gates.parameters["model"]) == (2, "tiny")
    model = load_model(folder)
    assert gates.parameters["weights"] == model.identity["weights"]
    study = run_study(
        "head-roles",
        model,
        tasks=("syntax",),
        gates=str(tmp_path / "gates" / "tiny"),
        counts=(1,),
        n=4,
    )
    assert {row["task"] for row in study.rows} == {"Syntax"}
    # at chance, what is resampled, what is held fixed, another name, few updates, and our reading
    assert len(study.notes) == 6
