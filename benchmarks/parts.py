"""The parts of the ledger: each is a table of contestants that did the same."""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from book import Book
from contestants import Contestant, choose
from machine import PeakMemory
from problem import HeadSet, Problem, curve_sets, make_problem, single_heads, spread
from race import FEW, Entry, Race, agrees, say
from shapes import SHAPES, shape_problem
from writers import WRITERS, mask_sets

from headcount import Lab, evaluate, wrap
from headcount.models.model import Model

SEEDS = 10  # of a curve's random controls
PREFIX = 0.6  # of the tokens that prompts share in the part of that name
MEMORY_TOKENS = 32
MEMORY_HEADS = 6  # on a CPU, each contestant in a process of its own
GATES = {"layers": 3, "updates": 150, "batch": 32, "seeds": 3, "examples": 256}
CAP = 3 * 2**30  # beside the weights: a small card


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
        keep_row(book, table, entry, arguments.dtype)

    if arguments.device == "cpu" and part == "heads" and name not in SHAPES:
        for entry in race.entries:
            entry.peak_bytes, entry.before_bytes = measure_memory(arguments, entry.contestant)
        table["memory_sets"] = MEMORY_HEADS
    race.run(chosen, seconds=budget, repeats=arguments.repeats, after=note)


def keep_row(book: Book, table: dict[str, Any], entry: Entry, dtype: str) -> None:
    """Write down how a contestant stands, instead of how it stood."""
    row = {**entry.row(), "agrees": agrees(entry, dtype)}
    table["rows"] = [old for old in table["rows"] if old["key"] != row["key"]] + [row]
    book.write()


def measure_memory(arguments: argparse.Namespace, contestant: Contestant) -> tuple[int, int]:
    """Peak memory of one contestant in a process of its own, and the memory in use before."""
    program = str(Path(__file__).with_name("ledger.py"))
    command = [sys.executable, program, *sys.argv[1:], "--measure-memory-of", contestant.key]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    peak, before = json.loads(done.stdout.splitlines()[-1])
    say(f"  {contestant.name:24} {peak / 1e6:.0f} MB")
    return peak, before


def report_memory(arguments: argparse.Namespace, contestant: Contestant) -> None:
    """The other end of `measure_memory`."""
    problem = make(arguments, arguments.models[0], None)
    sweep = contestant.prepare(problem)
    for parameter in problem.module.parameters():
        parameter.sum()  # weights stay in their file until they are first read
    memory = PeakMemory(arguments.device)
    gc.collect()
    memory.start()
    with torch.no_grad():
        sweep(single_heads(spread(problem.layout, MEMORY_HEADS)))
    print(json.dumps([memory.read(), memory.before]))


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
        keep_row(book, table, entry, "float32")

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
        found = evaluate(
            model, problem.task, gates, split="all", metric="logprob", lab=Lab(store=None)
        )
    finally:
        if cap is not None:
            torch.cuda.set_per_process_memory_fraction(1.0)
    return time.perf_counter() - begin, torch.from_numpy(found.values), memory.read()


def gates_part(book: Book, arguments: argparse.Namespace, name: str) -> None:
    """Causal gates fitted by headcount and by the published package, on a small random model."""
    from gates_against_package import fit_both  # needs the package

    table = book.race(part="gates", model="random Llama", dtype="float32", **GATES)

    def note(row: dict[str, Any]) -> None:
        table["rows"].append(row)
        book.write()

    fit_both(argparse.Namespace(**GATES), note)


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
