"""How far half precision is from float32: headcount's plans against a plain loop of hooks.

    python benchmarks/precision.py                     # a few minutes on two cores
    python benchmarks/precision.py --device cuda --json benchmarks/results/precision-gpu.json

Both measure the same log-probabilities of IOI answers with single heads masked. The plain loop has
a whole pass for each head set and prompt. The reference is the plain loop in float32.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headcount import Lab, Model, Task, evaluate, gated, load_model, make_task
from headcount.tasks import encode

RESULTS = Path(__file__).parent / "results" / "precision.json"


@torch.no_grad()
def plain_loop(model: Model, task: Task, heads: list[str]) -> np.ndarray:
    """Log-probabilities of the targets, (head sets, examples): one whole pass for each."""
    values = np.empty((len(heads), len(task)))
    for row, head in enumerate(heads):
        with gated(model, [head]):
            for column, example in enumerate(encode(task, model.tokenizer)):
                ids = torch.tensor([[*example.prompt, *example.target]], device=model.device)
                logits = model.module(ids).logits[0].float().log_softmax(-1)
                start = len(example.prompt) - 1
                scored = logits[start:-1].gather(-1, ids[0, start + 1 :, None])
                values[row, column] = float(scored.sum())
    return values


def main() -> None:
    """Measure, print, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--model", default="smollm2-135m-q4")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--every", type=int, default=18, help="one head in so many is masked")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16", "float16"])
    parser.add_argument("--device")
    parser.add_argument("--json", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    reference = None
    for dtype in dict.fromkeys(["float32", *options.dtypes]):
        model = load_model(options.model, dtype=dtype, device=options.device)
        task = make_task("ioi", model, n=options.prompts)
        heads = [str(head) for head in model.layout][:: options.every]
        plain = plain_loop(model, task, heads)
        reference = plain if reference is None else reference
        ours = evaluate(
            model,
            task,
            [[head] for head in heads],
            metric="logprob",
            split="all",
            lab=Lab(store=None),
        ).values
        errors = {"plain": np.abs(plain - reference), "headcount": np.abs(ours - reference)}
        row = {"dtype": dtype, "device": model.device.type, "values": ours.size}
        for name, error in errors.items():
            row |= {f"{name} mean": float(error.mean()), f"{name} most": float(error.max())}
        row["apart"] = float(np.abs(ours - plain).max())
        print(row, flush=True)
        rows.append(row)
    facts = {
        "format": "headcount precision 1",
        "model": options.model,
        "prompts": options.prompts,
        "head sets": len(heads),
    }
    options.json.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
