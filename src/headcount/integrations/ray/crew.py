"""The workers of one cluster: who is there, what each is at, and who takes over from the dead."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count as counter
from typing import Any

from headcount.engine.measure.workers import Job, Unit
from headcount.errors import HeadcountError
from headcount.integrations.ray.order import Order, facts, order_for, version_refusal
from headcount.integrations.ray.size import Size, size_for
from headcount.integrations.ray.worker import Hello, Refused, Worker
from headcount.models.model import Model

LOG = logging.getLogger("headcount.integrations.ray")
DEATHS = 3  # of workers at one unit, or of as many as there are in a row before they do any
PATIENCE = 180.0  # seconds in which the first worker must have started
SILENT = 20.0  # of these, before it is said that they are waited for
LOOK = 1.0  # seconds between two looks at whether anybody has


@dataclass(eq=False)
class _Hand:
    """One worker, and what it has done so far."""

    actor: Any
    host: str = ""
    process: int = 0
    loaded: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class _Call:
    """What a worker is at: saying hello, loading a model, or a unit."""

    hand: _Hand
    unit: Unit | None = None
    order: Order | None = None


class Crew:
    """Workers as actors on a Ray cluster, each with a loaded model that stays warm.

    One that dies is replaced, and its unit is done again by whoever is free first.
    """

    def __init__(self, ray: Any, workers: int | None, threads: int | None) -> None:
        self.ray, self.workers, self.threads = ray, workers, threads
        self.hands: list[_Hand] = []
        self.size: Size | None = None
        self.jobs = counter()
        self.started = 0.0  # when the first of those that are starting was asked for
        self.waited = 0.0  # for them, at the last look
        self.early_deaths = 0  # in a row, before any work
        exceptions = ray.exceptions
        self.death = (
            exceptions.RayActorError,
            exceptions.WorkerCrashedError,
            exceptions.OutOfMemoryError,
            exceptions.ObjectLostError,
        )

    def count(self, model: Model) -> int:
        """How many workers there are, or will be, for this model."""
        return self._sized(model).workers

    def dismiss(self) -> None:
        """End all workers."""
        for hand in self.hands:
            self.ray.kill(hand.actor)
        self.hands = []

    def do(self, model: Model, job: Job, units: Sequence[Unit]) -> Iterator[tuple[Unit, Any]]:
        """Every unit with its result, once, in the order in which they are finished."""
        order = order_for(model)
        size = self._sized(model)
        while len(self.hands) < min(size.workers, len(units)):
            self.hands.append(self._hire(size))
        key, reference = f"{next(self.jobs)}", self.ray.put(job)
        waiting, deaths = deque(units), Counter[int]()
        calls: dict[Any, _Call] = {}
        idle = list(self.hands)
        self.started, self.waited, left = time.monotonic(), 0.0, len(units)
        while left:
            while idle and waiting:
                hand = idle.pop()
                calls |= self._next(hand, order, waiting, (order.key, key, [reference]))
            done, _ = self.ray.wait(list(calls), timeout=LOOK)
            if not done:
                self._check_start(calls.values(), size)
            for future in done:
                call = calls.pop(future)
                try:
                    result = self.ray.get(future)
                except self.death as error:
                    idle.append(self._replace(call, size, error, deaths, waiting))
                    continue
                self._check(call, result)
                idle.append(call.hand)
                if call.unit is not None:
                    left -= 1
                    self.early_deaths = 0
                    yield call.unit, result

    def _sized(self, model: Model) -> Size:
        if self.size is None:
            self.size = size_for(self.ray, model, self.workers, self.threads)
        return self.size

    def _hire(self, size: Size) -> _Hand:
        actor = self.ray.remote(Worker).options(
            num_cpus=size.cpus,
            num_gpus=size.gpus,
            max_restarts=0,  # a worker that died is replaced here, where its unit is known
            scheduling_strategy="SPREAD",
        )
        return _Hand(actor.remote(size.threads))

    def _next(
        self, hand: _Hand, order: Order, waiting: deque[Unit], job: tuple[Any, ...]
    ) -> dict[Any, _Call]:
        """What this worker does next: it says hello, loads the model, then works."""
        if not hand.host:
            return {hand.actor.hello.remote(): _Call(hand)}
        if order.key not in hand.loaded:
            return {hand.actor.load.remote(order): _Call(hand, order=order)}
        unit = waiting.popleft()
        return {hand.actor.do.remote(*job, unit.work): _Call(hand, unit)}

    def _check(self, call: _Call, result: Any) -> None:
        """Take note of an answer, or pass a refusal on."""
        if isinstance(result, Refused):
            raise HeadcountError(result.sentence)
        if call.order is not None:
            call.hand.loaded.add(call.order.key)
        elif isinstance(result, Hello):
            refusal = version_refusal(result.host, result.facts, facts())
            if refusal is not None:
                raise HeadcountError(refusal)
            call.hand.host, call.hand.process = result.host, result.process

    def _replace(
        self,
        call: _Call,
        size: Size,
        error: Exception,
        deaths: Counter[int],
        waiting: deque[Unit],
    ) -> _Hand:
        """Another worker for one that has died; its unit goes back to the front."""
        why = _why(error)
        self.hands.remove(call.hand)
        self.ray.kill(call.hand.actor)  # if only its result was lost
        if call.unit is None:
            self.early_deaths += 1
            if "creation task" in str(error) or self.early_deaths >= DEATHS * size.workers:
                raise HeadcountError(f"Workers die before they have done any work: {why}")
        else:
            deaths[id(call.unit)] += 1
            if deaths[id(call.unit)] == DEATHS:
                raise HeadcountError(
                    f"{DEATHS} workers died at the same unit ({call.unit.name}; "
                    f"{call.unit.key[:12]}): {why}"
                )
            waiting.appendleft(call.unit)
            LOG.warning(
                "The worker on %s (process %d) died; its unit is done again: %s.",
                call.hand.host,
                call.hand.process,
                call.unit.name,
            )
        new = self._hire(size)
        self.hands.append(new)
        return new

    def _check_start(self, calls: Iterable[_Call], size: Size) -> None:
        """Wait for workers that cannot start yet, but not for ever."""
        if any(call.hand.host for call in calls):
            self.started = time.monotonic()
            return
        waited, before = time.monotonic() - self.started, self.waited
        self.waited = waited
        if waited > PATIENCE:
            raise HeadcountError(
                f"No worker could start within {PATIENCE:.0f} seconds: the cluster has no room for "
                f"{size.wish} (ray status shows what it has)."
            )
        if before <= SILENT < waited:
            LOG.warning("Waiting for the cluster to have room for %s.", size.wish)


def _why(error: Exception) -> str:
    """What Ray says of a death, in one sentence."""
    said = str(error)
    if "ModuleNotFoundError" in said or "ImportError" in said:
        return "not every machine of the cluster has headcount, in this version."
    if type(error).__name__ == "OutOfMemoryError":
        return "the machine ran out of memory."
    if "creation task" in said:
        return said.strip().splitlines()[-1]
    return "the process ended without a word (killed, out of memory, or its machine is gone)."
