"""A worker: a process that loads models and does units of jobs with them.

A worker is used only if it has the same versions and the same model as the main process.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from headcount.engine.measure.executor import Emit
from headcount.engine.measure.plan import MEASUREMENT
from headcount.errors import HeadcountError
from headcount.models.bundled import BUNDLED
from headcount.models.fast_paths import FastPaths
from headcount.models.model import Model, load_model
from headcount.system.files import canonical, digest

WORDS = {"weights": "model file", "device": "kind of device", "kernel": "attention kernel"}


@dataclass(frozen=True)
class LoadInstructions:
    """How a worker loads a model, and how it checks that it is the same model.

    The main process proves the model's fast paths: with the same weights and versions, the proof
    holds in a worker too.
    """

    name: str
    options: Mapping[str, Any]
    identity: Mapping[str, str]
    fast_paths: FastPaths

    @classmethod
    def of(cls, model: Model) -> LoadInstructions:
        """Instructions to load this model."""
        if model.origin is None:
            raise HeadcountError(
                f"{model.name} exists only in memory, and workers load models from files: save it "
                "and use load_model, or measure without a cluster."
            )
        options = dict(model.origin)
        path = Path(options["spec"]).expanduser()
        if options["spec"] not in BUNDLED and path.exists():
            options["spec"] = str(path.resolve())  # a worker may run in another folder
        if options["device_map"] is None:
            options["device"] = model.device.type  # a worker sees its own GPU as the first
        return cls(model.name, options, dict(model.identity), model.fast_paths)

    @property
    def key(self) -> str:
        """The key of the model in a worker's memory."""
        return digest(canonical({"options": repr(sorted(self.options.items())), **self.identity}))

    def load(self) -> Model:
        """Load the model in this worker; refuse a model that differs from the main process's."""
        where = f"The worker on {platform.node()}"
        try:
            model = load_model(**self.options)
        except HeadcountError as error:
            raise HeadcountError(f"{where} cannot load {self.name}: {error}") from error
        if wrong := _differences(model.identity, self.identity):
            raise HeadcountError(
                f"{where} has {wrong} for {self.name}: give every machine the same model."
            )
        vars(model)["fast_paths"] = self.fast_paths  # replaces the lazy proof
        return model


def versions() -> dict[str, str]:
    """The versions that influence a measured value."""
    modules = ("headcount", "torch", "transformers")
    numbers = {name: str(import_module(name).__version__) for name in modules}
    return {**numbers, "measurement version": str(MEASUREMENT)}


def _differences(worker: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """How a worker differs from what is wanted, in words; empty if it does not."""
    return " and ".join(
        f"{WORDS.get(name, name)} {worker.get(name, 'none')[:20]} (here {value[:20]})"
        for name, value in wanted.items()
        if worker.get(name) != value
    )


class Worker:
    """The class that runs in each worker process, as a Ray actor."""

    def __init__(self, threads: int) -> None:
        import_module("torch").set_num_threads(threads)
        self.models: dict[str, Model] = {}
        self.job: tuple[int, Callable[[Any, Emit], None]] | None = (
            None  # the last job and its function
        )

    def introduce(self, wanted: Mapping[str, str]) -> tuple[str, int]:
        """The machine's name and the process id; refused if versions differ."""
        if wrong := _differences(versions(), wanted):
            where = f"The worker on {platform.node()}"
            raise HeadcountError(f"{where} has {wrong}: install the same versions there.")
        return platform.node(), os.getpid()

    def load(self, instructions: LoadInstructions) -> None:
        """Load a model and keep it."""
        self.models[instructions.key] = instructions.load()

    def do(self, model: str, number: int, job: Sequence[Any], work: Any) -> list[Any]:
        """All results of one unit; `job` holds a reference, which is fetched once per job."""
        if self.job is None or self.job[0] != number:
            (reference,) = job
            self.job = number, import_module("ray").get(reference).ready(self.models[model])
        results: list[Any] = []
        self.job[1](work, results.append)
        return results
