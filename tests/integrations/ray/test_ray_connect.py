"""What is refused before a cluster is there: each time one sentence, within seconds."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from headcount import HeadcountError
from headcount.cli import main
from headcount.integrations.ray import connect, ray_executor
from headcount.integrations.ray.executor import Size, size_for
from headcount.integrations.ray.worker import Worker, versions

# Not importorskip: Ray reads what is to be printed when it is first imported.
pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="the extra ray is not installed")


def refusal(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What the command says, and that it is all it says."""
    assert main(["ablate", "--heads", "0.0", *words]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.count("\n") == 1
    return said.err


@contextmanager
def listener(answer: bytes) -> Iterator[int]:
    """Something that listens and is not Ray."""
    import threading

    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(5)


def test_an_address_where_nothing_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # and closed again
    start = time.monotonic()
    said = refusal(capsys, "--ray", f"127.0.0.1:{port}")
    assert f"No Ray cluster can be reached at 127.0.0.1:{port} (Connection refused)" in said
    assert time.monotonic() - start < 5
    assert "No Ray cluster can be reached" in refusal(capsys, "--ray", "no-such-host.invalid:6379")


def test_an_address_where_something_else_answers(capsys: pytest.CaptureFixture[str]) -> None:
    with listener(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        said = refusal(capsys, "--ray", f"127.0.0.1:{port}")
    assert "(another program answers there)" in said


def test_an_address_where_something_listens_and_is_silent(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "PATIENCE", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        said = refusal(capsys, "--ray", f"127.0.0.1:{server.getsockname()[1]}")
    assert "(timed out)" in said


@pytest.mark.parametrize(
    "address",
    ["masked-heads", "ray://10.0.0.1:10001", "host:", ":6379", "h:0", "h:²", "h:" + "9" * 5000],
)
def test_what_is_no_address(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--ray", address)
    assert f'"{address}" is not the address of a Ray cluster' in said
    assert "with --ray at the end" in said


def test_a_study_taken_for_an_address(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--ray", "masked-heads"])
    assert "Write --ray after the name" in capsys.readouterr().err


def test_a_machine_in_no_cluster(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    ray = SimpleNamespace(is_initialized=lambda: False, shutdown=lambda: None, init=_nobody)
    monkeypatch.setattr(connect, "import_ray", lambda: ray)
    assert "This machine belongs to no Ray cluster" in refusal(capsys, "--ray", "auto")


def _nobody(**_: Any) -> None:
    raise ConnectionError("Could not find any running Ray instance.")


def test_another_ray_and_a_machine_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "_require_answer", lambda address: None)

    def saying(text: str) -> Any:
        def init(**_: Any) -> None:
            raise RuntimeError(text)

        return SimpleNamespace(init=init, shutdown=lambda: None)

    with pytest.raises(HeadcountError, match="another version of Ray or Python"):
        connect._connect(saying("Version mismatch: The cluster was started with:\n Ray: 2"), "h:1")
    with pytest.raises(HeadcountError, match=r"with ray start --address=h:1,.* RAY_AUTH_TOKEN"):
        connect._connect(saying("Can't find a node"), "h:1")


def test_a_local_cluster_leaves_no_token_in_the_home_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")  # as it is now, in the end
    monkeypatch.delenv("RAY_AUTH_TOKEN")
    tokens: list[str] = []
    init = lambda **_: tokens.append(os.environ["RAY_AUTH_TOKEN"])  # noqa: E731
    connect._connect(SimpleNamespace(init=init), "local")
    assert len(tokens[0]) == 64


def test_without_ray(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    usual = find_spec
    monkeypatch.setattr(connect, "find_spec", lambda name: None if name == "ray" else usual(name))
    assert "pip install 'headcount[ray]'" in refusal(capsys, "--ray")


def test_numbers_that_make_no_sense(capsys: pytest.CaptureFixture[str]) -> None:
    assert "at least one worker, not 0" in refusal(capsys, "--ray", "--workers", "0")
    assert "give --ray as well" in refusal(capsys, "--workers", "2")
    with pytest.raises(HeadcountError, match="at least one thread"), ray_executor(threads=0):
        pass


def nodes(*resources: dict[str, float]) -> Any:
    alive = [{"Alive": True, "Resources": some} for some in resources]
    return SimpleNamespace(nodes=lambda: [*alive, {"Alive": False, "Resources": {"CPU": 99}}])


def on(kind: str, device_map: str | None = None) -> Any:
    return SimpleNamespace(device=torch.device(kind), origin={"device_map": device_map})


def test_how_many_workers_on_processors() -> None:
    cpu = on("cpu")
    assert size_for(nodes({"CPU": 2}), cpu, None, None) == Size(2, 1, 1, 0)
    assert size_for(nodes({"CPU": 1}), cpu, None, None) == Size(1, 1, 1, 0)
    assert size_for(nodes({"CPU": 16}), cpu, None, None) == Size(4, 4, 4, 0)
    assert size_for(nodes({"CPU": 16}), cpu, 2, 1) == Size(2, 1, 1, 0)
    assert size_for(nodes({"CPU": 8}, {"CPU": 8}), cpu, 2, None) == Size(2, 8, 8, 0)
    assert size_for(nodes({"CPU": 2}), cpu, 4, None) == Size(4, 1, 0.5, 0)
    with pytest.raises(HeadcountError, match="no CPUs"):
        size_for(nodes({}), cpu, None, None)


def test_how_many_workers_on_gpus() -> None:
    two = nodes({"CPU": 8, "GPU": 4}, {"CPU": 8, "GPU": 2})
    assert size_for(two, on("cuda"), None, None) == Size(6, 1, 1, 1)
    assert size_for(two, on("cuda", "auto"), None, None) == Size(2, 1, 1, 3)
    assert size_for(two, on("cuda"), 3, None).needs == "1 CPU and 1 GPU"
    with pytest.raises(HeadcountError, match="cluster has none: give fewer --workers"):
        size_for(nodes({"CPU": 2}), on("cuda"), None, None)
    with pytest.raises(HeadcountError, match=r"7 workers on GPUs need as many GPUs.* has 6"):
        size_for(two, on("cuda"), 7, None)


def test_versions_that_differ_are_named() -> None:
    ours = versions()
    assert Worker(1).introduce(ours)[1] == os.getpid()
    sentence = rf"has torch {re.escape(ours['torch'])} \(here 1\.0\): install the same versions"
    with pytest.raises(HeadcountError, match=sentence):
        Worker(1).introduce({**ours, "torch": "1.0"})


def test_no_gpu_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert main(["ablate", "--heads", "0.0", "--device", "cuda"]) == 2
    assert 'has no device "cuda"' in capsys.readouterr().err


def test_help_does_not_wait_for_ray() -> None:
    script = (
        "import sys, headcount\nfrom headcount.cli import main\n"
        "try: main(['run', 'masked-heads', '--help'])\nexcept SystemExit: pass\n"
        "assert not {'ray', 'torch'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "--ray [ADDRESS]" in done.stdout


def test_this_machines_own_cluster_is_refused_for_the_true_reason() -> None:
    none = connect._reason("auto", ConnectionError("Could not find any running Ray instance."))
    assert "belongs to no Ray cluster" in none
    token = connect._reason("auto", RuntimeError("AuthenticationError: invalid token"))
    assert "RAY_AUTH_TOKEN" in token
    assert "belongs to no" not in token
    other = connect._reason("auto", RuntimeError("Version mismatch: 2.50 against 2.60"))
    assert "another version of Ray" in other
