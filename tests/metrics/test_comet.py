"""COMET's program is played by a script with its options; the last test runs the real one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from headcount.errors import HeadcountError
from headcount.metrics import METRICS, Written, comet_metric, get_metric
from headcount.metrics.comet import MODEL

# The options of comet-score of unbabel-comet 2.2.7 that count here, and its way with files. The
# score tells which text came in which place: source, translation and reference by their lengths.
SCRIPT = f"""#!{sys.executable}
import argparse, json, os, sys
parser = argparse.ArgumentParser()
parser.add_argument("-s", "--sources", required=True)
parser.add_argument("-t", "--translations", nargs="+", required=True)
parser.add_argument("-r", "--references", required=True)
parser.add_argument("--gpus", type=int, default=1)
parser.add_argument("--quiet", action="store_true")
parser.add_argument("--only_system", action="store_true")
parser.add_argument("--to_json", default="")
parser.add_argument("--model", default="Unbabel/wmt22-comet-da")
given = parser.parse_args()
lines = lambda path: [line.strip() for line in open(path, encoding="utf-8").readlines()]
columns = [lines(p) for p in (given.sources, given.translations[0], given.references)]
rows = [dict(zip(("src", "mt", "ref"), row)) for row in zip(*columns)]
with open(os.environ["FAKE_LOG"], "a", encoding="utf-8") as log:
    log.write(json.dumps([given.model, given.gpus, rows]) + "\\n")
for row in rows:
    row["COMET"] = len(row["src"]) + len(row["mt"]) / 100 + len(row["ref"]) / 10000
{{}}
with open(given.to_json, "w", encoding="utf-8") as out:
    json.dump({{{{given.translations[0]: rows}}}}, out, ensure_ascii=False, indent=4)
print(given.translations[0] + "\\tscore: 0.5")
"""

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put a comet-score on the PATH that does `twist` before it writes its scores."""
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    for name in ("HEADCOUNT_COMET", "HEADCOUNT_COMET_MODEL"):
        monkeypatch.delenv(name, raising=False)

    def write(twist: str = "", name: str = "bin/comet-score") -> Path:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(SCRIPT.format(twist))
        path.chmod(0o755)
        return path

    return write


def calls(tmp_path: Path) -> list[tuple[str, int, list[dict[str, str]]]]:
    """Model, GPUs and rows of each call."""
    text = (tmp_path / "log").read_text(encoding="utf-8")
    return [tuple(json.loads(line)) for line in text.splitlines()]


WRITTEN = Written(
    texts=["a masked", "a\nmasked\r\n", "", "a masked", "größer\u2028als"],
    golds=["gold", "gold", " ", "other", "gold"],
    whole=["whole one", "whole one", "\n", "whole one", "-"],
    prompts=["?"] * 5,
)


def test_who_is_who(install: Install, tmp_path: Path) -> None:
    install()
    values = get_metric("comet").function(WRITTEN)
    ((model, gpus, rows),) = calls(tmp_path)
    assert (model, gpus) == (MODEL, 1)
    assert rows == [  # each distinct triple once, and one line for each text
        {"src": "gold", "mt": "a masked", "ref": "whole one"},
        {"src": "N/A", "mt": "N/A", "ref": "N/A"},
        {"src": "other", "mt": "a masked", "ref": "whole one"},
        {"src": "gold", "mt": "größer als", "ref": "-"},
    ]
    np.testing.assert_allclose(values, [4.0809, 4.0809, 3.0303, 5.0809, 4.1001])
    assert list((tmp_path / "temporary").iterdir()) == []


def test_nothing_to_score_starts_nothing(install: Install) -> None:
    assert get_metric("comet").function(Written([], [], [], [])).shape == (0,)


def test_only_lines_of_text_reach_the_program(install: Install, tmp_path: Path) -> None:
    install()
    texts = ["$(touch evil)", "; touch evil", "--model evil", "a\x85b\x0bc\x1cd", "\ud800"]
    written = Written(texts, texts, texts, texts)
    assert len(get_metric("comet").function(written)) == 5
    ((_, _, rows),) = calls(tmp_path)
    assert [row["mt"] for row in rows] == [*texts[:3], "a b c d", "?"]
    assert not Path("evil").exists()


@pytest.mark.parametrize("name", ["bin/comet-score", "other place/my comet"])
def test_the_program_is_where_the_variable_says(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    path = install(name=name)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("HEADCOUNT_COMET", str(path))
    get_metric("comet").function(WRITTEN)
    monkeypatch.setenv("HEADCOUNT_COMET", f"'{path}' --gpus 0")
    get_metric("comet").function(WRITTEN)
    monkeypatch.chdir(path.parent)
    monkeypatch.setenv("HEADCOUNT_COMET", f"./{path.name}")
    get_metric("comet").function(WRITTEN)
    assert [gpus for _, gpus, _ in calls(tmp_path)] == [1, 0, 1]


def test_the_name_is_that_of_the_model_used(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    default = get_metric("comet")
    assert default.name == "COMET (wmt22-comet-da)"
    assert default.key == "comet"
    assert not default.binary
    monkeypatch.setenv("HEADCOUNT_COMET_MODEL", "Unbabel/eamt22-cometinho-da")
    small = get_metric("comet")
    assert small.name == "COMET (eamt22-cometinho-da)"
    folder = tmp_path / "mine"
    (folder / "checkpoints").mkdir(parents=True)
    checkpoint = folder / "checkpoints" / "model.ckpt"
    checkpoint.write_bytes(b"weights")
    monkeypatch.chdir(tmp_path)
    for spec in ("mine", "mine/checkpoints/model.ckpt", str(checkpoint)):
        assert comet_metric(spec).name == "COMET (local checkpoint mine)"
        comet_metric(spec).function(WRITTEN)
    default.function(WRITTEN)
    small.function(WRITTEN)
    used = [model for model, _, _ in calls(tmp_path)]
    assert used == [str(checkpoint)] * 3 + [MODEL, "Unbabel/eamt22-cometinho-da"]
    kept = tmp_path / "models--Unbabel--wmt22-comet-da" / "snapshots" / "abc" / "checkpoints"
    kept.mkdir(parents=True)
    (kept / "model.ckpt").touch()
    assert comet_metric(str(kept.parent)).name == "COMET (wmt22-comet-da, local copy)"


def test_identity_is_program_and_model(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = install()
    first = comet_metric().identity()
    assert first.endswith(f" {MODEL}")
    assert comet_metric("Unbabel/eamt22-cometinho-da").identity() != first
    install("print('another program')")
    assert comet_metric().identity() != first
    (tmp_path / "lib/python3.11/site-packages/unbabel_comet-2.2.7.dist-info").mkdir(parents=True)
    assert comet_metric().identity() == f"unbabel_comet-2.2.7 {MODEL}"
    monkeypatch.setenv("HEADCOUNT_COMET", f"{path} --gpus 0")
    assert comet_metric().identity() == f"unbabel_comet-2.2.7 --gpus 0 {MODEL}"
    checkpoint = tmp_path / "model.ckpt"
    found = set()
    for weights in (b"some weights", b"other weights"):
        checkpoint.write_bytes(weights)
        found.add(comet_metric(str(checkpoint)).identity())
    assert len(found) == 2
    assert not any(str(tmp_path) in identity for identity in found)


# What goes wrong


def refused(metric: str = "comet") -> str:
    with pytest.raises(HeadcountError) as caught:
        get_metric(metric).function(WRITTEN)
    return str(caught.value)


def test_not_installed(install: Install) -> None:
    words = refused()
    assert words.startswith("COMET is not installed here: python3 -m venv comet && ")
    assert "pip install unbabel-comet" in words
    assert "HEADCOUNT_COMET" in words
    with pytest.raises(HeadcountError, match="not installed"):
        get_metric("comet").identity()
    assert "comet" in METRICS  # listed all the same


def test_no_such_program(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADCOUNT_COMET", "/nowhere/comet-score --gpus 0")
    assert "names /nowhere/comet-score, but there is no such program" in refused()
    monkeypatch.setenv("HEADCOUNT_COMET", "comet-score 'open")
    assert "not a command (No closing quotation)" in refused()


def test_not_executable(install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = install()
    path.chmod(0o644)
    for chosen in (path, tmp_path):
        monkeypatch.setenv("HEADCOUNT_COMET", str(chosen))
        assert f"names {chosen}, which is not executable" in refused()


def test_executable_but_no_program(install: Install) -> None:
    install().write_bytes(b"\x00\x01 neither script nor binary")
    assert "Cannot start" in refused()


def test_fails_halfway(install: Install, tmp_path: Path) -> None:
    twist = """
open(given.to_json, "w").write('{"t": [{"COMET": 0.5}')
print("loading", file=sys.stderr)
raise KeyError("Model 'x' not supported by COMET.")
"""
    install(twist)
    words = refused()
    assert words == (
        "COMET failed and scored nothing (KeyError: \"Model 'x' not supported by COMET.\")."
    )
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize(
    ("twist", "words"),
    [
        ("sys.exit(3)", "exit code 3, without a message"),
        ("print('only this', file=sys.stdout); sys.exit(1)", "(only this)"),
        ("sys.stderr.buffer.write(b'\\xff bad'); sys.exit(1)", "bad)"),
        ("os.kill(os.getpid(), 9)", "killed by signal 9"),
    ],
)
def test_fails_in_other_ways(install: Install, twist: str, words: str) -> None:
    install(twist)
    assert words in refused()


@pytest.mark.parametrize(
    "twist",
    [
        "sys.exit(0)",
        "open(given.to_json, 'w').write('garbage'); sys.exit(0)",
        "open(given.to_json, 'wb').write(b'\\xff\\xfe'); sys.exit(0)",
        "open(given.to_json, 'w').write('[1, 2]'); sys.exit(0)",
        "open(given.to_json, 'w').write('{}'); sys.exit(0)",
        "open(given.to_json, 'w').write('{\"a\": 1}'); sys.exit(0)",
        "open(given.to_json, 'w').write('{\"a\": [1, 2]}'); sys.exit(0)",
        "del rows[1]['COMET']",
    ],
)
def test_writes_garbage(install: Install, twist: str) -> None:
    install(twist)
    assert "wrote no scores that headcount can read" in refused()


@pytest.mark.parametrize(("twist", "count"), [("del rows[0]", 3), ("rows += rows", 8)])
def test_wrong_number_of_scores(install: Install, twist: str, count: int) -> None:
    install(twist)
    assert f"gave {count} scores for 4 texts, so none of them is used" in refused()


@pytest.mark.parametrize("score", ["float('nan')", "float('inf')", "None", "'0.5'", "True"])
def test_scores_that_are_no_numbers(install: Install, score: str) -> None:
    install(f"rows[2]['COMET'] = {score}")
    assert "not finite, so none of them is used" in refused()


def test_no_such_checkpoint(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    for spec in ("./nothing", "nothing.ckpt", str(tmp_path)):
        monkeypatch.setenv("HEADCOUNT_COMET_MODEL", spec)
        assert f"There is no COMET checkpoint {spec}" in refused()


# The real program


@pytest.mark.skipif(
    "HEADCOUNT_TEST_COMET" not in os.environ,
    reason="HEADCOUNT_TEST_COMET does not name a working comet-score",
)
def test_the_real_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint of random weights: its scores mean nothing, but they are COMET's own."""
    program = Path(os.environ["HEADCOUNT_TEST_COMET"])
    python = program.with_name("python")
    recipe = Path(__file__).with_name("tiny_comet.py")
    subprocess.run([python, recipe, tmp_path / "tiny"], check=True, capture_output=True)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HEADCOUNT_COMET", f"{program} --gpus 0")
    monkeypatch.setenv("HEADCOUNT_COMET_MODEL", str(tmp_path / "tiny"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    metric = get_metric("comet")
    assert metric.name == "COMET (local checkpoint tiny)"
    assert metric.identity().startswith("unbabel_comet-2")
    values = metric.function(WRITTEN)
    # The same triples by COMET's own Python interface, in single precision.
    script = [python, recipe, tmp_path / "tiny", "gold|a masked|whole one", "N/A|N/A|N/A"]
    done = subprocess.run(script, check=True, capture_output=True, text=True)
    first, empty = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_allclose(values[[0, 1]], first, atol=5e-3)  # the program halves precision
    np.testing.assert_allclose(values[2], empty, atol=5e-3)
    assert abs(first - empty) > 0.02
    assert len(set(values.tolist())) == 4
    broken = tmp_path / "broken" / "checkpoints"
    broken.mkdir(parents=True)
    (broken / "model.ckpt").write_bytes(b"no checkpoint")
    monkeypatch.setenv("HEADCOUNT_COMET_MODEL", str(broken / "model.ckpt"))
    assert "hparams.yaml file is missing" in refused()
