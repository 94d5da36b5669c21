"""Contestants in one process, taking turns on the same head sets, within a budget of seconds."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from contestants import Contestant, Sweep
from machine import PeakMemory
from problem import HeadSet, Problem
from torch import Tensor

# The largest difference in a log-probability that counts as equal numbers.
TOLERANCE = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 5e-1}
FEW = 3  # head sets of a warm-up
MARGIN = 0.8  # of the budget: what a race is planned for


@dataclass
class Entry:
    """What was measured of one contestant."""

    contestant: Contestant
    sweep: Sweep
    setup_seconds: float
    warmup_seconds: float = 0.0
    each: float = 0.0  # seconds of a head set, as the warm-up ended
    first_seconds: float | None = None  # of the first round, with what a process does only once
    seconds: list[float] = field(default_factory=list)  # of the others
    cpu_seconds: list[float] = field(default_factory=list)  # of all threads
    difference: float = 0.0
    noise: float = 0.0
    peak_bytes: int | None = None
    before_bytes: int | None = None

    def row(self) -> dict[str, Any]:
        """What is written down."""
        return {
            "key": self.contestant.key,
            "name": self.contestant.name,
            "first_seconds": self.first_seconds,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "setup_seconds": self.setup_seconds,
            "warmup_seconds": self.warmup_seconds,
            "difference": self.difference,
            "noise": self.noise,
            "peak_bytes": self.peak_bytes,
            "before_bytes": self.before_bytes,
        }


class Race:
    """All contestants on one problem; the first one's numbers are what the others must give."""

    def __init__(self, problem: Problem, contestants: Sequence[Contestant]) -> None:
        self.problem = problem
        self.entries: list[Entry] = []
        self.missing: dict[str, str] = {}
        for contestant in contestants:
            self._enter(contestant)

    def _enter(self, contestant: Contestant) -> None:
        """Set a contestant up, or note why it is not there."""
        if not contestant.installed:
            self.missing[contestant.name] = f"{contestant.distribution} is not installed"
            return
        started = time.perf_counter()
        try:
            sweep = contestant.prepare(self.problem)
        except Exception as error:  # it may not suit the versions that are here
            self._miss(contestant, error)
            return
        self._wait()
        self.entries.append(Entry(contestant, sweep, time.perf_counter() - started))

    def _miss(self, contestant: Contestant, error: Exception) -> None:
        why = f"{contestant.distribution}: {type(error).__name__}: {error}"[:300]
        self.missing[contestant.name] = why
        say(f"  {contestant.name} is left out: {why}")

    def sample(self, sets: Sequence[HeadSet], seconds: float) -> list[HeadSet]:
        """Warm everybody up, and choose as many of the head sets as the budget allows.

        They are spread evenly over all that there are.
        """
        few = _spread(sets, FEW)
        for entry in list(self.entries):
            try:
                entry.warmup_seconds, _, _ = self._timed(entry, few)
                again, _, _ = self._timed(entry, few)
            except Exception as error:
                self.entries.remove(entry)
                self._miss(entry.contestant, error)
                continue
            entry.each = again / len(few)
            say(f"  {entry.contestant.name:24} warm; {1e3 * entry.each:.0f} ms a head set")
        together = sum(entry.each for entry in self.entries)
        return _spread(sets, max(FEW, int(MARGIN * seconds / together / 2)))  # two rounds at least

    def run(
        self,
        sets: Sequence[HeadSet],
        *,
        seconds: float,
        repeats: int,
        after: Callable[[Entry], object],
    ) -> None:
        """Let everybody run once, which is noted apart, and once more; then while the budget lasts.

        After the first there are up to `repeats` rounds. Who starts changes from round to round.
        """
        end = time.perf_counter() + seconds
        reference: Tensor | None = None
        for turn in range(repeats + 1):
            first = turn % len(self.entries)
            for entry in (*self.entries[first:], *self.entries[:first]):
                if entry.seconds and time.perf_counter() + entry.seconds[-1] > end:
                    continue
                taken, busy, values = self._timed(entry, sets)
                if turn:
                    entry.seconds.append(taken)
                    entry.cpu_seconds.append(busy)
                else:
                    entry.first_seconds = taken
                reference = values if reference is None else reference
                _compare(entry, values, reference)
                say(f"  {entry.contestant.name:24} {taken:9.3f} s  ±{entry.difference:.0e}")
                after(entry)

    def _timed(self, entry: Entry, sets: Sequence[HeadSet]) -> tuple[float, float, Tensor]:
        """The seconds that a sweep took, on the clock and of CPU time, and its values."""
        gc.collect()
        on_gpu = self.problem.ids.is_cuda
        memory = PeakMemory("cuda")
        if on_gpu:
            memory.start()
        started, busy = time.perf_counter(), time.process_time()
        with torch.no_grad():
            values = entry.sweep(sets).double().cpu()
        taken = time.perf_counter() - started, time.process_time() - busy
        if on_gpu:
            entry.peak_bytes, entry.before_bytes = memory.read(), memory.before
        return *taken, values

    def _wait(self) -> None:
        if self.problem.ids.is_cuda:
            torch.cuda.synchronize()


def _compare(entry: Entry, values: Tensor, reference: Tensor) -> None:
    """Note how far the values are from the first contestant's, also in terms of heads' effects."""
    apart = values - reference
    difference = float(apart.abs().max())
    entry.difference = difference if difference != difference else max(entry.difference, difference)
    effects = reference - reference.mean(0)  # what tells head sets from each other
    entry.noise = float(apart.square().mean().sqrt() / effects.square().mean().sqrt())


def agrees(entry: Entry, dtype: str) -> bool:
    """Whether a contestant gave the numbers of the first; NaN does not."""
    return entry.difference <= TOLERANCE[dtype]


def _spread(sets: Sequence[HeadSet], count: int) -> list[HeadSet]:
    if count >= len(sets):
        return list(sets)
    return [sets[round(place * (len(sets) - 1) / max(1, count - 1))] for place in range(count)]


def median(seconds: Sequence[float]) -> float:
    """The median of some times."""
    return statistics.median(seconds)


def say(text: str) -> None:
    """Progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)
