"""A real browser for tests: Chromium without a window, which refuses to load anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def find_chromium() -> str:
    """Its path, from HEADCOUNT_CHROMIUM or where programs are; without it, tests are skipped."""
    named = os.environ.get("HEADCOUNT_CHROMIUM")
    found = named or next((path for name in NAMES if (path := shutil.which(name))), None)
    if not found:
        pytest.skip("no Chromium: install it, or name its program in HEADCOUNT_CHROMIUM")
    return found


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, as playwright drives it."""
    program = find_chromium()
    reason = "no playwright: pip install --group dev"
    playwright = pytest.importorskip("playwright.sync_api", reason=reason)
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@dataclass
class Seen:
    """What a page said and asked for while it was open."""

    page: Any
    console: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def opened(browser: Any, path: Path, **options: Any) -> Iterator[Seen]:
    """Open a file; whatever it loads but itself and its own data is refused and noted."""
    script = options.pop("script", None)
    context = browser.new_context(**options)
    if script:
        context.add_init_script(script)
    page = context.new_page()
    seen = Seen(page)
    own = path.resolve().as_uri()

    def answer(route: Any) -> None:
        # A part of the page (#heads) is no request of its own.
        if route.request.url.split("#")[0] == own:
            route.continue_()
        else:
            seen.requests.append(route.request.url)
            route.abort()

    context.route("**/*", answer)
    page.on(
        "console",
        lambda said: said.type in ("error", "warning") and seen.console.append(said.text),
    )
    page.on("pageerror", lambda error: seen.console.append(str(error)))
    page.on("dialog", lambda dialog: (seen.console.append("dialog"), dialog.dismiss()))
    page.goto(own)
    yield seen
    context.close()
