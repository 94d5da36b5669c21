"""Other processes that measure: what they are given, and which are at hand.

A *job* is all that one call asks; its *units* are what a worker does at a time, and what is lost
when it dies. Who the workers are, this room does not know: see `headcount.integrations.ray`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
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


class Job(Protocol):
    """What is common to units: plain data, which travels to a worker once."""

    def ready(self, model: Model) -> Callable[[Any], Any]:
        """What turns the `work` of a unit into its result, on a worker that holds the model."""


class Workers(Protocol):
    """Processes that hold the model, each doing one unit at a time."""

    def count(self, model: Model) -> int:
        """How many there are for this model."""

    def do(self, model: Model, job: Job, units: Sequence[Unit]) -> Iterator[tuple[Unit, Any]]:
        """Every unit with its result, once, in the order in which they are finished."""


_AT_HAND: ContextVar[Workers | None] = ContextVar("workers", default=None)


def workers() -> Workers | None:
    """The workers that measure now; None where this process does so itself."""
    return _AT_HAND.get()


@contextmanager
def working(some: Workers | None) -> Iterator[None]:
    """Let these workers (or, with None, this process) measure whatever is measured inside."""
    token = _AT_HAND.set(some)
    try:
        yield
    finally:
        _AT_HAND.reset(token)
