"""The study `head-roles` from the command line, on a planted model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from planted import plant

from headcount.cli import main
from headcount.rankings.causal_gates.result import CausalGates


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A planted model and its task as a user would have them."""
    its = plant(["0.1", "1.0"], ["1.2"], layers=2, heads=4, n=48)
    its.model.module.save_pretrained(tmp_path / "mine")  # type: ignore[operator]
    its.model.tokenizer.save_pretrained(tmp_path / "mine")
    lines = [
        {"prompt": e.prompt, "target": e.target, "content": e.content, "template": e.template}
        for e in its.task
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "marked.jsonl").write_text(text)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


RUN = ["run", "head-roles", "--model", "mine", "--tasks", "marked.jsonl", "--seeds", "2", "--quiet"]
SMALL = ["--counts", "1", "2", "--set", "updates=40", "batch=16", "n=12"]


def test_from_the_command_line(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*RUN, *SMALL, "--refit"]) == 0
    out, err = capsys.readouterr()
    assert "mine, marked: fitting gates takes about" in err
    assert "supported: facilitation falls: with 1 of 8 heads (12.5 %) ablated" in out
    assert "The picture: out/head-roles/figure.png" in out
    gates = CausalGates.load("out/head-roles/scores/gates/mine/marked.json")
    assert gates.seeds == 2
    assert gates.parameters["model"] == "mine"
    assert main([*RUN, *SMALL, "gates=out/head-roles/scores/gates", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["claims"][0]["verdict"] == "supported"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"prompt": "we saw"}\n', "target"),
        ('{"prompt": "we saw", "target": ""}\n', "empty target"),
        ('{"prompt": "we saw", "target": " Ada"}\n', "share one content"),
    ],
)
def test_a_task_without_targets_or_a_split_is_refused(
    disk: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    (disk / "marked.jsonl").write_text(line)
    assert main([*RUN, *SMALL, "--refit"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert words in err
    assert err.count("\n") == 1
