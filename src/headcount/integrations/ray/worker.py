"""A worker: one process that keeps models warm and does units of jobs."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from headcount.errors import HeadcountError
from headcount.integrations.ray.order import Order, facts, model_refusal
from headcount.models.model import Model, load_model


@dataclass(frozen=True)
class Refused:
    """A sentence for the user, in place of a result."""

    sentence: str


@dataclass(frozen=True)
class Hello:
    """Where a worker is, and its versions."""

    host: str
    process: int
    facts: dict[str, str]


class Worker:
    """What runs in each worker process; Ray makes an actor of it."""

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.models: dict[str, Model] = {}
        self.job: tuple[str, Callable[[Any], Any]] | None = None  # the last one, ready

    def hello(self) -> Hello:
        """Say who is here."""
        return Hello(platform.node(), os.getpid(), facts())

    def load(self, order: Order) -> Refused | None:
        """Load a model and check that it is the one that was ordered."""
        try:
            model = load_model(**order.options)
        except HeadcountError as error:
            return Refused(f"The worker on {platform.node()} cannot load {order.name}: {error}")
        refusal = model_refusal(platform.node(), order, model.identity)
        if refusal is not None:
            return Refused(refusal)
        vars(model)["short_cuts"] = order.short_cuts  # else proven anew when first asked for
        self.models[order.key] = model
        return None

    def do(self, order: str, key: str, job: Sequence[Any], work: Any) -> Any:
        """Do one unit; the job is a reference (in a list, or Ray would fetch it every time)."""
        if self.job is None or self.job[0] != key:
            (reference,) = job
            self.job = key, import_module("ray").get(reference).ready(self.models[order])
        try:
            return self.job[1](work)
        except HeadcountError as error:
            return Refused(str(error))
