"""The executor of a Ray cluster: it gives work to workers, and replaces workers that die."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from headcount.engine.measure.executor import Job, Unit
from headcount.errors import HeadcountError, counted
from headcount.integrations.ray.connect import reachable
from headcount.integrations.ray.worker import LoadInstructions, Worker, versions
from headcount.models.model import Model

LOG = logging.getLogger("headcount.integrations.ray")
DEATHS = 3  # of workers that end a run: at one unit, or per worker in a row before any work
PATIENCE = 180.0  # seconds within which the first worker must start
SILENT = 20.0  # seconds of waiting before a message says so
LOOK = 1.0  # seconds between two checks whether workers have started
LOST = 40.0  # seconds without the head that end a run; at 60 Ray itself would end the process
CORES = 4  # per worker without a GPU, if the cluster has enough
MOST_PER_CORE = 16  # workers: each holds the whole model in memory


@dataclass(frozen=True)
class Size:
    """The number of workers, and the share of the cluster that each takes."""

    workers: int
    threads: int
    cpus: float
    gpus: float

    @property
    def needs(self) -> str:
        """What a worker needs, in words."""
        what = f"{self.cpus:g} CPU{'s' if self.cpus > 1 else ''}"
        return f"{what} and {self.gpus:g} GPU{'s' if self.gpus > 1 else ''}" if self.gpus else what


def check_workers(ray: Any, workers: int) -> None:
    """Refuse far more workers than the cluster has CPUs, before a model is loaded."""
    cpus = sum(int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"])
    if cpus and workers > MOST_PER_CORE * cpus:
        raise HeadcountError(
            f"{workers:,} workers are too many for the Ray cluster, which has "
            f"{counted(cpus, 'CPU')}: give at most {MOST_PER_CORE * cpus:,} --workers."
        )


def size_for(ray: Any, model: Model, workers: int | None, threads: int | None) -> Size:
    """Fit `workers` (by default as many as possible) into the cluster."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if model.device.type == "cuda":
        spread = (model.origin or {}).get("device_map") is not None
        return _on_gpus([int(node.get("GPU", 0)) for node in nodes], spread, workers, threads)
    cpus = [int(node.get("CPU", 0)) for node in nodes]
    if sum(cpus) < 1:
        raise HeadcountError(
            "The Ray cluster has no CPUs for workers: add a machine with ray start."
        )
    if workers is None:
        workers = max(min(2, sum(cpus)), sum(max(1, cores // CORES) for cores in cpus if cores))
    share = sum(cpus) / workers
    threads = threads or max(1, min(int(share), max(cpus)))
    return Size(workers, threads, share if share < 1 else min(threads, int(share), max(cpus)), 0)


def _on_gpus(gpus: list[int], spread: bool, workers: int | None, threads: int | None) -> Size:
    """One GPU per worker, or an equal share of all GPUs if a device map spreads the model."""
    total = sum(gpus)
    if workers is None:
        workers = max(1, sum(1 for count in gpus if count) if spread else total)
    if workers > total:
        raise HeadcountError(
            f"{workers} worker{'s' if workers > 1 else ''} on GPUs need as many GPUs, and the Ray "
            f"cluster has {total or 'none'}: give fewer --workers, or use --device cpu."
        )
    each = min(total // workers, max(gpus)) if spread else 1
    return Size(workers, threads or 1, 1, each)


@dataclass(eq=False)
class _WorkerState:
    """What is known of a worker, which introduces itself, loads the model, and then does units.

    `host` is empty until it has introduced itself; `unit` is the number of its present unit.
    """

    actor: Any
    host: str = ""
    process: int = 0
    models: set[str] = field(default_factory=set)
    unit: int | None = None


class RayExecutor:
    """Workers that are Ray actors and keep their models in memory.

    A worker that dies is replaced, and the next free worker repeats its unit.
    """

    def __init__(self, ray: Any, workers: int | None, threads: int | None) -> None:
        self.ray, self.most, self.threads = ray, workers, threads
        self.pool: list[_WorkerState] = []
        self.jobs = count()
        self._size: Size | None = None
        self.head = str(ray.get_runtime_context().gcs_address)
        self.lost = False  # whether the head was given up

    def workers(self, model: Model) -> int:
        """How many workers run this model."""
        return self.size(model).workers

    def size(self, model: Model) -> Size:
        """The share of each worker in the cluster, which the first measured model decides."""
        if self._size is None:
            self._size = size_for(self.ray, model, self.most, self.threads)
        return self._size

    def run(
        self, model: Model, job: Job, units: Sequence[Unit], keep: Callable[[Unit, Any], None]
    ) -> None:
        """Let workers do every unit once; its results go to `keep` when it is finished."""
        instructions, size = LoadInstructions.of(model), self.size(model)
        while len(self.pool) < min(size.workers, len(units)):
            self.start(size)
        _Run(self, instructions, size, job, units, keep).carry_out()

    def start(self, size: Size) -> _WorkerState:
        """Ask the cluster for one more worker."""
        actor = self.ray.remote(Worker).options(
            num_cpus=size.cpus,
            num_gpus=size.gpus,
            max_restarts=0,  # `_Run` replaces a dead worker, because it knows the unit
            scheduling_strategy="SPREAD",
        )
        self.pool.append(_WorkerState(actor.remote(size.threads)))
        return self.pool[-1]

    def stop(self, worker: _WorkerState) -> None:
        """End one worker."""
        self.pool.remove(worker)
        self.ray.kill(worker.actor)

    def close(self) -> None:
        """End all workers; without a head they end by themselves."""
        for worker in [] if self.lost else list(self.pool):
            self.stop(worker)


@dataclass(eq=False)
class _Run:
    """One run of a job: hands its units to workers and takes the results."""

    executor: RayExecutor
    instructions: LoadInstructions
    size: Size
    job: Job
    units: Sequence[Unit]
    keep: Callable[[Unit, Any], None]
    calls: dict[Any, _WorkerState] = field(default_factory=dict)
    deaths: Counter[int] = field(default_factory=Counter)  # unit's number → workers that died at it
    early_deaths: int = 0  # workers in a row that died before any work
    started: float = field(default_factory=time.monotonic)  # the last time a worker was at work
    heard: float = field(default_factory=time.monotonic)  # the last time the head answered
    warned: bool = False  # that the cluster has no room yet

    def carry_out(self) -> None:
        """Do every unit; results go to `keep` in the order in which units finish."""
        ray, idle = self.executor.ray, list(self.executor.pool)
        # Inside a list, Ray sends only a reference to the job with every unit.
        self.reference = next(self.executor.jobs), [ray.put(self.job)]
        self.left, self.waiting = len(self.units), deque(range(len(self.units)))
        while self.left:
            while idle and self.waiting:
                self._next(idle.pop())
            done, _ = ray.wait(list(self.calls), timeout=LOOK)
            if not done:
                self._check_start()
            for future in done:
                worker = self.calls.pop(future)
                try:
                    answer = ray.get(future)
                except ray.exceptions.RayTaskError as error:  # the worker is alive
                    if isinstance(error.cause, HeadcountError):
                        raise HeadcountError(str(error.cause)) from None
                    raise
                except ray.exceptions.RayError as error:
                    worker = self._replace(worker, error)
                else:
                    self._take(worker, answer)
                idle.append(worker)
            self._check_head()

    def _next(self, worker: _WorkerState) -> None:
        """Give a worker its next task: introduce itself, load the model, or do a unit."""
        worker.unit, key = None, self.instructions.key
        if not worker.host:
            future = worker.actor.introduce.remote(versions())
        elif key not in worker.models:
            future = worker.actor.load.remote(self.instructions)
        else:
            worker.unit = self.waiting.popleft()
            future = worker.actor.do.remote(key, *self.reference, self.units[worker.unit].work)
        self.calls[future] = worker

    def _take(self, worker: _WorkerState, answer: Any) -> None:
        """Process a worker's answer."""
        if not worker.host:
            worker.host, worker.process = answer
        elif worker.unit is None:
            worker.models.add(self.instructions.key)
        else:
            self.left -= 1
            self.early_deaths = 0
            for result in answer:
                self.keep(self.units[worker.unit], result)

    def _replace(self, worker: _WorkerState, error: Exception) -> _WorkerState:
        """Replace a worker that died; its unit is the next to be done."""
        self.executor.stop(worker)  # it may be alive, if only its result was lost
        if worker.unit is None:
            self.early_deaths += 1
            if "creation task" in str(error) or self.early_deaths >= DEATHS * self.size.workers:
                raise HeadcountError(f"Workers die before they have done any work: {_why(error)}")
        else:
            unit = self.units[worker.unit]
            self.deaths[worker.unit] += 1
            if self.deaths[worker.unit] == DEATHS:
                raise HeadcountError(
                    f"{DEATHS} workers died at the same unit ({unit.name}; {unit.key[:12]}): "
                    f"{_why(error)}"
                )
            self.waiting.appendleft(worker.unit)
            who = f"The worker on {worker.host} (process {worker.process})"
            LOG.warning("%s died; its unit is done again: %s.", who, unit.name)
        return self.executor.start(self.size)

    def _check_head(self) -> None:
        """Give up if the head is lost: without it Ray does not notice that workers are, too."""
        waited = time.monotonic() - self.heard
        if waited < SILENT:
            return
        address = self.executor.head
        if reachable(address):
            self.heard = time.monotonic()
        elif waited > LOST:
            self.executor.lost = True
            raise HeadcountError(
                f"The head of the Ray cluster, {address}, has not answered for {waited:.0f} "
                "seconds: check that machine and the network, and run the same again, here or on "
                "another cluster; what came back before is kept."
            )

    def _check_start(self) -> None:
        """Warn, and then give up, if the cluster has no room for any worker."""
        if any(worker.host for worker in self.calls.values()):
            self.started = time.monotonic()
        waited = time.monotonic() - self.started
        if waited > PATIENCE:
            raise HeadcountError(
                f"No worker could start within {PATIENCE:.0f} seconds: the cluster has no room for "
                f"{self.size.needs}: give fewer --workers or add machines (see ray status)."
            )
        if waited > SILENT and not self.warned:
            self.warned = True
            LOG.warning("Waiting for the cluster to have room for %s.", self.size.needs)


def _why(error: Exception) -> str:
    """Why a worker died, in one sentence."""
    message = str(error)
    if "ModuleNotFoundError" in message or "ImportError" in message:
        return "install this version of headcount on every machine of the cluster."
    if "creation task" in message:
        return message.strip().splitlines()[-1]
    return "the process ended without a message (killed, out of memory, or its machine is down)."
