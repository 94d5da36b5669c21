"""Starting an explorer, from the command line, from Python, and in a notebook."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from explorer.running import tiny_session
from report.browser import chromium
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

import headcount.cli.explore
from headcount import HeadcountError, HeadLayout, HeadScores, HeadSet, explore, wrap
from headcount.cli import main
from headcount.explorer import launch
from headcount.explorer.launch import ExplorerServer
from headcount.explorer.widget import ExplorerWidget, module
from headcount.models.model import Model


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Model:
    made = wrap(tiny_model("llama", num_hidden_layers=3), toy_tokenizer(), name="tiny")
    monkeypatch.setattr(headcount.cli.explore, "model_from", lambda _: made)
    monkeypatch.setattr(
        headcount.cli.explore, "task_factory", lambda *_, **__: lambda _: toy_task()
    )
    monkeypatch.setattr(ExplorerServer, "wait", lambda _: None)
    return made


@pytest.mark.usefixtures("model")
def test_the_command_prints_the_link_where_there_is_no_browser(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(launch.webbrowser, "open", lambda _: False)
    assert main(["explore", "--port", "0", "--no-store"]) == 0
    said = capsys.readouterr().err
    assert "http://127.0.0.1:" in said
    assert "#token=" in said
    assert "copy the link" in said
    assert "ssh -L" in said


@pytest.mark.usefixtures("model")
def test_ctrl_c_ends_it_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: ExplorerServer) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ExplorerServer, "wait", interrupted)
    assert main(["explore", "--no-browser", "--port", "0", "--no-store"]) == 0
    assert capsys.readouterr().err.endswith("The explorer has ended.\n")


@pytest.mark.usefixtures("model")
def test_a_port_that_is_taken_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["explore", "--no-browser", "--port", str(port), "--no-store"]) == 0
    said = capsys.readouterr().err
    assert f"Port {port} is taken; " in said
    other = re.search(r"; (\d+) is the next", said)
    assert other
    assert f"http://127.0.0.1:{other[1]}/" in said


@pytest.mark.usefixtures("model")
def test_it_starts_with_the_head_set_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    monkeypatch.setattr(
        ExplorerServer, "wait", lambda server: started.append(server.session.first_state())
    )
    path = tmp_path / "set.json"
    HeadSet("0.1 2.2", gate=0.5).save(path)
    how = ["--no-browser", "--port", "0", "--no-store"]
    assert main(["explore", "--heads", str(path), *how]) == 0
    assert main(["explore", "--heads", "1.1", "--keep", *how]) == 0
    assert [(one.heads, one.keep, one.gate) for one in started] == [
        (("0.1", "2.2"), False, 0.5),
        (("1.1",), True, 0.0),
    ]


def test_scores_of_another_model_are_refused_with_both_names(
    model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layout = HeadLayout((2, 2))
    HeadScores(layout, np.ones(4), "by hand", {"model": "other"}).save(tmp_path / "s.json")
    assert main(["explore", "--scores", str(tmp_path / "s.json"), "--no-browser"]) == 2
    said = capsys.readouterr().err
    assert '"other", with 4 heads in 2 layers' in said
    assert f'"{model.name}", with 12 heads in 3 layers' in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "no/such/folder/here"], "headcount: "),
        (["--task", "no-such-task"], 'There is no task "no-such-task"'),
        (["--port", "99999"], "from 0 to 65535"),
        (["--port", "x"], '--port takes a whole number, not "x"'),
        (["--scores"], "--scores needs at least one value"),
        (["--json"], 'There is no option "--json"'),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(words: list[str], said: str) -> None:
    command = [sys.executable, "-m", "headcount.cli", "explore", "--no-browser", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_help_and_import_load_neither_torch_nor_starlette() -> None:
    code = (
        "import sys, headcount, headcount.cli.arguments as a; a.build_parser();"
        "print([n for n in ('torch', 'starlette', 'uvicorn', 'anywidget') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, model: Model) -> None:
    monkeypatch.setattr("headcount.explorer.explore.find_spec", lambda _: None)
    with pytest.raises(HeadcountError, match=r"headcount\[explore\]"):
        explore(model, None)


def test_python_starts_a_page_outside_notebooks(model: Model) -> None:
    scores = HeadScores(model.layout, np.arange(12.0), "by hand")
    with explore(model, toy_task(), scores=[scores], heads=["2.2"], browser=False) as page:
        assert page.link.startswith("http://127.0.0.1:")
        assert page.session.first_state().heads == ("2.2",)
        assert page.session.first_state().colour == "by hand"


@pytest.fixture
def widget() -> Iterator[ExplorerWidget]:
    made = ExplorerWidget(tiny_session())
    yield made
    made.session.close()


def test_the_state_of_a_widget_is_read_and_set(widget: ExplorerWidget) -> None:
    assert widget.state["heads"] == []
    prompt = widget.state["prompt"]
    widget.state = {"heads": ["2.1", "0.1"], "keep": True}
    assert widget.state["heads"] == ["0.1", "2.1"]
    assert widget.state["prompt"] == prompt
    with pytest.raises(HeadcountError, match=r"no head 9\.9"):
        widget.state = {"heads": ["9.9"]}
    assert widget.state["heads"] == ["0.1", "2.1"]


def told(widget: ExplorerWidget, content: dict[str, Any], monkeypatch: Any) -> list[Any]:
    """What a widget tells its page, after a message of the page."""
    said: list[Any] = []
    monkeypatch.setattr(ExplorerWidget, "send", lambda _, data: said.append(data))
    widget._hear(None, content, None)
    while widget.session.inquiries.busy or not said:
        time.sleep(0.01)
    return said


def test_a_widget_answers_by_messages(
    widget: ExplorerWidget, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {**widget.state, "heads": ["0.1"]}
    said = told(widget, {"kind": "probabilities", "number": "7", "state": state}, monkeypatch)
    assert [one["name"] for one in said] == ["probabilities", "probabilities", "done"]
    assert {one["number"] for one in said} == {"7"}
    json.dumps(said)
    refused = told(widget, {"kind": "system", "number": "8"}, monkeypatch)
    assert refused[0]["name"] == "refused"


def test_the_widget_s_module_runs_alone_in_a_browser(
    widget: ExplorerWidget, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = told(widget, {"kind": "start", "number": "1"}, monkeypatch)
    with chromium() as browser:
        page = browser.new_page()
        wrong: list[str] = []
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.set_content("<div id=here></div>")
        page.evaluate(
            """async ([code, facts, state]) => {
              const url = URL.createObjectURL(new Blob([code], { type: "text/javascript" }));
              const { default: widget } = await import(url);
              const on = {};
              globalThis.model = { asked: [], state, get: () => model.state,
                set: (_, value) => { model.state = value; }, save_changes: () => {},
                on: (name, hear) => { on[name] = hear; }, off: () => {},
                send: (message) => {
                  model.asked.push(message);
                  const { kind, number } = message;
                  if (kind === "start") setTimeout(() => {
                    on["msg:custom"]({ number, name: "start", data: facts });
                    on["msg:custom"]({ number, name: "done", data: {} });
                  });
                },
                fromPython: (value) => { model.state = value; on["change:state"](); } };
              widget.render({ model, el: document.getElementById("here") });
            }""",
            [module(), said[0]["data"], widget.state],
        )
        page.wait_for_selector(".cell[data-head='2.1']")
        page.locator(".cell[data-head='2.1']").click()
        assert page.evaluate("() => model.state.heads") == ["2.1"]
        # JupyterLab refuses Enter in a cell's output, unless it does not hear of it.
        page.evaluate(
            """() => document.getElementById("here").addEventListener("beforeinput", (event) => {
              if (event.inputType === "insertLineBreak") event.preventDefault();
            })"""
        )
        page.get_by_label("Heads, in words").fill("layer 1")
        page.get_by_label("Heads, in words").press("Enter")
        page.wait_for_function("() => model.asked.some((one) => one.kind === 'choose')")
        page.evaluate("() => model.fromPython({ ...model.state, heads: ['0.0', '0.1'] })")
        page.get_by_text("2 heads off: 0.0 0.1").wait_for()
        page.wait_for_function("() => model.asked.some((one) => one.kind === 'probabilities')")
        assert page.get_by_role("button", name="Copy a link").count() == 0  # no address of its own
        assert page.locator("#here").get_attribute("data-lm-suppress-shortcuts") == "true"
        assert wrong == []


def test_the_page_says_how_soon_it_answers_as_measured() -> None:
    root = Path(__file__).parents[2]
    found = json.loads((root / "benchmarks/results/explorer.json").read_text())
    page = (root / "docs/explorer.md").read_text(encoding="utf-8")
    asked = ("click to probabilities with one random draw", "click to probabilities with all five")
    for layer in (0, 10, 20):
        times = [found[f"{a}, first head in layer {layer}, ms"] for a in (*asked, "click to text")]
        cells = " | ".join(f"{one['median']:.0f}" for one in times)
        assert f"| layer {layer} | {cells} |" in page
    assert f"load {found['machine']['load_at_start']}" in page
