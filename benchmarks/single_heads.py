"""Switch off single heads in several ways, and compare time, memory and numbers.

python benchmarks/single_heads.py --json cpu.json
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from contestants import CONTESTANTS, PLAIN, Contestant, Sweep, choose
from machine import PeakMemory, describe_machine, describe_versions
from problem import HeadSet, Problem, make_problem, single_heads
from report import FORMAT, table, title
from torch import Tensor

# The largest difference in a log-probability that counts as equal numbers.
TOLERANCE = {"float32": 1e-3, "float16": 5e-2, "bfloat16": 5e-1}


@dataclass
class Entry:
    """What was measured of one contestant."""

    contestant: Contestant
    sweep: Sweep
    setup_seconds: float
    warmup_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)  # of all threads
    difference: float = 0.0
    peak_bytes: int | None = None
    before_bytes: int | None = None


class Race:
    """All contestants in one process, taking turns."""

    def __init__(self, problem: Problem, tolerance: float) -> None:
        self.problem, self.tolerance = problem, tolerance
        self.entries: list[Entry] = []
        self.missing: dict[str, str] = {}
        self.reference: Tensor | None = None

    def enter(self, contestant: Contestant) -> None:
        """Set a contestant up, or note that its package is not there."""
        if not contestant.installed:
            self.missing[contestant.name] = f"{contestant.distribution} is not installed"
            return
        started = time.perf_counter()
        try:
            sweep = contestant.prepare(self.problem)
        except ImportError as error:
            self.missing[contestant.name] = f"{contestant.distribution} cannot be imported: {error}"
            return
        self.entries.append(Entry(contestant, sweep, time.perf_counter() - started))

    def warm_up(self, sets: Sequence[HeadSet]) -> None:
        """Run everybody once, so that nobody's first sweep pays for what is compiled and cached."""
        reference = None
        for entry in self.entries:
            entry.warmup_seconds, _, values = self._timed(entry, sets)
            reference = values if reference is None else reference
            self._compare(entry, values, reference)

    def run(self, repeats: int) -> None:
        """Let everybody run `repeats` times; who starts changes from round to round."""
        for turn in range(repeats):
            first = turn % len(self.entries)
            for entry in (*self.entries[first:], *self.entries[:first]):
                seconds, busy, values = self._timed(entry, single_heads(self.problem.heads))
                entry.seconds.append(seconds)
                entry.cpu_seconds.append(busy)
                self.reference = values if self.reference is None else self.reference
                self._compare(entry, values, self.reference)
                where = f"round {turn + 1} of {repeats}: {entry.contestant.name}"
                say(f"{where} {seconds:.2f} s ({busy:.2f} s CPU)")

    def _timed(self, entry: Entry, sets: Sequence[HeadSet]) -> tuple[float, float, Tensor]:
        """The seconds that a sweep took, on the clock and of CPU time, and its values."""
        gc.collect()
        if self.problem.ids.is_cuda:
            torch.cuda.synchronize()
        started, busy = time.perf_counter(), time.process_time()
        with torch.no_grad():
            values = entry.sweep(sets).double().cpu()
        return time.perf_counter() - started, time.process_time() - busy, values

    def _compare(self, entry: Entry, values: Tensor, reference: Tensor) -> None:
        difference = float((values - reference).abs().max())
        entry.difference = max(entry.difference, difference)
        if not difference <= self.tolerance:  # NaN fails too
            raise SystemExit(
                f"{entry.contestant.name} gives other numbers: a log-probability differs by "
                f"{difference:.2e}, and {self.tolerance:.0e} is allowed. Nothing was written."
            )


def say(text: str) -> None:
    """Progress, apart from the results."""
    print(text, file=sys.stderr, flush=True)


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--model", default="smollm2-135m", help="bundled name, hub id or folder (Llama-like)")
    add("--random-weights", action="store_true", help="take only config and tokenizer of the model")
    add("--heads", default="all", help='"all", or how many heads, spread over the layers')
    add("--prompts", type=int, default=32)
    add("--prefix", type=float, nargs="?", const=0.6, metavar="SHARE", help="let the prompts begin "
        "with solved examples, at least this part of their tokens (0.6)")  # fmt: skip
    add("--threads", type=int, default=2)
    add("--repeats", type=int, default=3)
    add("--only", nargs="+", choices=CONTESTANTS, metavar="KEY", help=", ".join(CONTESTANTS))
    add("--device", default="cpu", help="cpu or cuda")
    add("--dtype", default="float32", choices=TOLERANCE)
    add("--tolerance", type=float, help=f"largest difference allowed; by dtype: {TOLERANCE}")
    add("--warm-up", type=int, metavar="HEADS", help="default: 2 on a CPU, all on a GPU")
    add("--memory-heads", type=int, metavar="HEADS", help="heads in the memory measurement, 0 for "
        "none; default: 30 on a CPU, all on a GPU")  # fmt: skip
    add("--json", type=Path, metavar="FILE", help="write the result here, for report.py")
    add("--measure-memory-of", choices=CONTESTANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.heads != "all" and not arguments.heads.isdecimal():
        parser.error('--heads is "all" or a number')
    if arguments.prefix is not None and not 0 < arguments.prefix < 0.9:
        parser.error("--prefix is between 0 and 0.9")
    on_gpu = arguments.device != "cpu"
    for name, few in (("warm_up", 2), ("memory_heads", 30)):
        if getattr(arguments, name) is None:
            setattr(arguments, name, None if on_gpu else few)  # None: all
    return arguments


def build(arguments: argparse.Namespace, heads: int | None) -> Problem:
    """The problem that the command line describes, with so many heads."""
    torch.set_num_threads(arguments.threads)
    return make_problem(
        arguments.model,
        prompts=arguments.prompts,
        heads=heads,
        prefix=arguments.prefix,
        device=arguments.device,
        dtype=arguments.dtype,
        random_weights=arguments.random_weights,
    )


def measure_memory(contestant: Contestant) -> tuple[int, int]:
    """Peak memory of one contestant in a process of its own, and the memory in use before."""
    command = [sys.executable, __file__, *sys.argv[1:], "--measure-memory-of", contestant.key]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    peak, before = json.loads(done.stdout.splitlines()[-1])
    say(f"memory: {contestant.name} {peak / 1e6:.0f} MB")
    return peak, before


def report_memory(arguments: argparse.Namespace, contestant: Contestant) -> None:
    """The other end of `measure_memory`."""
    problem = build(arguments, arguments.memory_heads)
    sweep = contestant.prepare(problem)
    for parameter in problem.module.parameters():
        parameter.sum()  # weights stay in their file until they are first read
    memory = PeakMemory(arguments.device)
    gc.collect()
    memory.start()
    with torch.no_grad():
        sweep(single_heads(problem.heads))
    print(json.dumps([memory.read(), memory.before]))


def result(arguments: argparse.Namespace, race: Race, machine: dict[str, Any]) -> dict[str, Any]:
    """Everything that was measured, and where."""
    problem = race.problem
    config: Any = problem.module.config
    versions = describe_versions([one.distribution for one in choose(arguments.only)])
    settings = {
        name: getattr(arguments, name)
        for name in ("model", "random_weights", "prompts", "threads", "repeats", "device", "dtype")
    }
    settings |= {
        "heads": len(problem.heads),
        "all_heads": config.num_attention_heads * config.num_hidden_layers,
        "tokens": problem.ids.shape[1],
        "prefix_asked": arguments.prefix,
        "prefix": problem.prefix,
        "warm_up_heads": arguments.warm_up or len(problem.heads),
        "memory_heads": len(problem.heads)
        if arguments.memory_heads is None
        else min(arguments.memory_heads, len(problem.heads)),
    }
    return {
        "format": FORMAT,
        "command": "python benchmarks/single_heads.py " + " ".join(sys.argv[1:]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine,
        "versions": versions,
        "settings": settings,
        "contestants": [
            {
                "key": entry.contestant.key,
                "name": entry.contestant.name,
                "seconds": entry.seconds,
                "cpu_seconds": entry.cpu_seconds,
                "setup_seconds": entry.setup_seconds,
                "warmup_seconds": entry.warmup_seconds,
                "difference": entry.difference,
                "peak_bytes": entry.peak_bytes,
                "before_bytes": entry.before_bytes,
            }
            for entry in race.entries
        ],
        "missing": race.missing,
    }


def main() -> None:
    """Run the benchmark."""
    arguments = parse()
    if arguments.measure_memory_of:
        report_memory(arguments, CONTESTANTS[arguments.measure_memory_of])
        return
    machine = describe_machine()
    problem = build(arguments, None if arguments.heads == "all" else int(arguments.heads))
    race = Race(problem, arguments.tolerance or TOLERANCE[arguments.dtype])
    for contestant in choose(arguments.only):
        race.enter(contestant)
    if not race.entries:
        raise SystemExit("None of these contestants is installed.")
    count = arguments.warm_up or len(problem.heads)
    race.warm_up(single_heads(problem.heads[:: -(-len(problem.heads) // count)]))
    if arguments.memory_heads != 0:
        for entry in race.entries:
            entry.peak_bytes, entry.before_bytes = measure_memory(entry.contestant)
    race.run(arguments.repeats)
    measured = result(arguments, race, machine)
    print(f"{title(measured)}\n\n{table(measured)}")
    for name, why in race.missing.items():
        print(f"Missing: {name} ({why})")
    if race.entries[0].contestant.key != PLAIN:
        print(f"Differences are from {race.entries[0].contestant.name}.")
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
