"""Lists of heads on the command line: judged, compared, written, and refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from planted import plant

from headcount import HeadScores
from headcount.cli import main
from headcount.heads import HeadLayout

NEEDED = ("0.1", "1.0", "2.2")


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("disk")
    planted = plant(NEEDED, layers=3, n=32)
    planted.model.module.save_pretrained(folder / "tiny")
    planted.model.tokenizer.save_pretrained(folder / "tiny")
    names = ("id", "prompt", "target", "foils", "corrupted", "template", "content")
    lines = [{name: getattr(e, name) for name in names} for e in planted.task]
    (folder / "marked.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return ["--model", str(folder / "tiny"), "--task", str(folder / "marked.jsonl"), "--quiet"]


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADCOUNT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HEADCOUNT_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    heads = ",".join(name.replace(".", "-") for name in NEEDED)
    Path("needed.yaml").write_text(f'attn_head_set: "{heads}"\nmodel_name_or_path: org/Tiny\n')
    Path("wrong.yaml").write_text("attn_head_set: [0-0, 1-1, 2-3]\n")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    def run(*words: str, code: int = 0) -> str:
        assert main(words) == code
        out, err = capsys.readouterr()
        return err if code else out

    return run


def test_a_list_gets_a_verdict(disk: list[str], run: Callable[..., Any]) -> None:
    how = ("--metric", "logit_difference", "--seeds", "3", "--counts", "0", "3")
    text = run("curve", *disk, "--ranking", "needed.yaml", *how, "--out", "right")
    words = "masking the top 3 of needed lowers logit difference more than masking 3 random others"
    assert f"supported: {words}: " in text
    assert f"supported: {words} of the same layers: " in text
    assert "all agree" in run("verify", "right")
    claims = json.loads(Path("right/claims.json").read_text())
    assert [claim["verdict"] for claim in claims] == ["supported", "supported"]
    run("curve", *disk, "--ranking", "wrong.yaml", *how, "--out", "wrong")
    claims = json.loads(Path("wrong/claims.json").read_text())
    assert "supported" not in [claim["verdict"] for claim in claims]  # heads that do nothing


def test_kept_heads_are_judged_the_other_way_round(
    disk: list[str], run: Callable[..., Any]
) -> None:
    how = ("--metric", "logit_difference", "--keep", "--seeds", "3")
    text = run("curve", *disk, "--ranking", "needed.yaml", *how)
    assert "supported: keeping only the top 3 of needed leaves a higher logit difference" in text


def test_scores_are_written_for_retrieval_head_and_read_back(
    disk: list[str], run: Callable[..., Any]
) -> None:
    asked = ("--ranking", "ablation", "--out", "scores.json", "--retrieval-head", "theirs.json")
    text = run("rank", *disk, *asked)
    assert "For Retrieval_Head and HeadKV: theirs.json" in text
    own = json.loads(Path("scores.json").read_text())
    assert len(own["parameters"]["fingerprint"]) == 64
    assert len(own["intervals"]) == 12
    text = run("compare", "scores.json", "theirs.json", "needed.yaml", "--counts", "2", "3")
    rows = [line.split() for line in text.splitlines() if line.startswith("scores / theirs")]
    assert [(row[3], row[4]) for row in rows] == [("2", "2"), ("3", "3")]
    assert "Of 12 heads in 3 layers" in text
    text = run("curve", *disk, "--ranking", "theirs.json", "--judge", "3", "--counts", "0")
    assert "masking the top 3 of theirs" in text
    run("curve", *disk, "--ranking", "scores.json", "--counts", "0", "1", "--series", "top")


def test_compare_says_what_chance_gives(run: Callable[..., Any]) -> None:
    found = json.loads(run("compare", "gpt2-ioi", "gpt2-greater-than", "--json"))
    overlap = found["overlaps"][0]
    assert (overlap["count"], overlap["other_count"], overlap["common"]) == (26, 10, 3)
    assert overlap["chance"] * 10 == pytest.approx(26 * 10 / 144)
    assert 0 < overlap["p_value"] < overlap["layer_p_value"] < 1
    assert found["models"] == {"gpt2-ioi": "gpt2", "gpt2-greater-than": "gpt2"}
    text = run("compare", "gpt2-ioi", "gpt2-greater-than")
    assert "26 and 10" in text


def test_lists_that_tell_no_layout_take_it_from_a_config(
    disk: list[str], run: Callable[..., Any]
) -> None:
    told = run("compare", "needed.yaml", "wrong.yaml", code=2)
    assert "name it with --model" in told
    assert "Of 12 heads in 3 layers" in run("compare", "needed.yaml", "wrong.yaml", *disk[:2])


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("curve", "--ranking", "gpt2-ioi"), "another model (gpt2): they are for 144 heads"),
        (("curve", "--ranking", "other.yaml"), 'The list "other" is for x/Y, and this model is'),
        (("curve", "--ranking", "needed.yaml", "--counts", "4"), "names 3 heads"),
        (("curve", "--ranking", "needed.yaml", "--judge", "4"), "names 3 heads"),
        (("curve", "--ranking", "full.json", "--judge", "0"), "--judge compares"),
        (("rank", "--unit", "kv", "--retrieval-head", "a.json"), "rank query heads"),
        (("compare", "--ranking", "needed.yaml", "attribution"), "a contest needs scores of all"),
    ],
)
def test_lists_that_do_not_fit_are_refused(
    disk: list[str], run: Callable[..., Any], words: tuple[str, ...], why: str
) -> None:
    Path("other.yaml").write_text("attn_head_set: [0-0]\nmodel_name_or_path: x/Y\n")
    HeadScores(HeadLayout((4, 4, 4)), np.arange(12.0), "own").save("full.json")
    told = run(words[0], *disk, *words[1:], code=2)
    assert why in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("needed.yaml",), "at least two lists"),
        (("needed.yaml", "needed.yaml"), "is given twice"),
        (("needed.yaml", "attribution"), "attribution is not a list of heads"),
        (("gpt2-ioi", "heads.tsv"), "others of key/value heads"),
        (("gpt2-ioi", "full.json"), "are of different models"),
        (("gpt2-ioi", "wrong.json"), "another model than one with 144 heads in 12 layers"),
    ],
)
def test_lists_that_cannot_be_compared_are_refused(
    run: Callable[..., Any], words: tuple[str, ...], why: str
) -> None:
    Path("heads.tsv").write_text("1\t0\n0\t1\n")
    Path("wrong.json").write_text('["30-1"]')
    HeadScores(HeadLayout((4, 4, 4)), np.arange(12.0), "own").save("full.json")
    told = run("compare", *words, code=2)
    assert why in told
    assert told.count("\n") == 1
