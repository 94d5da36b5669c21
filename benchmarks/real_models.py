"""What real models reach on the bundled tasks with all heads on.

    python benchmarks/real_models.py                             # the bundled model, minutes
    python benchmarks/real_models.py A.gguf B.gguf --json FILE   # any further models

A study of a task at which the whole model fails has nothing to say about heads.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from machine import describe_machine, describe_versions

from headcount import evaluate, load_model, make_task

TASKS = (
    "ioi",
    "ioi-long",
    "greater-than",
    "docstring",
    "retrieval",
    "knowledge-recall",
    "semantic",
    "syntactic",
    "math",
    "inference",
    "logical",
    "decision",
    "syntax",
    "common-sense",
)


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("models", nargs="*", default=["smollm2-135m-q4"])
    parser.add_argument("--tasks", nargs="+", default=list(TASKS))
    parser.add_argument("--examples", type=int, default=100, help="at most, of each task")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = " ".join(Path(model).name for model in options.models)
    facts: dict[str, Any] = {
        "format": "headcount real models 1",
        "machine": describe_machine(),
        "versions": describe_versions([]),
        "command": f"python benchmarks/real_models.py {names} --examples {options.examples}",
        "dtype": options.dtype,
        "examples": options.examples,
        "rows": [],
    }
    for name in options.models:
        model = load_model(name, device=options.device, dtype=options.dtype)
        for key in options.tasks:
            begin, task = time.perf_counter(), make_task(key, model)
            if len(task) > options.examples:
                task = task.subset(options.examples)
            values = evaluate(model, task, {"whole": []}, split="all")
            interval = values.interval("whole")
            row = {"model": Path(name).stem, "task": key, "n": interval.n}
            row |= {"accuracy": interval.value, "low": interval.low, "high": interval.high}
            row["at chance"] = values.at_chance
            facts["rows"].append(row)
            taken = time.perf_counter() - begin
            print(f"{row['model']:40} {key:18} {interval.value:.3f}  {taken:.0f} s", flush=True)
            if options.json:
                options.json.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
