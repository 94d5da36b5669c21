"""The ledger: several ways to do the same sweeps, their times, memory and numbers.

    python benchmarks/ledger.py --json benchmarks/results/cpu.json
    python benchmarks/ledger.py --device cuda --dtype bfloat16 --models 135m 1b 8b --json gpu.json

The file is written after every row, so that what was measured is kept when the run is stopped.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from contestants import CONTESTANTS, choose
from machine import PeakMemory, describe_machine, describe_versions
from problem import HeadSet, Problem, curve_sets, make_problem, single_heads
from race import FEW, Entry, Race, agrees, say
from shapes import SHAPES, shape_problem
from writers import WRITERS, mask_sets

from headcount import evaluate, wrap
from headcount.models.model import Model

FORMAT = "headcount ledger 1"
PARTS = ("heads", "prefix", "curve", "decoding", "memory")
SHARES = {"heads": 0.4, "prefix": 0.4, "curve": 0.3, "decoding": 0.3, "memory": 0.2}
SEEDS = 10  # of a curve's random controls
PREFIX = 0.6  # of the tokens that prompts share in the part of that name
MEMORY_ROWS, MEMORY_TOKENS = 512, 32
CAP = 3 * 2**30  # beside the weights: a small card


class Book:
    """The file of results, written again after every row."""

    def __init__(self, path: Path | None, arguments: argparse.Namespace) -> None:
        self.path = path
        self.content: dict[str, Any] = {
            "format": FORMAT,
            "command": "python benchmarks/ledger.py " + " ".join(sys.argv[1:]),
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "machine": describe_machine(),
            "versions": describe_versions([one.distribution for one in CONTESTANTS.values()]),
            "threads": torch.get_num_threads(),
            "dtype": arguments.dtype,
            "device": arguments.device,
            "races": [],
        }

    def race(self, **facts: Any) -> dict[str, Any]:
        """A new table, to which rows are added."""
        table: dict[str, Any] = {**facts, "rows": []}
        self.content["races"].append(table)
        return table

    def write(self) -> None:
        """Replace the file at once, so that it is never half written."""
        if self.path is not None:
            beside = self.path.with_suffix(".part")
            beside.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
            os.replace(beside, self.path)


def sweep_part(
    book: Book, arguments: argparse.Namespace, problem: Problem, part: str, name: str, budget: float
) -> None:
    """All single heads, or the head sets of a curve."""
    sets: list[HeadSet] = (
        curve_sets(problem.layout, SEEDS) if part == "curve" else single_heads(problem.heads)
    )
    race = Race(problem, choose(arguments.only))
    chosen = race.sample(sets, budget)
    say(f"{name}, {part}: {len(chosen)} of {len(sets)} head sets, {facts(problem)}")
    table = book.race(
        part=part,
        model=name,
        dtype=arguments.dtype,
        sets=len(chosen),
        all_sets=len(sets),
        **facts(problem),
        missing=race.missing,
    )

    def note(entry: Entry) -> None:
        row = {**entry.row(), "agrees": agrees(entry, arguments.dtype)}
        table["rows"] = [old for old in table["rows"] if old["key"] != row["key"]] + [row]
        book.write()

    race.run(chosen, seconds=budget, repeats=arguments.repeats, after=note)


def facts(problem: Problem) -> dict[str, int]:
    """How large a problem is."""
    prompts, tokens = problem.ids.shape
    return {"prompts": prompts, "tokens": tokens, "shared": problem.prefix}


def exact_part(book: Book, arguments: argparse.Namespace, name: str) -> None:
    """Whether everybody agrees in float32, where rounding hides nothing: a few head sets."""
    problem = shape_problem(
        name, prompts=4, tokens=arguments.tokens, device=arguments.device, dtype=torch.float32
    )
    race = Race(problem, choose(arguments.only))
    race.sample(single_heads(problem.heads), 0)  # leaves out who fails
    sets = [*single_heads(problem.heads)[:: len(problem.heads) // FEW], *mask_sets(problem, 1)]
    table = book.race(part="exact", model=name, dtype="float32", sets=len(sets), **facts(problem))
    say(f"{name}, float32: {len(sets)} head sets")

    def note(entry: Entry) -> None:
        table["rows"].append({**entry.row(), "agrees": agrees(entry, "float32")})
        book.write()

    race.run(sets, seconds=0, repeats=1, after=note)


@torch.no_grad()
def decoding_part(
    book: Book, arguments: argparse.Namespace, problem: Problem, name: str, budget: float
) -> None:
    """Every prompt under several masks; texts are compared token by token with the first's."""
    sets = mask_sets(problem, arguments.masks)
    new = arguments.new
    table = book.race(
        part="decoding",
        model=name,
        dtype=arguments.dtype,
        sets=len(sets),
        new=new,
        **facts(problem),
    )
    say(f"{name}, decoding: {len(sets)} head sets × {len(problem.ids)} prompts, {new} new tokens")
    ways: dict[str, Any] = {}
    expected = None
    for writer in WRITERS:
        started = time.perf_counter()
        ways[writer.key] = writer.prepare(problem)
        ways[writer.key](sets[:1], 2)  # warm up; headcount proves its way to decode here
        table["rows"].append(
            {
                "key": writer.key,
                "name": writer.name,
                "seconds": [],
                "cpu_seconds": [],
                "setup_seconds": time.perf_counter() - started,
            }
        )
    end = time.perf_counter() + budget
    for turn in range(arguments.repeats):
        for row in table["rows"]:
            if turn and time.perf_counter() + row["seconds"][-1] > end:
                continue
            memory = PeakMemory(arguments.device)
            memory.start()
            begin, busy = time.perf_counter(), time.process_time()
            texts = ways[row["key"]](sets, new).cpu()
            row["seconds"].append(time.perf_counter() - begin)
            row["cpu_seconds"].append(time.process_time() - busy)
            expected = texts if expected is None else expected
            same = texts == expected  # (sets, prompts, new)
            row |= {
                "equal_texts": int(same.all(-1).sum()),
                "texts": same[..., 0].numel(),
                "equal_first": float(same[..., 0].float().mean()),
                "peak_bytes": memory.read(),
                "before_bytes": memory.before,
            }
            row["agrees"] = arguments.dtype != "float32" or row["equal_texts"] == row["texts"]
            say(
                f"  {row['name']:24} {row['seconds'][-1]:9.3f} s  "
                f"{row['equal_texts']} of {row['texts']} texts equal"
            )
            book.write()


def memory_part(book: Book, arguments: argparse.Namespace, name: str) -> None:
    """A sweep of many rows, and again on what is made a small card: the batch gets smaller."""
    problem = shape_problem(
        name,
        prompts=arguments.memory_rows,
        tokens=MEMORY_TOKENS,
        device=arguments.device,
        dtype=getattr(torch, arguments.dtype),
    )
    model = wrap(problem.own_module(), problem.tokenizer, name=name)
    sets = single_heads(problem.heads)[:: max(1, len(problem.heads) // 16)]
    table = book.race(
        part="memory", model=name, dtype=arguments.dtype, sets=len(sets), **facts(problem)
    )
    expected = None
    weights = sum(p.numel() * p.element_size() for p in problem.module.parameters())
    for way, cap in (("whole card", None), ("small card", weights + CAP)):
        if cap is not None and not arguments.device.startswith("cuda"):
            continue
        seconds, values, peak = _capped(model, problem, sets, cap)
        expected = values if expected is None else expected
        row = {
            "way": way,
            "cap_bytes": cap,
            "seconds": seconds,
            "peak_bytes": peak,
            "weights_bytes": weights,
            "difference": float((values - expected).abs().max()),
        }
        table["rows"].append(row)
        book.write()
        say(
            f"{name}, {len(problem.ids)} rows of {MEMORY_TOKENS} tokens, {way}: {seconds:.2f} s, "
            f"peak {peak / 2**30:.2f} GiB of which weights {weights / 2**30:.2f}"
            + ("" if cap is None else f", allowed {cap / 2**30:.2f}")
            + f", ±{row['difference']:.0e}"
        )


def _capped(
    model: Model, problem: Problem, sets: Sequence[HeadSet], cap: int | None
) -> tuple[float, torch.Tensor, int]:
    """One sweep while torch may take no more than `cap` bytes of the card."""
    device = str(problem.ids.device)
    memory = PeakMemory(device)
    if cap is not None:
        gc.collect()
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(problem.ids.device).total_memory
        torch.cuda.set_per_process_memory_fraction(cap / total)
    memory.start()
    begin = time.perf_counter()
    try:
        gates = [model.layout.gates(off=heads) for heads in sets]
        found = evaluate(model, problem.task, gates, part="all", store=None, progress=False)
    finally:
        if cap is not None:
            torch.cuda.set_per_process_memory_fraction(1.0)
    return time.perf_counter() - begin, torch.from_numpy(found.values), memory.read()


def make(arguments: argparse.Namespace, name: str, prefix: float | None) -> Problem:
    """The problem of a shape with random weights, or of a model that is loaded."""
    if name in SHAPES:
        return shape_problem(
            name,
            prompts=arguments.prompts,
            tokens=arguments.tokens,
            device=arguments.device,
            dtype=getattr(torch, arguments.dtype),
        )
    return make_problem(
        name,
        prompts=arguments.prompts,
        prefix=prefix,
        device=arguments.device,
        dtype=arguments.dtype,
    )


def guarded(what: str, run: Callable[[], object]) -> None:
    """Go on with the next part when one fails: the machine may not come back."""
    began = time.perf_counter()
    try:
        run()
    except Exception as error:
        say(f"{what} failed: {type(error).__name__}: {str(error)[:500]}")
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    say(f"{what}: {time.perf_counter() - began:.0f} s in all")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--models", nargs="+", default=["smollm2-135m"], metavar="MODEL",
        help="bundled name, hub id or folder (Llama-like), or a shape with random weights: "
        + ", ".join(SHAPES))  # fmt: skip
    add("--parts", nargs="+", choices=PARTS, default=["heads", "curve", "decoding"])
    add("--seconds", type=float, default=75, help="for the parts of each model together")
    add("--device", default="cpu", help="cpu or cuda")
    add("--dtype", default="float32", choices=("float32", "float16", "bfloat16"))
    add("--threads", type=int, default=2)
    add("--repeats", type=int, default=3, help="rounds, as far as the time allows")
    add("--prompts", type=int, default=32)
    add("--tokens", type=int, default=18, help="of each prompt, of shapes with random weights")
    add("--masks", type=int, default=8, help="head sets in decoding")
    add("--new", type=int, default=64, help="tokens that are written")
    add("--memory-rows", type=int, default=MEMORY_ROWS)
    add("--only", nargs="+", choices=CONTESTANTS, metavar="KEY", help=", ".join(CONTESTANTS))
    add("--json", type=Path, metavar="FILE", help="write the results here, for report.py")
    return parser.parse_args(argv)


def main() -> None:
    """Run the ledger."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
    book = Book(arguments.json, arguments)
    total = sum(SHARES[part] for part in arguments.parts)
    for name in arguments.models:
        problem = None
        for part in arguments.parts:
            if part == "prefix" and name in SHAPES:
                continue
            budget = arguments.seconds * SHARES[part] / total
            if part == "memory":
                problem = None
                guarded(f"{name}, memory", lambda name=name: memory_part(book, arguments, name))
                continue
            if problem is None or part == "prefix":
                began = time.perf_counter()
                problem = make(arguments, name, PREFIX if part == "prefix" else None)
                say(f"{name}: made in {time.perf_counter() - began:.1f} s")
            if part == "decoding":
                run = lambda p=problem, n=name, b=budget: decoding_part(book, arguments, p, n, b)  # noqa: E731
            else:
                run = lambda p=problem, q=part, n=name, b=budget: sweep_part(  # noqa: E731
                    book, arguments, p, q, n, b
                )
            guarded(f"{name}, {part}", run)
            if part == "prefix":
                problem = None
        problem = None
        if name in SHAPES and arguments.dtype != "float32" and "heads" in arguments.parts:
            guarded(f"{name}, float32", lambda name=name: exact_part(book, arguments, name))
    if not any(table["rows"] for table in book.content["races"]):
        raise SystemExit("Nothing was measured.")


if __name__ == "__main__":
    main()
