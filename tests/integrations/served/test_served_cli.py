"""The command line on a server of adapters: scores, adapters and a curve, with no model loaded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from test_served import BASE
from tiny import tiny_model
from tiny_server import TinyServer, running
from toy import toy_task, toy_tokenizer

from headcount.cli import main
from headcount.models import model


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a checkpoint and examples, in which nothing can be loaded."""
    monkeypatch.chdir(tmp_path)
    tiny_model("llama", num_hidden_layers=3).save_pretrained("base")
    toy_tokenizer().save_pretrained("base")
    lines = [
        {"prompt": example.prompt, "target": example.target, "content": example.content}
        for example in toy_task(n=8)
    ]
    Path("task.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def load_model(*_: Any, **__: Any) -> None:
        raise AssertionError("loaded")

    monkeypatch.setattr(model, "load_model", load_model)
    return tmp_path


@pytest.fixture
def server(folder: Path) -> Iterator[TinyServer]:
    (folder / "adapters").mkdir()
    module = tiny_model("llama", num_hidden_layers=3)
    with running(TinyServer(BASE, module, toy_tokenizer(), folder / "adapters")) as served:
        yield served


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main([*words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


EXPORT = ("export", "--as", "adapter", "--model", "base", "--base", BASE, "--unloaded")


def test_a_curve_without_the_model(
    server: TinyServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = answer(capsys, *EXPORT, "--heads", "0.1", "--heads", "1.1 2.3", "--out", "adapters")
    assert [one["name"] for one in made["adapters"]] == ["off-0_1", "off-1_1-2_3"]
    assert made["adapters"][1]["heads"] == {"1.1": 0.0, "2.3": 0.0}
    there = ("--model", "base", "--task", "task.jsonl", "--no-store", "--server", server.url)
    one = answer(capsys, "ablate", "--heads", "1.1", "2.3", "--metric", "logprob", *there)
    assert one["2 off"]["value"] < 0
    # A ranking that the server makes: adapters are written as it asks for them.
    settings = ("--ranking", "ablation", "--ranking-set", "metric=logprob", "--write-adapters")
    answer(capsys, "rank", *settings, *there, "--out", "scores.json")
    cut = ("--scores", "scores.json", "--counts", "2", "--series", "top", "random", "--seeds", "2")
    made = answer(capsys, *EXPORT, *cut, "--out", "adapters")
    names = [one["name"] for one in made["adapters"]]
    assert {"top-2", "random-2-0", "random-2-1"} <= {*names}
    assert len(names) == 1 + 1 + 11 + 3  # two by hand, eleven more single heads, the curve's
    server.asked.clear()
    curve = ("--ranking", "scores.json", "--counts", "0", "2", "--series", "top", "random")
    rows = answer(capsys, "curve", *curve, "--seeds", "2", "--metric", "logprob", *there)
    assert {(row["series"], row["count"]) for row in rows} == {
        (series, count) for series in ("top", "random") for count in (0, 2)
    }
    asked = {body["model"] for body in server.asked}
    assert asked == {BASE, "top-2", "random-2-0", "random-2-1"}


def test_refused_before_anything_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export = ("export", "--as", "adapter", "--out", "adapters")
    for words, text in (
        ((*export,), "Give the heads of each adapter"),
        ((*export, "--heads", "0.1", "--scores", "s.json"), "or a file of scores"),
        ((*export, "--heads", "0.1", "--counts", "4"), "give --scores as well"),
        ((*export, "--heads", "x"), '"x" is not a head'),
        ((*export, "--scores", "none.json"), "Cannot read head scores from none.json"),
        ((*EXPORT, "--heads", "9.9", "--out", "a"), "There is no head 9.9"),
        ((*EXPORT, "--heads", "0.1", "--max-rank", "8", "--out", "a"), "rank 16 .1 head"),
        (("export", "--heads", "0.1", "--heads", "0.2", "--out", "a"), "holds one head set"),
        (("export", "--out", "a"), "holds one head set"),
        (("export", "--heads", "0.1", "--max-rank", "8", "--out", "a"), "--max-rank is an option"),
        (("rank", "--server", "http://127.0.0.1:9"), "adapters holds no head-sets.jsonl"),
        (("rank", "--server", "http://127.0.0.1:9", "--ray"), "give --ray or --server"),
    ):
        assert main(words) == 2, words
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert re.search(text, err), err
    assert sorted(path.name for path in folder.iterdir()) == ["base", "task.jsonl"]
