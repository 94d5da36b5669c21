"""What a sparse model lost and how far its edges are open, beside its dense model.

    python scripts/sparse_facts.py --text wikipedia.txt.xz --out docs/results/sparsify/facts.json

Accuracy and mean metric on the tasks of heads-kept (the test part of 1,000 prompts each), with the
paired difference, and the share of open edges in blocks of several lengths (the first articles of
the text, which training keeps for its evaluation).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headcount import evaluate, load_model, make_task
from headcount.models.sparsity import attentions_of, drawing, gate_bias
from headcount.sparse.loss import measure
from headcount.sparse.text import load_text

METRICS = {
    "ioi": "logit_difference",
    "greater-than": "mass_difference",
    "docstring": "logit_difference",
    "ioi-long": "logit_difference",
}
BLOCKS = {64: 48, 128: 32, 256: 24, 512: 12, 1024: 6}  # tokens of a block → blocks


def task_values(name: str, task: str) -> np.ndarray[Any, Any]:
    """The metric of every test prompt with all heads."""
    model = load_model(name)
    test = make_task(task, model.tokenizer, n=1000).part("test")
    gates = np.ones((1, model.layout.total), dtype=np.float32)
    found = evaluate(model, test, gates, metric=METRICS[task], progress=False)
    return np.asarray(found.values, dtype=float).reshape(-1)


def edges(name: str, text: Path) -> dict[int, float]:
    """Tokens of a block → share of open edges."""
    model = load_model(name)
    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        for tokens, count in BLOCKS.items():
            data = load_text(text, model.tokenizer, tokens, keep=Path(folder), progress=False)
            with drawing(attentions_of(model.module), gate_bias(model.module) or 0.0) as draws:
                found = measure(
                    lambda ids: model.module(input_ids=ids, use_cache=False).logits,
                    data.final[:count],
                    2,
                    draws,
                    torch.device(model.device),
                )
            shares[tokens] = found.edges
            print(f"blocks of {tokens}: {found.edges:.2%} open", flush=True)
    return shares


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--dense", default="smollm2-135m")
    parser.add_argument("--sparse", default="sparse:smollm2-135m")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    facts: dict[str, Any] = {"dense": options.dense, "sparse": options.sparse, "tasks": {}}
    for task in METRICS:
        dense, sparse = (task_values(name, task) for name in (options.dense, options.sparse))
        apart = (sparse > 0).astype(float) - (dense > 0)
        drawn = [rng.choice(apart, len(apart)).mean() for _ in range(4000)]
        low, high = np.percentile(drawn, [2.5, 97.5])
        facts["tasks"][task] = {
            "n": len(apart),
            "accuracy": [float((dense > 0).mean()), float((sparse > 0).mean())],
            "mean": [float(dense.mean()), float(sparse.mean())],
            "difference of the accuracies": [float(apart.mean()), float(low), float(high)],
        }
        print(task, facts["tasks"][task], flush=True)
    facts["open edges"] = edges(options.sparse, options.text)
    if options.out:
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
