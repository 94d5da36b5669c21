"""Runs that meet another run, a full disk or a signal: each is told, and nothing is lost."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import safetensors.torch
import torch
from corpus import tiny, write_text
from safetensors import SafetensorError
from test_sparsify import SMALL, saved

from headcount import HeadcountError
from headcount.cli import main
from headcount.models import model as models
from headcount.sparse import checkpoint
from headcount.sparse.sparsify import sparsify
from headcount.sparse.text import load_text
from headcount.sparse.train import Run
from headcount.system import files
from headcount.system.folders import locked_folder

QUIET: dict[str, Any] = {"progress": False, "say": lambda _: None}
OPTIONS = ["--steps", "20", "--block", "16", "--batch", "4", "--own", "0", "--rank", "4"]
OPTIONS += ["--held-out", "10", "--constraint-articles", "10", "--quiet", "--set", "check_every=4"]
OPTIONS += ["evaluate_every=4", "constraint_blocks=8", "final_blocks=8"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    return write_text(tmp_path / "text.txt")


@pytest.fixture
def command(tmp_path: Path, text: Path) -> Callable[[Path], int]:
    """Run `headcount sparsify` on a tiny model, into this folder."""
    base = saved(tmp_path)
    words = ["sparsify", "--model", str(base), "--text", str(text), *OPTIONS]
    return lambda out: main([*words, "--out", str(out)])


def test_a_second_run_in_the_same_folder_is_refused_before_it_loads_a_model(
    tmp_path: Path,
    command: Callable[[Path], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def load_model(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("loaded")

    monkeypatch.setattr(models, "load_model", load_model)
    out = tmp_path / "out"
    out.mkdir()
    with locked_folder(out):
        assert command(out) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"headcount: Another run of headcount is at work in {out}: ")
    assert not list(out.iterdir())


@pytest.mark.parametrize(("folder", "control"), [("out", None), ("other", "out/control")])
def test_a_second_run_leaves_the_first_alone(
    tmp_path: Path, text: Path, folder: str, control: str | None
) -> None:
    """The second starts while the first trains its control."""
    refused: list[str] = []
    shared = control and tmp_path / control

    def second(told: str) -> None:
        if told.startswith("control") and not refused:
            with pytest.raises(HeadcountError, match="Another run") as caught:
                sparsify(tiny(), text, tmp_path / folder, SMALL, control=shared, **QUIET)
            refused.append(str(caught.value))

    assert sparsify(tiny(), text, tmp_path / "out", SMALL, progress=False, say=second)
    assert f"{tmp_path / (control or folder)}:" in refused[0]


def test_runs_share_a_finished_control_at_the_same_time(tmp_path: Path, text: Path) -> None:
    outcomes = []
    strict = replace(SMALL, constraint="original")
    shared = tmp_path / "shared"

    def second(told: str) -> None:
        if told.startswith("sparse") and not outcomes:
            other = tmp_path / "other"
            outcomes.append(sparsify(tiny(), text, other, strict, control=shared, **QUIET))

    out = tmp_path / "out"
    assert sparsify(tiny(), text, out, SMALL, control=shared, progress=False, say=second)
    assert outcomes[0] is not None


def test_a_control_in_the_folder_of_the_run_itself(tmp_path: Path, text: Path) -> None:
    short = replace(SMALL, steps=4)
    assert sparsify(tiny(), text, tmp_path, short, control=tmp_path / "x" / "..", **QUIET)


def full(tensors: Any, path: Path) -> NoReturn:
    """What safetensors does on a full disk."""
    Path(path).write_bytes(b"half")
    raise SafetensorError("Error while serializing: I/O error: No space left (os error 28)")


@pytest.mark.parametrize(
    ("saves", "steps", "folder"),
    [(1, 0, "out/control"), (5, 4, "out/control"), (30, 20 + 8, "out"), (43, 20 + 20, "out")],
)
def test_a_full_disk_is_told_and_leaves_the_checkpoints_alone(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, saves: int, steps: int, folder: str
) -> None:
    """The disk is full at a checkpoint of the control, of the sparse run, or at the result."""
    save = safetensors.torch.save_file
    out, calls = tmp_path / "out", []

    def save_file(tensors: Any, path: Path) -> None:
        calls.append(path)
        (full if len(calls) == saves else save)(tensors, path)

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.torch, "save_file", save_file)
        with pytest.raises(HeadcountError, match=f"The disk of .*/{folder} is full: free some"):
            sparsify(tiny(), text, out, SMALL, save_seconds=-1, **QUIET)  # saves every step
    assert not [path for path in out.rglob("*") if path.name.endswith(".part")]
    assert not (out / "adapters-1.safetensors").exists()
    states = [json.loads(state.read_text()) for state in out.rglob("state.json")]
    assert sum(state["step"] for state in states) == steps
    assert sparsify(tiny(), text, out, SMALL, **QUIET)


def test_adapters_replace_old_ones_only_as_whole_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "adapters-1.safetensors"
    checkpoint.write_adapters(tmp_path, {"a.up": torch.ones(2, 2)})
    before = path.read_bytes()
    monkeypatch.setattr(safetensors.torch, "save_file", full)
    with pytest.raises(SafetensorError):
        checkpoint.write_adapters(tmp_path, {"a.up": torch.zeros(2, 2)})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device")
def test_a_full_disk_while_the_model_writes_is_told(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's own error gives no cause, so the file must be written without NumPy."""
    control, link, model = tmp_path / "out" / "control", tmp_path / "full", tiny()
    load_text(text, model.tokenizer, 16, 10, 10, keep=control, progress=False)

    def mkstemp(**_: Any) -> tuple[int, str]:
        link.symlink_to("/dev/full")
        return os.open(os.devnull, os.O_RDONLY), str(link)

    monkeypatch.setattr(files.tempfile, "mkstemp", mkstemp)
    with pytest.raises(HeadcountError, match=r"The disk of .*control is full"):
        sparsify(model, text, tmp_path / "out", replace(SMALL, own=0.5), **QUIET)


@pytest.mark.parametrize(
    ("name", "label", "step", "early"),
    [
        ("SIGINT", "control", 6, True),
        ("SIGTERM", "control", 8, False),
        ("SIGHUP", "sparse", 7, False),
        ("SIGINT", "sparse", 20, True),
    ],
)
def test_a_run_that_was_interrupted_goes_on_to_the_same_bits(
    tmp_path: Path,
    command: Callable[[Path], int],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    label: str,
    step: int,
    early: bool,
) -> None:
    """The signal comes in the middle of a step: before its update, or before it is counted."""
    whole, parts, number = tmp_path / "whole", tmp_path / "parts", getattr(signal, name)
    assert command(whole) == 0
    one_step, steps = Run._train, []

    def interrupted(run: Run, ids: Any) -> Any:
        now = run.label == label and run.step + 1 == step
        if now and early:
            os.kill(os.getpid(), number)
        loss = one_step(run, ids)
        if now and not early:
            os.kill(os.getpid(), number)
        return loss

    with monkeypatch.context() as patch:
        patch.setattr(Run, "_train", interrupted)
        capsys.readouterr()
        assert command(parts) == 128 + number
    out, err = capsys.readouterr()
    assert "Interrupted: the current step is finished and saved first" in out
    assert "what was measured is kept" in err
    state = parts / ("control" if label == "control" else "work/sparse") / "state.json"
    assert json.loads(state.read_text())["step"] == step
    monkeypatch.setattr(
        Run, "_train", lambda run, ids: steps.append(run.label) or one_step(run, ids)
    )
    assert command(parts) == 0
    assert steps.count(label) == 20 - step
    for file in ("adapters-1.safetensors", "log.csv", "control-log.csv"):
        assert (parts / file).read_bytes() == (whole / file).read_bytes()
