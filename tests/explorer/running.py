"""An explorer of a tiny model, running, and pages of it in Chromium that may reach nothing else."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from typing import Any

from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, wrap
from headcount.explorer.inquiries import ENDS
from headcount.explorer.launch import ExplorerServer
from headcount.explorer.scores import Scores
from headcount.explorer.session import ExplorerSession
from headcount.models.model import Model

TOKEN = "a-token-of-the-tests"


def tiny_session(model: Model | None = None, **options: Any) -> ExplorerSession:
    model = model or wrap(tiny_model("llama", num_hidden_layers=3), toy_tokenizer(), name="tiny")
    scores = options.pop("scores", Scores())
    return ExplorerSession(model, toy_task(24), scores, store=None, **options)


@contextmanager
def serving(session: ExplorerSession | None = None, port: int = 0) -> Iterator[ExplorerServer]:
    with ExplorerServer(session or tiny_session(), port, TOKEN) as server:
        yield server


def answers(session: ExplorerSession, kind: str, **asked: Any) -> list[tuple[str, Any]]:
    """All events of one inquiry."""
    events: Queue[tuple[str, Any]] = Queue()
    try:
        session.ask("page", kind, asked, lambda name, data: events.put((name, data)))
    except HeadcountError as error:  # at once, as the server and the widget tell it
        return [("refused", {"text": str(error)})]
    told = [events.get(timeout=60)]
    while told[-1][0] not in ENDS:
        told.append(events.get(timeout=60))
    return told


@dataclass
class Visit:
    """A page of an explorer, what it complained of, and what it asked elsewhere."""

    page: Any
    server: ExplorerServer
    console: list[str] = field(default_factory=list)
    elsewhere: list[str] = field(default_factory=list)


@contextmanager
def visiting(
    browser: Any, server: ExplorerServer, link: str = "", **options: Any
) -> Iterator[Visit]:
    """Open a link of the server; whatever goes elsewhere is refused and noted."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
    page = context.new_page()
    visit = Visit(page, server)

    def answer(route: Any) -> None:
        if route.request.url.startswith((server.address, "blob:", "data:")):
            route.continue_()
        else:
            visit.elsewhere.append(route.request.url)
            route.abort()

    context.route("**/*", answer)
    page.on(
        "console",
        lambda said: said.type in ("error", "warning") and visit.console.append(said.text),
    )
    page.on("pageerror", lambda error: visit.console.append(str(error)))
    page.goto(link or server.link)
    yield visit
    context.close()
    while server.session.inquiries.busy:  # the model is still under the gates of a text
        time.sleep(0.01)
