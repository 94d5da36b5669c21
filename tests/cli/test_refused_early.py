"""Bad input is refused in one sentence, before a model is loaded where none is needed to know."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest
from tasks.tiny_tokenizers import byte_level
from tiny import tiny_model

from headcount import HeadcountError
from headcount.cli import main
from headcount.cli.parser import read_text
from headcount.models import model

MANY = "100000000"
Refused = Callable[..., str]


@pytest.fixture
def refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    """Run a command that must fail with one line before it loads a model; returns that line."""

    def load_model(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("loaded")

    monkeypatch.setattr(model, "load_model", load_model)
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADCOUNT_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("taken").write_text("")
    examples = [{"prompt": f"{number} is", "target": " it"} for number in range(4)]
    Path("plain.jsonl").write_text("".join(json.dumps(line) + "\n" for line in examples))

    def refused(*words: str) -> str:
        assert main(words) == 2
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert sorted(path.name for path in Path().iterdir()) == ["plain.jsonl", "taken"]
        return err

    return refused


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("curve", "--seeds", MANY), '"seeds" of curve must be at most 10,000, not 100,000,000.'),
        (("curve", "--seeds", MANY, "--dry-run"), "at most 10,000"),
        (("run", "masked-heads", "--seeds", MANY), '"seeds" of masked-heads must be at most'),
        (("rank", "--ranking", "facilitation", "--ranking-set", f"seeds={MANY}"), "at most 10,000"),
        (
            ("rank", "--ranking", "facilitation", "--ranking-set", "seeds=0"),
            "from 1 to 1,000, not 0",
        ),
        (("compare", "--ranking", "probe", "ablation", "--seeds", MANY), "at most 10,000"),
        (
            ("rank", "--ranking", "integrated-gradients", "--ranking-set", f"steps={MANY}"),
            "at most 1,000 steps, not 100,000,000",
        ),
        (("rank", "--ranking", "random", "--ranking-set", "seed=-1"), '"seed" of random must be'),
        (("rank", "--ranking", "attention-induction", "--ranking-set", "seed=-1"), "at least 0"),
        (("rank", "--ranking", "probe", "--ranking-set", "seed=-1"), "at least 0, not -1"),
        (("rank", "--task", "ioi", "--set", "seed=-1"), '"seed" of ioi must be at least 0'),
        (("run", "token-insertion", "--set", "seed=-1"), "must be at least 0, not -1"),
    ],
)
def test_absurd_numbers(refused: Refused, command: tuple[str, ...], words: str) -> None:
    assert words in refused(*command)


@pytest.mark.parametrize(
    "command",
    [
        ("rank", "--task", "a\0b.jsonl"),
        ("rank", "--task", "a\0b.json"),
        ("rank", "--out", "a\0b"),
        ("curve", "--out", "a\0b"),
        ("compare", "--out", "a\0b"),
        ("export", "--heads", "0.1", "--out", "a\0b"),
        ("run", "masked-heads", "--out", "a\0b"),
        ("run", "head-roles", "--gates", "a\0b"),
        ("demo", "--out", "a\0b"),
        ("rank", "--task", "cogqa", "--set", "path=a\0b"),
        ("rank", "--task", "problems", "--set", "path=a\0b"),
    ],
)
def test_no_path_holds_a_nul(refused: Refused, command: tuple[str, ...]) -> None:
    assert "holds a NUL character, which no path can: remove it." in refused(*command)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("tasks", "--set", "foo=1"), 'retrieval has no setting "foo"'),
        (("rank", "--ranking-set", "metric=accuracy"), '"accuracy" has no derivative'),
        (("curve", "--ranking-set", "metric=accuracy"), '"accuracy" has no derivative'),
        (("rank", "--ranking-set", "ablation=men"), 'Did you mean "mean"?'),
        (("rank", "--ranking-set", "ablation=streaming:4"), "is no streaming attention: write"),
        (("ablate", "--heads", "0.1", "--ablation", "streaming:0:64"), "at least 1 first and 1"),
        (("curve", "--ablation", "streaming:16:-1"), "not 16 and -1"),
        (("compare", "--ablation", "streaming:1:2:3"), "is no streaming attention: write"),
        (
            ("rank", "--ranking", "streaming-gates", "--ranking-set", "ablation=zero"),
            "leave the ablation at streaming:SINK:WINDOW, not zero",
        ),
        (
            ("rank", "--ranking", "ablation", "--ranking-set", "ablation=men"),
            'Did you mean "mean"?',
        ),
        (
            ("rank", "--ranking", "integrated-gradients", "--ranking-set", "steps=0"),
            "at least 1 step, not 0",
        ),
        (("generate", "--prompt", "x", "--temperature", "-1"), "temperature must be at least 0"),
        (("ablate", "--heads", "none.json"), "Cannot read a head set from none.json: No such file"),
        (("explore", "--heads", "none.json"), "Cannot read a head set from none.json"),
        (("export", "--out", "new", "--heads"), "this is the whole model"),
        (("generate", "--prompt", "x", "--heads", "3"), '"3" is not a head: write LAYER.HEAD'),
        (("curve", "--counts", "-1"), "Cannot choose -1 heads: counts are whole numbers"),
        (("compare", "--counts", "-1"), "Cannot choose -1 heads"),
        (("compare", "--orders", "-1"), "There are no -1 random orders"),
        (("compare", "--ranked", "0"), "Heads are ranked on at least 1 example, not 0"),
        (("compare", "--set", "iio:n=9"), "--set names iio, and the tasks are ioi"),
        (("compare", "--ranking-set", "greedy:share=1"), '"greedy" is no ranking of this contest'),
        (("compare", "--ranking-set", "share=1"), "write a setting of a ranking as"),
        (("compare", "--ranking-set", "ablation:metric=accurcy"), 'Did you mean "accuracy"'),
        (("run", "masked-heads", "--counts", "-1"), "Cannot choose -1 heads"),
        (("run", "heads-kept", "--counts", "-1"), "Cannot choose -1 heads"),
        (("run", "head-roles", "--counts", "-1"), "Cannot choose -1 heads"),
        (("run", "masked-heads", "--set", "counts=3"), "Counts are a list of numbers of heads"),
    ],
)
def test_settings_that_no_model_can_use(
    refused: Refused, command: tuple[str, ...], words: str
) -> None:
    assert words in refused(*command)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("ablate", "--heads", "0.1", "--metric", "choice"), "has no foil, and choice needs one"),
        (("curve", "--metric", "logit_difference"), "has no foil, and logit_difference needs one"),
        (("rank", "--ranking-set", "metric=logit_difference"), "has no foil"),
        (("ablate", "--heads", "0.1", "--ablation", "corrupted"), "no corrupted prompt"),
        (("curve", "--ablation", "corrupted"), "no corrupted prompt"),
        (("rank", "--ranking", "patching"), "no corrupted prompt"),
        (("compare", "--ranking", "patching", "ablation"), "no corrupted prompt"),
    ],
)
def test_files_without_what_is_asked_for(
    refused: Refused, command: tuple[str, ...], words: str
) -> None:
    assert words in refused(*command, "--task", "plain.jsonl")
    assert words in refused(*command, "--task", "jsonl", "--set", "path=plain.jsonl")


@pytest.mark.parametrize("out", ["taken/below", "/proc/none/scores.json"])
@pytest.mark.parametrize(
    "command",
    [
        ("rank",),
        ("curve",),
        ("compare", "--dry-run"),
        ("run", "masked-heads"),
        ("export", "--heads", "0.1"),
        ("demo",),
        ("demo", "--all"),
    ],
)
def test_places_that_cannot_be_written(
    refused: Refused, command: tuple[str, ...], out: str
) -> None:
    assert f"cannot use {out}: " in refused(*command, "--out", out)


def test_a_file_cannot_be_written_over_a_folder(refused: Refused) -> None:
    assert "cannot use .: Is a directory" in refused("rank", "--out", ".")


ASCII = {"LC_ALL": "POSIX", "PYTHONUTF8": "0"}


def test_a_prompt_from_a_terminal_that_is_not_utf_8(tmp_path: Path) -> None:
    tiny_model("llama", vocab_size=2000).save_pretrained(tmp_path / "tiny")
    byte_level().save_pretrained(tmp_path / "tiny")
    words = ["generate", "--model", "tiny", "--max-new-tokens", "1", "--json", "--prompt", "é✓"]
    told = {}
    for name, environment in {"ascii": ASCII, "utf-8": {"PYTHONUTF8": "1"}}.items():
        told[name] = subprocess.run(
            [sys.executable, "-m", "headcount.cli", *words],
            capture_output=True,
            cwd=tmp_path,
            env={**os.environ, "HEADCOUNT_CACHE": str(tmp_path / "cache"), **environment},
        )
    assert told["ascii"].returncode == 0, told["ascii"].stderr
    tokens = [json.loads(done.stdout)[0]["ids"] for done in told.values()]
    assert tokens[0] == tokens[1]


def test_bytes_that_are_no_text() -> None:
    assert read_text("caf\udcc3\udca9") == read_text("café") == "café"
    with pytest.raises(HeadcountError, match=r"^'\\udcff' is not UTF-8"):
        read_text("\udcff")
