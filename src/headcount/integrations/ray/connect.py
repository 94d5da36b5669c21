"""Start a Ray cluster on this machine, or join one, for as long as something is measured."""

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
PATIENCE = 5.0  # seconds in which a cluster must answer
STORE_BYTES = 256 << 20  # of shared memory: jobs and results are small
# What every HTTP/2 connection starts with, and an empty frame of settings: Ray speaks gRPC.
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
SETTINGS_FRAME = 4
# Nothing is told to anybody outside, and nothing is printed but our own sentences.
ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS_SKIP_REGEX": ".",  # what Ray would print into our output when a worker dies
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else a warning about a future default
}


@contextmanager
def ray_executor(
    address: str = LOCAL, *, workers: int | None = None, threads: int | None = None
) -> Iterator[RayExecutor]:
    """An executor for a `Lab`: workers on a Ray cluster, which end with the block.

    `address` "local" starts a cluster on this machine and ends it afterwards; HOST:PORT joins the
    one there, and "auto" the one that this machine belongs to. `workers` defaults to one for each
    GPU where the model is on one, else to one for every four cores and at least two. Each runs on
    `threads` threads: OMP_NUM_THREADS where that is set, else its share of the cores.

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
    ours = not ray.is_initialized()  # else the caller has joined one, and will leave it
    if ours:
        _connect(ray, address)
    from headcount.integrations.ray.executor import RayExecutor

    pinned = os.environ.get("OMP_NUM_THREADS", "")
    executor = RayExecutor(ray, workers, threads or int(pinned if pinned.isdigit() else 0) or None)
    try:
        yield executor
    finally:
        executor.close()
        if ours:
            ray.shutdown()


def import_ray() -> Any:
    """Ray, told to be quiet."""
    if find_spec("ray") is None:
        raise HeadcountError(
            "Many machines need Ray, which is not installed here: pip install 'headcount[ray]'"
        )
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    return import_module("ray")


def _connect(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL, "configure_logging": True}
    if address == LOCAL:
        # A token for this cluster alone: Ray would leave one in the home folder, and every cluster
        # that is started later would ask for it.
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
    said = " ".join(str(error).split())
    if address == "auto":
        return (
            "This machine belongs to no Ray cluster: start one with ray start --head, or leave out "
            "the address to have one for this command alone."
        )
    if "ersion mismatch" in said:
        return (
            f"The Ray cluster at {address} runs another version of Ray or Python than this "
            f"process: {said.partition('.')[0] if len(said) > 300 else said}"
        )
    return (
        f"The Ray cluster at {address} cannot be joined from this machine: add it with ray start "
        f"--address={address} first, and where the cluster has a token (ray get-auth-token prints "
        f"it there) set RAY_AUTH_MODE=token and RAY_AUTH_TOKEN ({said[:200]})."
    )


def _require_answer(address: str) -> None:
    """Refuse an address at which nothing answers; Ray itself would try for many minutes."""
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit() and 0 < int(port) < 65536) or "/" in host:
        raise HeadcountError(
            f'"{address}" is no address of a Ray cluster: write HOST:PORT, such as '
            "10.0.0.1:6379, auto for the one that this machine belongs to, or nothing, with --ray "
            "at the end."
        )
    try:
        with socket.create_connection((host.strip("[]"), int(port)), PATIENCE) as connection:
            connection.sendall(HELLO)
            answer = connection.recv(9)
    except OSError as error:
        answer, said = b"", error.strerror or str(error)
    else:
        said = "what answers there is not Ray"
    if len(answer) < 4 or answer[3] != SETTINGS_FRAME:
        raise HeadcountError(
            f"No Ray cluster can be reached at {address} ({said}): check the address, and that "
            "ray start --head runs there."
        )
