"""`headcount demo --all`, with studies that take no time in the place of the real ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

from headcount import HeadcountError
from headcount.claims import Claim
from headcount.cli import demo_all, main
from headcount.studies import MODELS, PRESETS, Study

Main = Callable[..., int]


class Ahead:
    """A forecast of seven minutes."""

    stopped: Exception | None = None

    def seconds(self) -> float:
        return 420.0


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The studies that ran, in their order; no model is loaded."""
    names: list[str] = []

    def run_study(name: str, models: list[str], **settings: Any) -> Study:
        assert settings["preset"] == "quick"
        assert models == [f"model {spec}" for spec in MODELS[name]]
        names.append(name)
        claim = Claim("it works", None, 1.0, 0.9, 1.1, "supported")
        figure = Figure(figsize=(1, 1))
        return Study(
            name, name, [{"count": 1, "value": 0.5}], [claim], {"figure": figure}, {"n": 1}, {}
        )

    def foresee_study(name: str, models: list[str], **settings: Any) -> Ahead:
        assert models == [f"model {spec}" for spec in MODELS[name]]
        assert (settings["preset"], settings["store"]) == ("quick", None)
        return Ahead()

    monkeypatch.setattr(demo_all, "run_study", run_study)
    monkeypatch.setattr(demo_all, "load_model", lambda spec: f"model {spec}")
    monkeypatch.setattr(demo_all, "foresee_study", foresee_study)
    monkeypatch.chdir(tmp_path)
    return names


def fail(monkeypatch: pytest.MonkeyPatch, study: str, error: Exception) -> None:
    whole = demo_all.run_study

    def run_study(name: str, *arguments: Any, **settings: Any) -> Study:
        if name == study:
            raise error
        return whole(name, *arguments, **settings)

    monkeypatch.setattr(demo_all, "run_study", run_study)


def demo(*more: str) -> int:
    return main(["demo", "--all", "--no-store", "--quiet", *more])


def test_all_four_run_and_share_a_page(ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert demo() == 0
    assert ran == list(demo_all.ORDER)
    assert set(ran) == set(PRESETS)
    out, err = capsys.readouterr()
    assert err == ""
    assert "4 of 4 studies to run: about 29 min on this machine" in out
    assert "[2/4] heads-kept, about 7 min: " in out
    assert out.endswith("All of it, to open in a browser: out/demo-all/index.html\n")
    page = Path("out/demo-all/index.html").read_text()
    for name in ran:
        assert f'<section id="{name}"' in page
        assert (Path("out/demo-all") / name / "report.html").exists()


def test_what_is_finished_is_shown_again_but_not_run(ran: list[str]) -> None:
    assert demo("--out", "there") == 0
    for page in Path("there").rglob("*.html"):
        page.unlink()
    ran.clear()
    assert demo("--out", "there") == 0
    assert ran == []
    assert len(list(Path("there").rglob("*.html"))) == 5


def test_other_settings_versions_or_a_torn_folder_run_again(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert demo("--out", "there") == 0
    (Path("there") / "head-roles" / "run.json").unlink()
    (Path("there") / "heads-kept" / "run.json").write_text("{")
    monkeypatch.setitem(PRESETS["masked-heads"], "quick", {"n": 3})
    ran.clear()
    assert demo("--out", "there") == 0
    assert ran == ["masked-heads", "heads-kept", "head-roles"]
    monkeypatch.setattr(demo_all, "versions", lambda: {"headcount": "another"})
    assert not demo_all.finished(Path("there") / "masked-heads", "masked-heads")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (HeadcountError("There are no gates."), "There are no gates."),
        (ZeroDivisionError("a mistake of ours"), "ZeroDivisionError: a mistake of ours"),
    ],
)
def test_one_that_fails_does_not_lose_the_others(
    ran: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    words: str,
) -> None:
    fail(monkeypatch, "heads-kept", error)
    assert demo() == 2
    assert ran == ["masked-heads", "head-roles", "token-insertion"]
    out, err = capsys.readouterr()
    assert f"not finished: {words}" in out
    assert err.endswith("headcount: not finished: heads-kept; the same command tries again.\n")
    assert ("Traceback" in err) == isinstance(error, ZeroDivisionError)
    page = Path("out/demo-all/index.html").read_text()
    assert words in page
    assert 'id="head-roles"' in page


def test_an_interruption_keeps_the_page_of_what_there_is(
    ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fail(monkeypatch, "head-roles", KeyboardInterrupt())  # type: ignore[arg-type]
    assert demo() == 130
    page = Path("out/demo-all/index.html").read_text()
    assert 'id="heads-kept"' in page
    assert 'id="head-roles"' not in page


def test_nothing_at_all_is_one_sentence(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in demo_all.ORDER:
        fail(monkeypatch, name, HeadcountError("No model."))
    assert demo() == 2
    assert capsys.readouterr().err == "headcount: No model.\n"
    assert not Path("out/demo-all/index.html").exists()


def test_what_cannot_be_foreseen_is_no_reason_to_stop(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown(name: str, *_: Any, **__: Any) -> Ahead:
        if name == "heads-kept":
            raise HeadcountError("No such model.")
        if name == "head-roles":  # what it would do is refused: hours that nobody will wait for
            ahead = Ahead()
            ahead.stopped = HeadcountError("There are no gates.")
            return ahead
        return type("Unknown", (Ahead,), {"seconds": lambda self: float("nan")})()

    monkeypatch.setattr(demo_all, "foresee_study", unknown)
    assert demo() == 0
    assert ran == list(demo_all.ORDER)
    assert "studies to run: about 1 min" in capsys.readouterr().out


def test_json_is_all_that_is_printed(ran: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert demo("--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    printed = json.loads(out)
    assert printed["page"] == "out/demo-all/index.html"
    assert printed["failures"] == {}
    assert list(printed["studies"]) == list(demo_all.ORDER)
    assert printed["studies"]["heads-kept"]["claims"][0]["verdict"] == "supported"
