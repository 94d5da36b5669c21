"""Who carries out work: this process, or others that an executor speaks for.

A *job* is all that one request asks; its *units* are what a worker does at a time, and what is lost
when it dies. An executor knows neither what is measured nor where it is kept.
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

    key    sha256 of all that determines its result
    name   what it is, for people
    work   plain data that the job understands
    """

    key: str
    name: str
    work: Any


Emit = Callable[[Any], None]


class Job(Protocol):
    """What is common to units: plain data, which travels to a worker once."""

    def ready(self, model: Model) -> Callable[[Any, Emit], None]:
        """A function that does the `work` of a unit and emits its results as they are found."""


class Executor(Protocol):
    """Carries out jobs."""

    def workers(self, model: Model) -> int:
        """How many other processes hold this model; 0 where this process does the work."""

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        """Do every unit once, and hand each result to `keep` as soon as it is there."""


class Local:
    """Carries out jobs in this process, one unit after the other."""

    def workers(self, model: Model) -> int:
        """No other process."""
        return 0

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        """Do the units here, in their order."""
        do = job.ready(model)
        for unit in units:
            do(unit.work, partial(keep, unit))
