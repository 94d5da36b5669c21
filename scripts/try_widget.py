"""Use the explorer's widget in a real JupyterLab and in a real marimo, in Chromium.

    python -m venv /somewhere && /somewhere/bin/pip install jupyterlab marimo 'headcount[explore]'
    python scripts/try_widget.py --bin /somewhere/bin --picture out/widget

The notebooks run where `--bin` says; this script needs playwright, which the dev group has. In each
notebook it clicks heads, types, reads `widget.state` in Python, and sets it there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

SHOW = """import headcount
model = headcount.load_model("smollm2-135m-q4")
widget = headcount.explore(model, "ioi")
widget"""
READ, SET = "widget.state['heads']", 'widget.state = {"heads": ["20.0", "23.0"]}'
MARIMO = f"""import marimo
app = marimo.App()

@app.cell
def _():
    import marimo as mo
    read, write = mo.ui.run_button(label="Read it"), mo.ui.run_button(label="Set it")
    mo.hstack([read, write])
    return mo, read, write

@app.cell
def _():
    {SHOW.replace(chr(10), chr(10) + "    ")}
    return (widget,)

@app.cell
def _(mo, read, widget):
    mo.md(f"`{{{READ}}}`") if read.value else None

@app.cell
def _(widget, write):
    if write.value:
        {SET}
"""
LONG = 240_000  # ms: the model is loaded, and its fast paths are proven


@contextmanager
def serving(words: list[str], port: int, folder: str) -> Iterator[None]:
    """Run a notebook's server until the block ends."""
    with subprocess.Popen(
        words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as server:
        try:
            while server.poll() is None:
                with socket.socket() as tried:
                    if not tried.connect_ex(("127.0.0.1", port)):
                        break
                time.sleep(0.2)
            yield
        finally:
            server.terminate()


def use(page: Any, read: Callable[[], None], write: Callable[[], None]) -> None:
    """What a reader does, and what must then be seen."""
    head = page.locator("[data-head='1.2']")
    head.wait_for(timeout=LONG)
    head.click()
    page.locator(".prompt[data-heads='1.2']").wait_for(timeout=LONG)
    words = page.get_by_label("Heads, in words")
    words.fill("layer 3")
    words.press("Enter")
    page.get_by_text("9 heads off").wait_for()
    page.get_by_role("button", name="Undo", exact=True).click()
    page.get_by_text("1 head off: 1.2").wait_for()
    read()
    page.get_by_text("['1.2']").first.wait_for(timeout=LONG)
    write()
    page.get_by_text("2 heads off: 20.0 23.0").wait_for(timeout=LONG)
    page.locator(".prompt[data-heads='20.0 23.0']").wait_for(timeout=LONG)
    page.locator(".text.set", has_text=" ").wait_for(timeout=LONG)
    page.locator(".grid").focus()
    for key in ("ArrowRight", "Space", "d", "d"):  # in Jupyter, d d deletes the cell
        page.keyboard.press(key)
    page.get_by_text("3 heads off").wait_for()
    page.wait_for_timeout(3000)
    assert head.is_visible()


def in_jupyter(page: Any, programs: Path, folder: str, port: int) -> None:
    """The widget as the output of a cell of JupyterLab."""
    cells = [
        {"cell_type": "code", "source": source, "metadata": {}, "outputs": [], "id": f"cell-{n}"}
        | {"execution_count": None}
        for n, source in enumerate((SHOW, READ, SET))
    ]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
    book = {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}
    Path(folder, "try.ipynb").write_text(json.dumps(book))
    words = [str(programs / "jupyter"), "lab", "--no-browser", "--allow-root", f"--port={port}"]
    with serving([*words, "--IdentityProvider.token=here"], port, folder):
        page.goto(f"http://127.0.0.1:{port}/lab/tree/try.ipynb?token=here", timeout=LONG)

        def run(number: int) -> None:
            page.locator(".jp-CodeCell .jp-InputArea .cm-content").nth(number).click(timeout=LONG)
            page.keyboard.press("Control+Enter")

        page.get_by_text("Python 3 (ipykernel) | Idle").wait_for(timeout=LONG)
        run(0)
        use(page, lambda: run(1), lambda: run(2))


def in_marimo(page: Any, programs: Path, folder: str, port: int) -> None:
    """The widget as the output of a cell of marimo."""
    Path(folder, "try.py").write_text(MARIMO)
    words = [str(programs / "marimo"), "edit", "try.py", "--headless", "--no-token"]
    with serving([*words, "--port", str(port)], port, folder):
        page.goto(f"http://127.0.0.1:{port}", timeout=LONG)
        for _ in range(20):  # a click before the kernel listens is lost
            if page.get_by_role("button", name="Read it").is_visible():
                break
            page.get_by_test_id("run-button").last.click(timeout=LONG)  # all cells
            page.wait_for_timeout(10_000)

        def press(name: str) -> None:
            page.get_by_role("button", name=name).click()

        use(page, lambda: press("Read it"), lambda: press("Set it"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--bin", type=Path, required=True, help="where jupyter and marimo are")
    parser.add_argument("--only", help="jupyterlab or marimo")
    parser.add_argument("--picture", type=Path, help="folder for a picture of each")
    arguments = parser.parse_args()
    program = os.environ.get("HEADCOUNT_CHROMIUM") or shutil.which("chromium")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for name, tried in (("jupyterlab", in_jupyter), ("marimo", in_marimo)):
            if arguments.only not in (None, name):
                continue
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
                free.close()
                try:
                    tried(page, arguments.bin, folder, port)
                finally:
                    if arguments.picture:
                        arguments.picture.mkdir(parents=True, exist_ok=True)
                        page.screenshot(path=arguments.picture / f"{name}.png")
            ask = [arguments.bin / "python", "-c", f"import {name}; print({name}.__version__)"]
            version = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
            print(f"{name} {version}: clicks, words, undo, state read and set, keys. All hold.")
            page.close()


if __name__ == "__main__":
    main()
