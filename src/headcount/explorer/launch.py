"""Start the explorer's page on this machine, and open a browser."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import uvicorn

from headcount.errors import HeadcountError
from headcount.explorer.server import application
from headcount.explorer.session import ExplorerSession

PORT = 8765
PORTS = 50  # ports that are tried, from the first one on
LOOPBACK = "127.0.0.1"


class ExplorerServer:
    """The page of a session, served from a thread of its own until it is closed.

    `link` opens the page: it has the token, which nobody else should know. It stands behind a #,
    so that browsers neither send nor log it.
    """

    def __init__(self, session: ExplorerSession, port: int = PORT, token: str = "") -> None:
        self.session = session
        self._socket = free_port(port)
        self.port: int = self._socket.getsockname()[1]
        token = token or secrets.token_urlsafe(24)
        self.address = f"http://{LOOPBACK}:{self.port}/"
        self.link = f"{self.address}#token={token}"
        config = uvicorn.Config(
            application(session, token, self.port),
            log_level="warning",
            access_log=False,
            lifespan="off",
            server_header=False,
            ws="none",
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        # Not `Thread.join`, which takes a thread for ended after an exception from a signal.
        self._ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()
        while not (self._server.started or self._ended.wait(0.02)):
            pass

    def _serve(self) -> None:
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()

    def wait(self) -> None:
        """Serve until the server ends, or Ctrl-C."""
        while not self._ended.wait(0.5):
            pass

    def close(self) -> None:
        """End the session, so that no answer is open, and then the server with its socket."""
        self.session.close()
        self._server.should_exit = True
        if self._ended.wait(5):
            self._socket.close()

    def __enter__(self) -> ExplorerServer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Explorer of {self.session.model.name} at {self.link}>"


def free_port(first: int) -> socket.socket:
    """A socket at the first free port from this one on; 0 takes any."""
    if not 0 <= first <= 65535:
        raise HeadcountError(f"A port is a number from 0 to 65535, not {first}.")
    for port in range(first, min(first + PORTS, 65536)) if first else [0]:
        taken = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with suppress(OSError):
            taken.bind((LOOPBACK, port))
            taken.listen()
            return taken
        taken.close()
    raise HeadcountError(
        f"No port from {first} to {first + PORTS - 1} is free: choose another with --port."
    )


def open_browser(link: str, say: Callable[[str], object]) -> None:
    """Open the link in the user's browser, or say that there is none."""
    opened = False
    with suppress(webbrowser.Error, OSError):
        opened = webbrowser.open(link)
    if not opened:
        say("There is no browser here to open it in: copy the link into one.")
