"""Executors carry out work: in this process, or in the worker processes of a cluster.

A *job* is all the work of one request. It is cut into *units*: a worker carries out one unit at a
time, and loses that unit if it dies. An executor does not know what a job measures or where the
results are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from headcount.models.model import Model


@dataclass(frozen=True)
class Unit:
    """A piece of a job.

    key    sha256 of everything that determines the unit's result
    name   a description for messages and logs
    work   plain data that tells the job what to do
    """

    key: str
    name: str
    work: Any


Emit = Callable[[Any], None]


class Job(Protocol):
    """The data that all units of a job need; it is sent to each worker once."""

    def ready(self, model: Model) -> Callable[[Any, Emit], None]:
        """Make a function that does the `work` of a unit and emits each result when it is ready."""


class Executor(Protocol):
    """Carries out jobs."""

    def workers(self, model: Model) -> int:
        """How many worker processes have loaded this model; 0 if this process does the work."""

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        """Carry out every unit once, and pass each result to `keep` as soon as it arrives."""


class Local:
    """Carries out jobs in this process, one unit after the other."""

    def workers(self, model: Model) -> int:
        """Return 0: there are no worker processes."""
        return 0

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        """Carry out the units in this process, in the given order."""
        do = job.ready(model)
        for unit in units:
            do(unit.work, partial(keep, unit))
