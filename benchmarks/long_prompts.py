"""Long prompts against plain hooks: whole passes, and gates that act on late positions only.

    python benchmarks/long_prompts.py --shapes 8b 1b --tokens 4096 32768      # one GPU, minutes
    python benchmarks/long_prompts.py --shapes tiny --tokens 64 --device cpu  # seconds

Models have random weights in the published shapes. Plain hooks run one prompt and one head set in
each pass, with the last logit only. Three parts:

many     32 random heads off, one of them in the first layer
single   one head off, in any layer
late     32 random heads off, at the last `--late` positions only
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import PeakMemory, describe_machine, describe_versions
from shapes import SHAPES, random_model, task_of, word_tokenizer

from headcount import Lab, Model, Task, evaluate, wrap
from headcount.tasks import encode

OFF = 32  # heads that are off in the parts `many` and `late`
FEW = 8  # head sets of the part `late` that plain hooks measure: each takes a whole pass
ALLOWED = {"float32": 1e-3, "bfloat16": 0.5}  # difference of two log-probabilities

Values = np.ndarray  # (head sets, prompts)


def head_sets(part: str, layout: Any, sets: int) -> np.ndarray:
    """The gates of a part, (head sets, heads)."""
    rng = np.random.default_rng(0)
    gates = np.ones((sets, layout.total), dtype=np.float32)
    for row in gates:
        count = 1 if part == "single" else min(OFF, layout.total // 2)
        row[rng.choice(layout.total, count, replace=False)] = 0
        if part == "many":
            row[rng.integers(layout.counts[0])] = 0
    return gates


@contextmanager
def hooks(module: Any, gates: torch.Tensor, late: int | None) -> Iterator[None]:
    """What one writes by hand: a hook on each output projection with heads that are off."""
    heads = module.config.num_attention_heads
    handles = []
    for layer, g in zip(module.model.layers, gates.view(-1, heads), strict=True):
        if (g == 1).all():
            continue
        wide = g.repeat_interleave(module.config.head_dim).to(module.device, module.dtype)

        def hook(_: torch.nn.Module, args: tuple, wide: torch.Tensor = wide) -> tuple:
            if late is None:
                return (args[0] * wide,)
            z = args[0].clone()
            z[:, -late:] *= wide
            return (z,)

        handles.append(layer.self_attn.o_proj.register_forward_pre_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def plain(model: Model, task: Task, gates: np.ndarray, late: int | None) -> Values:
    """The log-probability of each target, by one whole pass for each prompt and head set."""
    module, rows = model.module, []
    for row in torch.from_numpy(gates):
        with hooks(module, row, late):
            for example in encode(task, model.tokenizer):
                ids = torch.tensor([example.prompt], device=model.device)
                logits = module(input_ids=ids, use_cache=False, logits_to_keep=1).logits[0, -1]
                rows.append(logits.float().log_softmax(-1)[example.target[0]])
    return torch.stack(rows).cpu().numpy().reshape(len(gates), -1)


def ours(model: Model, task: Task, gates: np.ndarray, late: int | None) -> Values:
    """The same by headcount, from texts to values."""
    return evaluate(
        model,
        task,
        gates,
        metric="logprob",
        split="all",
        positions="all" if late is None else slice(-late, None),
        lab=Lab(store=None, progress=False),
    ).values


def timed(run: Callable[[], Values], device: str) -> tuple[float, int, Values]:
    """Seconds, bytes at the peak, and values of one run."""
    if device != "cpu":
        torch.cuda.empty_cache()
    memory = PeakMemory(device)
    memory.start()
    begin = time.perf_counter()
    values = run()  # fetched from the device, so all its work is done
    return time.perf_counter() - begin, memory.read(), values


def compare(part: str, model: Model, task: Task, options: argparse.Namespace) -> dict[str, Any]:
    """One row: both ways in turns; the median of the rounds counts."""
    late = options.late if part == "late" else None
    gates = head_sets(part, model.layout, options.late_sets if late else options.sets)
    few = gates[:FEW] if late else gates
    ways: dict[str, Callable[[], Values]] = {
        "plain": lambda: plain(model, task, few, late),
        "headcount": lambda: ours(model, task, gates, late),
    }
    first: dict[str, float] = {}
    runs: dict[str, list[tuple[float, int, Values]]] = {name: [] for name in ways}
    for turn in range(options.rounds + 1):
        for name, run in ways.items():
            found = timed(run, options.device)
            if turn:
                runs[name].append(found)
            else:
                first[name] = found[0]
    apart = float(np.abs(runs["headcount"][0][2][: len(few)] - runs["plain"][0][2]).max())
    seconds = {name: statistics.median(one[0] for one in some) for name, some in runs.items()}
    peak = {name: max(one[1] for one in some) for name, some in runs.items()}
    each = {"plain": seconds["plain"] / len(few), "headcount": seconds["headcount"] / len(gates)}
    row = {"part": part, "head sets": len(gates), "prompts": options.prompts, "apart": apart}
    row |= {"seconds per head set": each, "first round": first, "peak bytes": peak}
    row |= {"times as fast": each["plain"] / each["headcount"]}
    row |= {"times the memory": peak["headcount"] / peak["plain"]}
    if late:  # without what is done once for all head sets
        once = statistics.median(
            timed(lambda: ours(model, task, few[:1], late), options.device)[0]
            for _ in range(options.rounds)
        )
        more = (seconds["headcount"] - once) / (len(gates) - 1)
        row |= {"late positions": late, "seconds per further head set": more}
        row |= {"times as fast per further head set": each["plain"] / more}
    if apart > ALLOWED[options.dtype]:
        raise SystemExit(f"{part}: the two differ by {apart:.2g}: no times are given.")
    return row


def tell(row: dict[str, Any]) -> None:
    """Print one row."""
    each, peak = row["seconds per head set"], row["peak bytes"]
    text = f"{row['shape']:5} {row['tokens']:6} tokens  {row['part']:7}"
    text += f"{1e3 * each['plain']:9.1f} ms plain {1e3 * each['headcount']:9.2f} ms headcount"
    text += f" {row['times as fast']:7.2f} ×   {peak['plain'] / 2**30:6.2f} GiB plain"
    text += f" {row['times the memory']:5.2f} ×   apart {row['apart']:.1e}"
    if "late positions" in row:
        text += f"   further head sets {row['times as fast per further head set']:.0f} ×"
    print(text, flush=True)


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--shapes", nargs="+", default=["8b", "1b"], choices=list(SHAPES))
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096, 32_768])
    parser.add_argument("--parts", nargs="+", default=["many", "single", "late"])
    parser.add_argument("--sets", type=int, default=16, help="head sets of `many` and `single`")
    parser.add_argument("--late", type=int, default=8, help="late positions")
    parser.add_argument("--late-sets", type=int, default=512, help="head sets of `late`")
    parser.add_argument("--prompts", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--dtype", choices=list(ALLOWED), help="bfloat16 on a GPU, else float32")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.dtype = options.dtype or ("float32" if options.device == "cpu" else "bfloat16")
    facts = {
        "format": "headcount long prompts 1",
        "machine": describe_machine(),
        "versions": describe_versions([]),
        "command": f"python {' '.join(sys.argv)}",
        "dtype": options.dtype,
    }
    rows: list[dict[str, Any]] = []
    for shape in options.shapes:
        vocabulary = SHAPES[shape][0]
        module = random_model(shape, options.device, getattr(torch, options.dtype))
        module.config.max_position_embeddings = max(options.tokens) + 8
        model = wrap(module, word_tokenizer(vocabulary), name=shape)
        if not (model.fast_paths.cache and model.late):  # proven here, apart from all times
            print(f"{shape}: late passes are not proven, so the part late runs whole passes")
        for tokens in options.tokens:
            task = task_of(vocabulary, options.prompts, tokens)
            for part in options.parts:
                row = {"shape": shape, "tokens": tokens, **compare(part, model, task, options)}
                tell(row)
                rows.append(row)
                if options.json:
                    text = json.dumps({**facts, "rows": rows}, indent=1)
                    options.json.write_text(text + "\n", encoding="utf-8")
        del module, model


if __name__ == "__main__":
    main()
