"""Who may ask the explorer's server, and what it refuses: nothing here needs a browser."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from explorer.running import TOKEN, serving, tiny_session

from headcount import HeadcountError
from headcount.explorer.launch import ExplorerServer, free_port


@pytest.fixture(scope="module")
def server() -> Iterator[ExplorerServer]:
    with serving() as started:
        yield started


def ask(
    server: ExplorerServer,
    body: Any = None,
    method: str = "POST",
    path: str = "/ask",
    **headers: Any,
) -> tuple[int, str, dict[str, str]]:
    """The answer to a request; a header given as None is left out."""
    given = {
        "Host": f"127.0.0.1:{server.port}",
        "Origin": f"http://127.0.0.1:{server.port}",
        "Content-Type": "application/json",
        "X-Headcount-Token": TOKEN,
    }
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    data = body if isinstance(body, bytes) else json.dumps(body or {"kind": "start"}).encode()
    for name, value in ({**given, "Content-Length": len(data)}).items():
        if value is not None:
            connection.putheader(name, str(value))
    connection.endheaders(data)
    answer = connection.getresponse()
    told = answer.status, answer.read().decode(), dict(answer.getheaders())
    connection.close()
    return told


def test_it_answers_who_knows_the_token(server: ExplorerServer) -> None:
    status, text, headers = ask(server)
    assert status == 200
    assert text.startswith("event: start\ndata: {")
    assert text.endswith("event: done\ndata: {}\n\n")
    assert headers["content-type"].startswith("text/event-stream")
    assert TOKEN not in text


@pytest.mark.parametrize(
    "headers",
    [
        {"X_Headcount_Token": None},
        {"X_Headcount_Token": ""},
        {"X_Headcount_Token": TOKEN[:-1]},
        {"X_Headcount_Token": "ü" * 20},
        {"Host": "evil.example"},
        {"Host": "evil.example:80"},
        {"Host": None},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "https://127.0.0.1"},
        {"Sec_Fetch_Site": "cross-site"},
    ],
    ids=str,
)
def test_everybody_else_is_refused(server: ExplorerServer, headers: dict[str, Any]) -> None:
    given = {
        name: value and value.encode("utf-8").decode("latin-1") for name, value in headers.items()
    }
    status, text, _ = ask(server, **given)
    assert status in (400, 403)
    assert "data:" not in text


def test_another_port_of_this_machine_is_a_foreign_origin(server: ExplorerServer) -> None:
    assert ask(server, Origin=f"http://127.0.0.1:{server.port + 1}")[0] == 403
    assert ask(server, Host=f"127.0.0.1:{server.port + 1}")[0] == 403
    assert ask(server, Host=f"localhost:{server.port}", Origin=None)[0] == 200


def test_it_listens_on_loopback_only(server: ExplorerServer) -> None:
    assert server._socket.getsockname()[0] == "127.0.0.1"
    assert server.address.startswith("http://127.0.0.1:")


def test_the_pages_have_no_secret_and_load_nothing_from_outside(server: ExplorerServer) -> None:
    for path in ("/", "/explorer.js", "/panels.js", "/heads.js", "/page.css", "/explorer.css"):
        status, text, headers = ask(server, method="GET", path=path, X_Headcount_Token=None)
        assert status == 200
        assert TOKEN not in text
        assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in text
        assert headers["content-security-policy"].startswith(
            "default-src 'none'; script-src 'self'"
        )
        assert headers["x-frame-options"] == "DENY"
    assert ask(server, method="GET", path="/", Host="evil.example")[0] == 403


@pytest.mark.parametrize(
    "path", ["/../pyproject.toml", "/%2e%2e/x", "/page/index.html", "/etc/passwd"]
)
def test_no_other_file_is_served(server: ExplorerServer, path: str) -> None:
    assert ask(server, method="GET", path=path)[0] == 404


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{", b'"x"', b"[" * 100_000, b"{" + b" " * 300_000 + b"}", b"\xff\xfe"],
    ids=["empty", "list", "broken", "text", "nested", "long", "bytes"],
)
def test_what_is_no_request_is_refused(server: ExplorerServer, body: bytes) -> None:
    assert ask(server, body)[0] == 400


def test_only_json_is_read(server: ExplorerServer) -> None:
    """A form of a foreign page could send other types without asking first."""
    assert ask(server, Content_Type="text/plain")[0] == 400


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"kind": "__init__"}, "no inquiry"),
        ({"kind": "close"}, "no inquiry"),
        ({"kind": "start", "state": {"file": "x"}}, "no setting"),
        ({"kind": "probabilities", "state": {"heads": ["99.0"], "prompt": "pe"}}, "no head 99.0"),
    ],
)
def test_wrong_inquiries_are_refused_in_a_sentence(
    server: ExplorerServer, body: dict[str, Any], said: str
) -> None:
    status, text, _ = ask(server, body)
    assert status == 200
    assert text.startswith("event: refused\n")
    assert said in text


def test_a_port_in_use_gives_way_to_the_next() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with free_port(port) as found:
            assert found.getsockname()[1] > port


def test_a_port_that_is_none_is_refused() -> None:
    with pytest.raises(HeadcountError, match="from 0 to 65535"):
        free_port(70_000)


def test_a_signal_ends_it_without_a_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    """Python takes a thread for ended whose `join` a signal has interrupted."""
    main = threading.main_thread().ident
    assert main is not None
    with serving() as started:
        state = vars(started.session.first_state())
        answering = threading.Thread(
            target=ask, args=(started, {"kind": "text", "state": state, "new": 64})
        )
        answering.start()
        threading.Timer(0.3, signal.pthread_kill, (main, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            started.wait()
    assert started._ended.is_set()
    answering.join()
    time.sleep(0.3)
    assert capfd.readouterr().err == ""


def test_a_request_that_is_too_long_says_so(server: ExplorerServer) -> None:
    status, text, _ = ask(server, {"kind": "start", "state": {"prompt": "a" * 300_000}})
    assert status == 400
    assert "more than 256 kB" in text


def test_a_server_ends_and_another_takes_its_port() -> None:
    with serving() as first:
        port = first.port
        assert ask(first)[0] == 200
    with serving(tiny_session(), port) as second:
        assert second.port == port
        assert ask(second)[0] == 200
