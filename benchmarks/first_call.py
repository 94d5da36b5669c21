"""The first call of a cold process: headcount against plain hooks, whatever is prepared included.

    python benchmarks/first_call.py --device cuda --shapes 135m 1b       # a few minutes
    python benchmarks/first_call.py --device cuda --shapes 8b --sets 1 10 100
    python benchmarks/first_call.py --shapes tiny --sets 1 10            # tries it without a GPU

Each cell of the grid (shape, head sets, prompts) is measured in processes of their own:

    plain   a hook on each output projection with heads that are off, one head set after the other,
            all prompts in one batch, logits at the last position only; for the ranking by
            attribution, hooks with a gate for each head and one backward pass
    first   headcount with an empty cache folder: it has never seen the model or the machine
    again   headcount in one more process, with the cache folder that `first` has left

A process has imported torch, transformers and headcount and has made random weights on the device
before its clock starts; nothing has run on the weights. The clock includes all the rest: finding
and proving head sites, fast paths, compiling, tokenising, and what CUDA loads for the first passes.
`first` and `again` keep no measurements, as plain hooks keep none, unless `--store` is given.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contestants import hooked, masks, projections, target_logprob
from machine import describe_machine, describe_versions
from problem import HeadSet, Problem
from race import TOLERANCE, say
from shapes import SHAPES, shape_problem

import headcount.rankings.attribution  # noqa: F401  imported before the clock starts
from headcount import Lab, evaluate, rank, wrap
from headcount.engine.measure.rates import _compile_seconds as compile_seconds
from headcount.errors import counted

WAYS = ("plain", "first", "again")
ATTRIBUTION = 0  # in the place of a number of head sets
BAR = 1.1  # × plain hooks
# Every import of a child is done by its parent, which never touches a device: a forked process
# starts as cold as a new one that has imported the same.
FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Cell:
    """One cell of the grid: `sets` head sets, or the ranking by attribution, on some prompts."""

    shape: str
    sets: int
    prompts: int

    @property
    def work(self) -> str:
        """The work in words."""
        return counted(self.sets, "head set") if self.sets else "attribution"


def draw_sets(problem: Problem, count: int, off: int) -> list[HeadSet]:
    """Distinct sets of `off` random heads (of one head each, if the model has too few)."""
    rng, layout = np.random.default_rng(0), problem.layout
    sets: dict[HeadSet, None] = {}
    while len(sets) < count:
        chosen = rng.choice(layout.total, off, replace=False)
        sets[tuple(sorted(layout.head(int(number)) for number in chosen))] = None
    return list(sets)


def plain_sweep(problem: Problem, sets: list[HeadSet]) -> np.ndarray:
    """Log-probabilities of the targets by plain hooks: (sets, prompts)."""
    values = []
    with torch.no_grad():
        for mask in masks(problem, sets):
            with ExitStack() as stack:
                hooked(problem.module, mask, stack)
                logits = problem.module(
                    input_ids=problem.ids, use_cache=False, logits_to_keep=1
                ).logits
            values.append(target_logprob(logits[:, -1], problem.targets))
        return torch.stack(values).double().cpu().numpy()


def plain_attribution(problem: Problem) -> np.ndarray:
    """The derivative of the mean log-probability in each head's gate, by plain hooks: (heads,)."""
    module, layout = problem.module, problem.layout
    weights = next(module.parameters())
    gates = torch.ones(len(problem.ids), layout.total, device=weights.device, requires_grad=True)
    with ExitStack() as stack:
        for layer, projection in enumerate(projections(module)):
            heads = layout.counts[layer]
            g = gates[:, layer * heads : (layer + 1) * heads].to(weights.dtype)

            def gate(_: object, args: tuple[Any, ...], g: torch.Tensor = g) -> tuple[Any, ...]:
                z = args[0].unflatten(-1, (g.shape[1], -1))  # (prompts, tokens, heads, size)
                return ((z * g[:, None, :, None]).flatten(-2),)

            stack.callback(projection.register_forward_pre_hook(gate).remove)
        logits = module(input_ids=problem.ids, use_cache=False, logits_to_keep=1).logits
        loss = target_logprob(logits[:, -1], problem.targets).sum()
        (slopes,) = torch.autograd.grad(loss, gates)
    return slopes.double().mean(0).cpu().numpy()


def by_headcount(problem: Problem, sets: list[HeadSet], lab: Lab, facts: dict) -> np.ndarray:
    """The same numbers by headcount, as a user asks for them."""
    begin = time.perf_counter()
    model = wrap(problem.module, problem.tokenizer, name="random")
    facts["wrap_seconds"] = time.perf_counter() - begin
    if sets:
        gates = np.stack([model.layout.gates(off=heads) for heads in sets])
        options: dict[str, Any] = {"split": "all", "metric": "logprob", "lab": lab}
        values = evaluate(model, problem.task, gates, **options).values
    else:
        values = rank(model, problem.task, "attribution", lab=lab).values
    facts["fast_paths"] = model.known_paths is not None
    facts["compile_seconds"] = compile_seconds()
    return np.asarray(values)


def measure(cell: Cell, way: str, folder: str, options: argparse.Namespace) -> dict[str, Any]:
    """One way through a cell, in the process that this is called in."""
    os.environ.update(HEADCOUNT_CACHE=folder, HEADCOUNT_STORE="off")
    problem = shape_problem(
        cell.shape,
        prompts=cell.prompts,
        tokens=options.tokens,
        device=options.device,
        dtype=getattr(torch, options.dtype),
    )
    # All prompts are in the ranking split.
    problem = replace(problem, task=replace(problem.task, test_contents=frozenset({"none"})))
    sets = draw_sets(problem, cell.sets, options.off)
    store = Path(tempfile.mkdtemp(dir=folder)) / "store.sqlite" if options.store else None
    facts: dict[str, Any] = {}
    if options.device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    if way == "plain":
        values = plain_sweep(problem, sets) if sets else plain_attribution(problem)
    else:
        values = by_headcount(problem, sets, Lab(store=store, progress=False), facts)
    return {**facts, "seconds": time.perf_counter() - begin, "values": values}


def in_new_process(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result of some work, done by a forked process."""
    here, there = FORK.Pipe(duplex=False)

    def run() -> None:
        try:
            there.send(work())
        except BaseException as error:
            there.send({"failed": f"{type(error).__name__}: {error}"[:300]})
            raise

    process = FORK.Process(target=run)
    process.start()
    there.close()
    try:
        result = here.recv()
    except EOFError:
        result = {"failed": "the process died"}
    process.join()
    return result


def row_of(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """The times of all ways through a cell, and how far their numbers are apart."""
    row: dict[str, Any] = {**vars(cell), "work": cell.work}
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in WAYS}
    for _ in range(options.repeats):
        with tempfile.TemporaryDirectory() as folder:
            for way in WAYS:
                run = in_new_process(lambda way=way: measure(cell, way, folder, options))
                if "failed" in run:
                    return {**row, "failed": f"{way}: {run['failed']}"}
                runs[way].append(run)
    expected = runs["plain"][0]["values"]
    # Log-probabilities are compared as they are, derivatives relative to the largest one.
    scale = 1.0 if cell.sets else float(np.abs(expected).max())
    for way, some in runs.items():
        seconds = [run["seconds"] for run in some]
        apart = max(float(np.abs(run["values"] - expected).max()) / scale for run in some)
        facts = {k: v for k, v in some[-1].items() if k not in ("values", "seconds")}
        row[way] = {"seconds": seconds, "difference": apart, **facts}
    plain = statistics.median(row["plain"]["seconds"])
    for way in WAYS[1:]:
        row[way]["ratio"] = statistics.median(row[way]["seconds"]) / plain
        row[way]["agrees"] = row[way]["difference"] <= TOLERANCE[options.dtype]
    return row


def told(row: dict[str, Any]) -> str:
    """A row of the printed table."""
    start = f"{row['shape']:5} {row['work']:>15} {row['prompts']:8}"
    if "failed" in row:
        return f"{start}  failed: {row['failed']}"
    cells = [f"{statistics.median(row['plain']['seconds']):8.2f}"]
    for way in WAYS[1:]:
        mark = " " if row[way]["agrees"] else "!"
        seconds = statistics.median(row[way]["seconds"])
        cells.append(f"{seconds:8.2f} {row[way]['ratio']:6.2f}{mark}")
    difference = max(row[way]["difference"] for way in WAYS)
    return f"{start} {' '.join(cells)}  {difference:.0e}"


def grid(options: argparse.Namespace) -> Iterator[Cell]:
    """The chosen cells, small ones first."""
    for shape in options.shapes:
        for count in (*sorted(options.sets), *([ATTRIBUTION] if options.attribution else [])):
            for prompts in options.prompts:
                yield Cell(shape, count, prompts)


def describe(options: argparse.Namespace) -> dict[str, Any]:
    """What was run, on what."""
    return {
        "format": "headcount first call 1",
        "command": f"python benchmarks/first_call.py {' '.join(sys.argv[1:])}",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": in_new_process(describe_machine),
        "versions": describe_versions(["headcount"]),
        "options": vars(options),
        "rows": [],
    }


def main() -> None:
    """Measure the chosen cells; the file is written again after every one."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shapes", nargs="+", default=["135m", "1b", "8b"], choices=list(SHAPES))
    parser.add_argument("--sets", nargs="*", type=int, default=[1, 10, 100, 1000])
    parser.add_argument("--prompts", nargs="+", type=int, default=[8, 64])
    parser.add_argument("--attribution", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--tokens", type=int, default=32, help="in each prompt")
    parser.add_argument("--off", type=int, default=4, help="random heads that a head set masks")
    parser.add_argument("--repeats", type=int, default=1, help="the median counts")
    parser.add_argument("--seconds", type=float, default=460, help="start no cell after this time")
    parser.add_argument("--store", action="store_true", help="headcount keeps its measurements")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--dtype", help="default: float32 on a CPU, bfloat16 on a GPU")
    parser.add_argument("--out", help="a JSON file; default: first_call.json in $OUT, if it is set")
    options = parser.parse_args()
    options.dtype = options.dtype or {"cpu": "float32", "cuda": "bfloat16"}[options.device]
    if options.out is None and os.environ.get("OUT"):
        options.out = str(Path(os.environ["OUT"]) / "first_call.json")
    begin, book = time.perf_counter(), describe(options)
    print(
        f"{'shape':5} {'work':>15} {'prompts':>8} {'plain s':>8} {'first s':>8} {'÷':>6}  ", end=""
    )
    print(f"{'again s':>8} {'÷':>6}   difference", flush=True)
    for cell in grid(options):
        if time.perf_counter() - begin > options.seconds:
            say(f"left out for want of time: {cell}")
            continue
        book["rows"].append(row_of(cell, options))
        print(told(book["rows"][-1]), flush=True)
        if options.out:
            Path(options.out).write_text(json.dumps(book, indent=1) + "\n", encoding="utf-8")
    rows = [row for row in book["rows"] if "failed" not in row]
    for way in WAYS[1:]:
        within = sum(row[way]["agrees"] and row[way]["ratio"] <= BAR for row in rows)
        print(f"{way}: {within} of {len(book['rows'])} cells within {BAR} × plain hooks")


if __name__ == "__main__":
    main()
