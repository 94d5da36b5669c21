"""A worker: a process that loads models as instructed and does units of jobs with them.

It is given work only where it has the same versions as the process that asks, and the same model.
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
    """How to load a model, and by what to know that it is the right one.

    Its fast paths are proven once, by the process that asks: for the same weights and versions they
    hold in a worker too.
    """

    name: str
    options: Mapping[str, Any]
    identity: Mapping[str, str]
    fast_paths: FastPaths

    @classmethod
    def of(cls, model: Model) -> LoadInstructions:
        """Instructions by which a worker loads this model."""
        if model.origin is None:
            raise HeadcountError(
                f"{model.name} was wrapped in memory, and workers can only load a model by "
                "themselves: save it and use load_model, or measure without a cluster."
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
        """What workers remember the model by."""
        return digest(canonical({"options": repr(sorted(self.options.items())), **self.identity}))

    def load(self) -> Model:
        """Load the model here; refuse one that is not the same."""
        where = f"The worker on {platform.node()}"
        try:
            model = load_model(**self.options)
        except HeadcountError as error:
            raise HeadcountError(f"{where} cannot load {self.name}: {error}") from error
        if wrong := _differences(model.identity, self.identity):
            raise HeadcountError(
                f"{where} has {wrong} for {self.name}: give every machine the same model."
            )
        vars(model)["fast_paths"] = self.fast_paths  # else they would be proven anew when asked for
        return model


def versions() -> dict[str, str]:
    """The versions that determine a value."""
    modules = ("headcount", "torch", "transformers")
    numbers = {name: str(import_module(name).__version__) for name in modules}
    return {**numbers, "measurement version": str(MEASUREMENT)}


def _differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """What a worker has and what it should have, in words; empty where all is the same."""
    return " and ".join(
        f"{WORDS.get(name, name)} {there.get(name, 'none')[:20]} (here {value[:20]})"
        for name, value in here.items()
        if there.get(name) != value
    )


class Worker:
    """What runs in each worker process; Ray makes an actor of it."""

    def __init__(self, threads: int) -> None:
        import_module("torch").set_num_threads(threads)
        self.models: dict[str, Model] = {}
        self.job: tuple[int, Callable[[Any, Emit], None]] | None = None  # the last one, ready

    def introduce(self, wanted: Mapping[str, str]) -> tuple[str, int]:
        """The machine's name and the number of the process; refuse where versions differ."""
        if wrong := _differences(versions(), wanted):
            where = f"The worker on {platform.node()}"
            raise HeadcountError(f"{where} has {wrong}: install the same versions there.")
        return platform.node(), os.getpid()

    def load(self, instructions: LoadInstructions) -> None:
        """Load a model and keep it."""
        self.models[instructions.key] = instructions.load()

    def do(self, model: str, number: int, job: Sequence[Any], work: Any) -> list[Any]:
        """All results of one unit; the job is a reference, in a list so that it is fetched once."""
        if self.job is None or self.job[0] != number:
            (reference,) = job
            self.job = number, import_module("ray").get(reference).ready(self.models[model])
        results: list[Any] = []
        self.job[1](work, results.append)
        return results
