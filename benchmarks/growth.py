"""How time and memory grow with heads, prompts, tokens, head sets and the size of the model.

    python benchmarks/growth.py

Each of them grows by itself while all others stay. The slope of log time against the log of what
grows is compared with that of the work: the multiplications and additions of the matrix products
that a plain loop would do. Writes benchmarks/results/growth.json and docs/images/growth.png.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import PeakMemory, describe_machine, describe_versions
from report import RESULTS
from shapes import random_llama, task_of, word_tokenizer

from headcount import Lab, evaluate, wrap
from headcount.models.model import Model

PICTURE = Path(__file__).parents[1] / "docs" / "images" / "growth.png"
ALLOWED = 0.1  # what the slope of time may be above that of the work: the noise of a short run
# vocabulary, width, MLP width, layers, heads, key/value heads, tied embeddings
SHAPE = (2000, 256, 688, 8, 8, 4, True)
SIZES = {
    "0.2m": (2000, 64, 172, 2, 4, 2, True),
    "1m": (2000, 128, 344, 4, 4, 2, True),
    "6m": SHAPE,
    "25m": (8000, 384, 1024, 12, 6, 3, True),
    "135m": (49152, 576, 1536, 30, 9, 3, True),
}
BASE = {"gated": 1, "prompts": 16, "tokens": 16, "sets": 8}
AXES = {
    "gated": ("heads gated in a set", (1, 2, 4, 8, 16, 32, 64)),
    "prompts": ("prompts", (8, 16, 32, 64, 128, 256)),
    "tokens": ("tokens of a prompt", (8, 16, 32, 64, 128, 256)),
    "sets": ("head sets", (4, 8, 16, 32, 64, 128)),
}


def work(shape: tuple[Any, ...], prompts: int, tokens: int, sets: int) -> float:
    """Operations of a plain loop: all layers at all tokens, logits at the last one."""
    vocabulary, width, inner, layers, heads, pairs, _ = shape
    linear = layers * (2 * width * width + 2 * width * width * pairs // heads + 3 * width * inner)
    attention = 2 * tokens * width * layers  # the causal half of two products
    return sets * prompts * (tokens * 2 * (linear + attention / 2) + 2 * vocabulary * width)


def gates_of(model: Model, sets: int, gated: int) -> np.ndarray:
    """Head sets that all gate a head of the first layer, so that all of them run all layers."""
    rng = np.random.default_rng(0)
    rows = np.ones((sets, model.layout.total), dtype=np.float32)
    for number, row in enumerate(rows):
        first = number % model.layout.counts[0]
        others = np.delete(np.arange(model.layout.total), first)
        chosen = [first, *rng.choice(others, gated - 1, replace=False)]
        row[chosen] = rng.uniform(0, 0.9, gated)  # no two sets are the same
    return rows


def measure(model: Model, prompts: int, tokens: int, sets: int, gated: int) -> tuple[float, int]:
    """The least CPU seconds of three sweeps, and the bytes that a sweep adds."""
    task = task_of(model.module.config.vocab_size, prompts, tokens)
    gates = gates_of(model, sets, gated)
    times = []
    memory = PeakMemory("cpu")
    for _ in range(3):
        gc.collect()
        memory.start()
        begin = time.process_time()
        evaluate(model, task, gates, split="all", metric="logprob", lab=Lab(store=None))
        times.append(time.process_time() - begin)
    return min(times), memory.read() - memory.before


def make(shape: tuple[Any, ...]) -> Model:
    """A random model whose fast paths are proven."""
    model = wrap(random_llama(shape, "cpu", torch.float32), word_tokenizer(shape[0]), name="random")
    model.fast_paths  # noqa: B018
    return model


def slope(points: list[dict[str, float]], key: str) -> float:
    """Of the log of this against the log of what grows."""
    x, y = (np.log([point[name] for point in points]) for name in ("x", key))
    return round(float(np.polyfit(x, y, 1)[0]), 6) + 0.0  # no -0


def grow(most: int) -> list[dict[str, Any]]:
    """Every axis with its points; `most` leaves out what lies far out."""
    found = []
    model = make(SHAPE)
    for axis, (name, values) in AXES.items():
        points = []
        for value in values[:most]:
            size = {**BASE, axis: value}
            seconds, memory = measure(model, **size)
            needed = work(SHAPE, size["prompts"], size["tokens"], size["sets"])
            points.append({"x": value, "seconds": seconds, "memory": memory, "work": needed})
            print(f"{name:22} {value:5} {seconds:8.3f} s {memory / 1e6:8.1f} MB", flush=True)
        found.append(finish(name, points))
    points = []
    for shape in list(SIZES.values())[:most]:
        model = make(shape)
        numbers = sum(p.numel() for p in model.module.parameters())
        seconds, memory = measure(model, 8, 16, 4, 1)
        needed = work(shape, 8, 16, 4)
        points.append({"x": numbers, "seconds": seconds, "memory": memory, "work": needed})
        print(f"{'weights':22} {numbers:9} {seconds:8.3f} s {memory / 1e6:8.1f} MB", flush=True)
    found.append(finish("weights of the model", points))
    return found


def finish(name: str, points: list[dict[str, float]]) -> dict[str, Any]:
    """The axis with its slopes."""
    times, works = slope(points, "seconds"), slope(points, "work")
    verdict = "" if times <= works + ALLOWED else "  FASTER THAN ITS WORK"
    print(f"{name:22} slope of time {times:.2f}, of the work {works:.2f}{verdict}", flush=True)
    return {"name": name, "points": points, "time_slope": times, "work_slope": works}


def draw(axes: list[dict[str, Any]]) -> None:
    """Time above, memory below, against what grows; the line is the work, from the first point."""
    import matplotlib.pyplot as plt
    from matplotlib.ticker import NullFormatter

    figure, panels = plt.subplots(2, len(axes), figsize=(3 * len(axes), 5.4), sharex="col")
    for column, axis in zip(panels.T, axes, strict=True):
        x = [point["x"] for point in axis["points"]]
        seconds = [point["seconds"] for point in axis["points"]]
        works = np.array([point["work"] for point in axis["points"]])
        above, below = column
        above.loglog(x, works / works[-1] * seconds[-1], color="0.6", label="as the work")
        above.loglog(x, seconds, "o-", color="tab:blue", label="measured")
        above.set_title(
            f"slope {axis['time_slope']:.2f}, of the work {axis['work_slope']:.2f}", fontsize=9
        )
        below.semilogx(
            x, [point["memory"] / 1e6 for point in axis["points"]], "s-", color="tab:orange"
        )
        below.set_ylim(0, 1.2 * max(point["memory"] for point in axis["points"]) / 1e6)
        # At least a factor of a hundred everywhere, or noise would look like growth.
        middle = float(np.exp(np.log(seconds).mean()))
        above.set_ylim(min(*seconds, middle / 10) / 1.5, max(*seconds, middle * 10) * 1.5)
        above.yaxis.set_minor_formatter(NullFormatter())
        below.set_xlabel(axis["name"])
    panels[0, 0].set_ylabel("CPU seconds, one thread")
    panels[1, 0].set_ylabel("memory added by the sweep, MB")
    panels[0, 0].legend(fontsize=8, frameon=False)
    for panel in panels.flat:
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=8)
    figure.tight_layout()
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(PICTURE, dpi=110)


def main() -> None:
    """Measure, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--points", type=int, default=99, help="of each axis, to try it")
    parser.add_argument("--json", type=Path, default=RESULTS / "growth.json")
    parser.add_argument("--draw", action="store_true", help="only draw what is in the file")
    arguments = parser.parse_args()
    if arguments.draw:
        draw(json.loads(arguments.json.read_text(encoding="utf-8"))["axes"])
        return
    torch.set_num_threads(arguments.threads)
    machine = describe_machine()
    axes = grow(arguments.points)
    result = {
        "format": "headcount growth 1",
        "command": "python benchmarks/growth.py " + " ".join(sys.argv[1:]),
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": machine,
        "versions": describe_versions(["headcount"]),
        "threads": arguments.threads,
        "axes": axes,
    }
    arguments.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    draw(axes)
    faster = [a["name"] for a in axes if a["time_slope"] > a["work_slope"] + ALLOWED]
    if faster:
        raise SystemExit(f"Grows faster than its work: {', '.join(faster)}.")


if __name__ == "__main__":
    main()
