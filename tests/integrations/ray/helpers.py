"""What the tests of Ray share: a model on disk, metrics that travel, processes to count."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
from tiny import tiny_model
from toy import toy_tokenizer

from headcount.metrics import METRICS, Metric


def save_model(folder: Path, seed: int = 0) -> Path:
    tiny_model("llama", num_hidden_layers=3, seed=seed).save_pretrained(folder)
    toy_tokenizer().save_pretrained(folder)
    return folder


def metric_that(acts: Callable[[Any], None], key: str) -> Metric:
    """log p, after an act; `acts` must be a local function, or workers would look for its file."""
    usual = METRICS["logprob"].function

    def function(scored: Any) -> Any:
        acts(scored)
        return usual(scored)

    return Metric(key, key, function)


def waits_once(marker: Path) -> Callable[[Any], None]:
    """The first to come writes its process id to a file and waits to be killed."""

    def act(_: Any) -> None:
        try:
            handle = os.open(marker, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return
        os.write(handle, f"{os.getpid()}\n".encode())
        os.close(handle)
        time.sleep(60)

    return act


def dies_at(token: int) -> Callable[[Any], None]:
    """Whoever comes to an example whose target starts with this token kills itself."""

    def act(scored: Any) -> None:
        if (scored.targets[:, 0] == token).any():
            os.kill(os.getpid(), 9)

    return act


def ray_processes() -> list[str]:
    """The processes below this one that belong to Ray."""
    processes = []
    for child in psutil.Process().children(recursive=True):
        try:
            words = " ".join(child.cmdline())
        except psutil.Error:
            continue
        if "ray" in words:
            processes.append(words)
    return processes
