"""`headcount demo --all`, with studies that take no time in the place of the real ones."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from matplotlib.figure import Figure

from headcount import HeadcountError
from headcount.claims import Claim
from headcount.cli import demo_all, main
from headcount.lab import Lab
from headcount.report.study import Study
from headcount.studies import DEMO, StudyKind
from headcount.studies.description import Description

NAMES = list(DEMO)


@dataclass(frozen=True)
class Config:
    n: int = 0


class Request:
    """Takes seven minutes, it says, and nothing in truth; or fails."""

    def __init__(self, name: str, ran: list[str]) -> None:
        self.name, self.ran = name, ran
        self.refused: Exception | None = None  # when it is counted
        self.fails: BaseException | None = None  # when it is carried out

    def result(self, lab: Lab) -> None:
        if self.fails is not None:
            raise self.fails
        self.ran.append(self.name)

    def count(self, counter: Any) -> None:
        if self.refused is not None:
            raise self.refused


class Studies(dict[str, Request]):
    """The request of each study, and those that ran."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.seconds, self.preset = 405.0, {"n": 1}
        super().__init__({name: Request(name, self.ran) for name in NAMES})

    def kind(self, name: str) -> StudyKind:
        def describe(models: Any, config: Config) -> Description:
            assert [model.name for model in models] == ["dense", "sparse"]
            figure = {"figure": Figure(figsize=(1, 1))}
            claim = Claim("it works", None, 1.0, 0.9, 1.1, "supported")
            rows = [{"count": 1, "value": 0.5}]
            study = Study(name, name, rows, [claim], figure, {"n": config.n}, {})
            return Description({name: self[name]}, lambda results: study)

        presets = {"quick": self.preset if name == "masked-heads" else {"n": 1}}
        return StudyKind(name, describe, Config, presets, ("dense", "sparse"))


@pytest.fixture
def studies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Studies:
    """No model is loaded; the store and all results are in a folder of the test."""
    made = Studies()
    cost = Lab.cost
    monkeypatch.setattr(demo_all, "study_kind", made.kind)
    monkeypatch.setattr(demo_all, "load_model", lambda s: SimpleNamespace(name=s, identity={}))

    def with_seconds(self: Lab, requests: Any) -> Any:
        return SimpleNamespace(cost=cost(self, requests), seconds=lambda: made.seconds)

    monkeypatch.setattr(Lab, "cost", with_seconds)
    monkeypatch.chdir(tmp_path)
    return made


def demo(*more: str) -> int:
    return main(["demo", "--all", "--no-store", "--quiet", *more])


def test_all_four_run_and_share_a_page(
    studies: Studies, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo() == 0
    assert studies.ran == NAMES
    out, err = capsys.readouterr()
    assert err == ""
    assert "4 of 4 studies to run: about 28 minutes on this machine" in out
    assert "[2/4] heads-kept, about 7 minutes: " in out
    assert "about 14 minutes left in all" in out
    assert "1 claim: 1 supported · took 0 seconds · out/demo-all/heads-kept/report.html" in out
    assert out.endswith("Everything on one page, for a browser: out/demo-all/index.html\n")
    page = Path("out/demo-all/index.html").read_text()
    for name in NAMES:
        assert f'<section id="{name}"' in page
        assert (Path("out/demo-all") / name / "report.html").exists()
        run = json.loads((Path("out/demo-all") / name / "run.json").read_text())
        assert run["command"] == f"headcount run {name} --preset quick --out out/demo-all/{name}"


def test_what_is_finished_is_shown_again_but_not_run(
    studies: Studies, capsys: pytest.CaptureFixture[str]
) -> None:
    assert demo("--out", "there") == 0
    for page in Path("there").rglob("*.html"):
        page.unlink()
    studies.ran.clear()
    capsys.readouterr()
    assert demo("--out", "there") == 0
    assert studies.ran == []
    assert len(list(Path("there").rglob("*.html"))) == 5
    out = capsys.readouterr().out
    assert "1 claim: 1 supported · was finished before" in out
    assert "studies to run" not in out


def test_other_settings_versions_or_a_torn_folder_run_again(
    studies: Studies, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert demo("--out", "there") == 0
    (Path("there") / "head-roles" / "run.json").unlink()
    (Path("there") / "heads-kept" / "run.json").write_text("{")
    studies.preset = {"n": 3}
    studies.ran.clear()
    assert demo("--out", "there") == 0
    assert studies.ran == ["masked-heads", "heads-kept", "head-roles"]
    key = json.loads(Path("there/masked-heads/run.json").read_text())["asked"]
    assert demo_all.finished(Path("there/masked-heads"), key)
    assert not demo_all.finished(Path("there/masked-heads"), "another key")
    monkeypatch.setattr(demo_all, "versions", lambda: {"headcount": "another"})
    assert not demo_all.finished(Path("there/masked-heads"), key)


@pytest.mark.parametrize("when", ["refused", "fails"])
@pytest.mark.parametrize(
    ("error", "words"),
    [
        (HeadcountError("There are no gates."), "There are no gates."),
        (ZeroDivisionError("a mistake of ours"), "ZeroDivisionError: a mistake of ours"),
    ],
)
def test_one_that_fails_does_not_lose_the_others(
    studies: Studies, capsys: pytest.CaptureFixture[str], when: str, error: Exception, words: str
) -> None:
    setattr(studies["heads-kept"], when, error)
    assert demo() == 2
    assert studies.ran == ["masked-heads", "head-roles", "token-insertion"]
    out, err = capsys.readouterr()
    assert f"not finished: {words}" in out
    assert err.endswith("headcount: not finished: heads-kept; the same command tries again.\n")
    assert ("Traceback" in err) == isinstance(error, ZeroDivisionError)
    page = Path("out/demo-all/index.html").read_text()
    assert words in page
    assert 'id="head-roles"' in page


def test_a_full_disk_ends_it_all(studies: Studies, capsys: pytest.CaptureFixture[str]) -> None:
    studies["heads-kept"].fails = OSError(28, "No space left on device")
    assert demo() == 2
    assert studies.ran == ["masked-heads"]
    assert "free some space" in capsys.readouterr().err


def test_an_interruption_keeps_the_page_of_what_there_is(studies: Studies) -> None:
    studies["head-roles"].fails = KeyboardInterrupt()
    assert demo() == 130
    page = Path("out/demo-all/index.html").read_text()
    assert 'id="heads-kept"' in page
    assert 'id="head-roles"' not in page


def test_nothing_at_all_is_one_sentence(
    studies: Studies, capsys: pytest.CaptureFixture[str]
) -> None:
    for request in studies.values():
        request.fails = HeadcountError("No model.")
    assert demo() == 2
    assert capsys.readouterr().err == "headcount: No model.\n"
    assert not Path("out/demo-all/index.html").exists()


def test_a_time_that_is_not_known_is_left_out(
    studies: Studies, capsys: pytest.CaptureFixture[str]
) -> None:
    studies.seconds = float("nan")
    assert demo() == 0
    assert studies.ran == NAMES
    assert "studies to run: about 60 seconds" in capsys.readouterr().out


def test_json_is_all_that_is_printed(studies: Studies, capsys: pytest.CaptureFixture[str]) -> None:
    assert demo("--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    printed = json.loads(out)
    assert printed["page"] == "out/demo-all/index.html"
    assert printed["failures"] == {}
    assert list(printed["studies"]) == NAMES
    assert printed["studies"]["heads-kept"]["claims"][0]["verdict"] == "supported"
