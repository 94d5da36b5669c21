"""The ledger: several ways to do the same sweeps, their times, memory and numbers.

    python benchmarks/ledger.py                  # on a CPU: results/cpu.json, then the page
    python benchmarks/ledger.py --device cuda    # on a GPU: results/gpu.json, then the page

The file is written after every row, so that what was measured is kept when the run is stopped.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from book import Book
from contestants import CONTESTANTS
from parts import (
    PREFIX,
    decoding_part,
    exact_part,
    gates_part,
    make,
    memory_part,
    report_memory,
    sweep_part,
)
from problem import Problem
from race import say
from report import RESULTS, write_page
from shapes import SHAPES

PARTS = ("heads", "prefix", "curve", "decoding", "gates", "memory")
SHARES = {"heads": 0.35, "prefix": 0.2, "curve": 0.3, "decoding": 0.15, "gates": 0, "memory": 0}
# By device: what is run unless told otherwise.
USUAL = {
    "cpu": {
        "models": ["smollm2-135m-q4"],
        "parts": ["heads", "prefix", "curve", "decoding", "gates"],
        "seconds": 800.0,
        "dtype": "float32",
        "masks": 8,
        "new": 32,
    },
    "cuda": {
        "models": ["135m", "1b", "8b"],
        "parts": ["heads", "curve", "decoding", "memory"],
        "seconds": 75.0,
        "dtype": "bfloat16",
        "masks": 16,
        "new": 64,
    },
}


def run(book: Book, arguments: argparse.Namespace) -> None:
    """Every part for every model."""
    total = sum(SHARES[part] for part in arguments.parts) or 1.0
    for name in arguments.models:
        problem: Problem | None = None
        for part in arguments.parts:
            seconds = arguments.seconds * SHARES[part] / total
            if part == "prefix" and name in SHAPES:
                continue
            if part in ("memory", "gates"):
                problem = None  # makes room
                way = memory_part if part == "memory" else gates_part
                guarded(f"{name}, {part}", lambda way=way, name=name: way(book, arguments, name))
                continue
            if problem is None or part == "prefix" or problem.prefix:
                problem = None
                problem = make(arguments, name, PREFIX if part == "prefix" else None)
            if part == "decoding":
                guarded(
                    f"{name}, {part}",
                    lambda p=problem, n=name, s=seconds: decoding_part(book, arguments, p, n, s),
                )
            else:
                guarded(
                    f"{name}, {part}",
                    lambda p=problem, q=part, n=name, s=seconds: sweep_part(
                        book, arguments, p, q, n, s
                    ),
                )
        problem = None
        if name in SHAPES and arguments.dtype != "float32" and "heads" in arguments.parts:
            guarded(f"{name}, float32", lambda name=name: exact_part(book, arguments, name))


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
    add("--device", default="cpu", choices=USUAL)
    add("--models", nargs="+", metavar="MODEL", help="bundled name, hub id or folder (Llama-like), "
        "or a shape with random weights: " + ", ".join(SHAPES))  # fmt: skip
    add("--parts", nargs="+", choices=PARTS)
    add("--seconds", type=float, help="for the parts of each model together, set-up beside")
    add("--dtype", choices=("float32", "float16", "bfloat16"))
    add("--threads", type=int, default=2)
    add("--repeats", type=int, default=3, help="rounds after the first, as far as the time allows")
    add("--prompts", type=int, default=32)
    add("--tokens", type=int, default=18, help="of each prompt, of shapes with random weights")
    add("--masks", type=int, help="head sets in decoding")
    add("--new", type=int, help="tokens that are written")
    add("--memory-rows", type=int, default=512)
    add("--only", nargs="+", choices=CONTESTANTS, metavar="KEY", help=", ".join(CONTESTANTS))
    add("--json", type=Path, metavar="FILE", help="default: benchmarks/results/cpu.json, gpu.json")
    add("--no-page", action="store_true", help="do not write docs/benchmarks.md")
    add("--measure-memory-of", choices=CONTESTANTS, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    for name, value in USUAL[arguments.device].items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    if arguments.json is None:
        arguments.json = RESULTS / f"{'cpu' if arguments.device == 'cpu' else 'gpu'}.json"
    return arguments


def main() -> None:
    """Run the ledger."""
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    if arguments.measure_memory_of:
        report_memory(arguments, CONTESTANTS[arguments.measure_memory_of])
        return
    arguments.json.parent.mkdir(parents=True, exist_ok=True)
    book = Book(arguments.json, arguments)
    run(book, arguments)
    if not any(table["rows"] for table in book.content["races"]):
        raise SystemExit("Nothing was measured.")
    if not arguments.no_page:
        write_page()


if __name__ == "__main__":
    main()
