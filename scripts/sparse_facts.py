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

from headcount import Task, evaluate, load_model, make_task
from headcount.models.model import Model
from headcount.models.sparsity import attentions_of, drawing, gate_bias
from headcount.sparse.loss import measure
from headcount.sparse.text import load_text
from headcount.stats import paired_difference

METRICS = {
    "ioi": "logit_difference",
    "greater-than": "mass_difference",
    "docstring": "logit_difference",
    "ioi-long": "logit_difference",
}
BLOCKS = {64: 48, 128: 32, 256: 24, 512: 12, 1024: 6}  # tokens of a block → blocks


def task_values(model: Model, task: Task) -> np.ndarray[Any, Any]:
    """The metric of every prompt with all heads."""
    gates = np.ones((1, model.layout.total), dtype=np.float32)
    found = evaluate(model, task, gates, metric=METRICS[task.name], progress=False)
    return np.asarray(found.values, dtype=float).reshape(-1)


def edges(model: Model, text: Path) -> dict[int, float]:
    """Tokens of a block → share of open edges."""
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
    dense, sparse = (load_model(name) for name in (options.dense, options.sparse))
    facts: dict[str, Any] = {"dense": dense.name, "sparse": sparse.name, "tasks": {}}
    for name in METRICS:
        test = make_task(name, dense.tokenizer, n=1000).part("test")
        both = [task_values(model, test) for model in (dense, sparse)]
        right = [values > 0 for values in both]
        apart = paired_difference(right[1], right[0], clusters=test.clusters)
        facts["tasks"][name] = {
            "n": len(test),
            "accuracy": [float(one.mean()) for one in right],
            "mean": [float(values.mean()) for values in both],
            "difference of the accuracies": [apart.value, apart.low, apart.high],
        }
        print(name, facts["tasks"][name], flush=True)
    facts["open edges"] = edges(sparse, options.text)
    if options.out:
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
