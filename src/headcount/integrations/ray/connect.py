"""Start a Ray cluster on this machine, or join a running one, for the time of a measurement."""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from headcount.errors import HeadcountError

if TYPE_CHECKING:
    from headcount.integrations.ray.executor import RayExecutor

LOCAL = "local"
PATIENCE = 5.0  # seconds within which a cluster must answer
STORE_BYTES = 256 << 20  # of shared memory for Ray: jobs and results are small
# The start of an HTTP/2 connection and an empty settings frame: Ray uses gRPC, thus HTTP/2.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
SETTINGS_FRAME = 4
# Ray must send no usage statistics, and print nothing of its own.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # no messages of Ray when a worker dies
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # avoids a warning about a future default
}


@contextmanager
def ray_executor(
    address: str = LOCAL, *, workers: int | None = None, threads: int | None = None
) -> Iterator[RayExecutor]:
    """An executor for a `Lab`: workers on a Ray cluster, which end with this context.

    `address` "local" starts a cluster on this machine and ends it afterwards; HOST:PORT joins the
    cluster there, and "auto" the cluster that this machine belongs to. `workers` defaults to one
    per GPU for a model on a GPU, and otherwise to one per four cores, at least two. Each worker
    runs on `threads` threads, by default OMP_NUM_THREADS or else its share of the cores.

    >>> from headcount import Lab, evaluate, load_model, make_task
    >>> from headcount.integrations.ray import ray_executor
    >>> model = load_model("smollm2-135m-q4")
    >>> task = make_task("ioi", model.tokenizer, n=20)
    >>> with ray_executor(workers=2) as executor:  # doctest: +SKIP
    ...     lab = Lab(executor=executor)
    ...     values = evaluate(model, task, model.layout.gates(off=[]), lab=lab)
    """
    if workers is not None and workers < 1:
        raise HeadcountError(f"A cluster needs at least one worker, not {workers}.")
    if threads is not None and threads < 1:
        raise HeadcountError(f"A worker needs at least one thread, not {threads}.")
    ray = import_ray()
    connects = not ray.is_initialized()  # else the caller has joined a cluster, and will leave it
    if connects:
        _connect(ray, address)
    from headcount.integrations.ray.executor import RayExecutor, check_workers

    pinned = os.environ.get("OMP_NUM_THREADS", "")
    executor = RayExecutor(ray, workers, threads or int(pinned if pinned.isdigit() else 0) or None)
    try:
        if workers is not None:
            check_workers(ray, workers)
        yield executor
    finally:
        executor.close()
        if connects:
            ray.shutdown()


def import_ray() -> Any:
    """The module ray, with its messages switched off."""
    if find_spec("ray") is None:
        raise HeadcountError(
            "A cluster needs Ray, which is not installed: run pip install 'headcount[ray]'."
        )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return import_module("ray")


def _connect(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": True}
    if address == LOCAL:
        # A token for this cluster alone. Ray would otherwise write one into the home folder, and
        # every later cluster would ask for it.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
        ray.init(address=LOCAL, include_dashboard=False, object_store_memory=STORE_BYTES, **quiet)
        return
    if address != "auto":
        _require_answer(address)
    try:
        ray.init(address=address, **quiet)
    except Exception as error:
        with suppress(Exception):
            ray.shutdown()
        raise HeadcountError(_reason(address, error)) from error


def _reason(address: str, error: Exception) -> str:
    """Why the cluster could not be joined, in one sentence."""
    message = " ".join(str(error).split())
    if address == "auto" and isinstance(error, ConnectionError):
        return (
            "This machine belongs to no Ray cluster: start one with ray start --head, or leave the "
            "address out to start a cluster for this command alone."
        )
    cluster = "of this machine" if address == "auto" else f"at {address}"
    if "ersion mismatch" in message:
        return (
            f"The Ray cluster {cluster} runs another version of Ray or Python than this "
            f"process: {message.partition('.')[0] if len(message) > 300 else message}"
        )
    first = "" if address == "auto" else f"add it first, with ray start --address={address}, and "
    return (
        f"The Ray cluster {cluster} cannot be joined from this machine: {first}if the cluster "
        "has a token (shown there by ray get-auth-token) set RAY_AUTH_MODE=token and "
        f"RAY_AUTH_TOKEN ({message[:200]})."
    )


def reachable(address: str) -> bool:
    """Whether a connection to HOST:PORT is taken within a few seconds."""
    host, _, port = address.rpartition(":")
    with suppress(OSError), socket.create_connection((host.strip("[]"), int(port)), PATIENCE):
        return True
    return False


def _require_answer(address: str) -> None:
    """Refuse an address where no Ray answers; Ray itself would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if (
        not (colon and host and port.isdecimal() and len(port) < 6 and 0 < int(port) < 65536)
        or "/" in host
    ):
        raise HeadcountError(
            f'"{address}" is not the address of a Ray cluster: give HOST:PORT, such as '
            "10.0.0.1:6379, or auto for the cluster of this machine, or nothing, with --ray at the "
            "end, to start a cluster."
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as connection:
            connection.sendall(HELLO)
            answer = connection.recv(9)
    except OSError as error:
        answer, reason = b"", error.strerror or str(error)
    else:
        reason = "another program answers there"
    if len(answer) < 4 or answer[3] != SETTINGS_FRAME:
        raise HeadcountError(
            f"No Ray cluster can be reached at {address} ({reason}): check the address, and that "
            "ray start --head runs there."
        )
