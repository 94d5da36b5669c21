"""What a sparse model lost and how far its edges are open, beside its dense model.

    python scripts/sparse_facts.py --text wikipedia.txt.xz --out docs/results/sparsify/facts.json

Accuracy and mean metric on the tasks of heads-kept (the test split of 1,000 prompts each), with the
paired difference; the share of open edges in blocks of several lengths (the first articles of the
text, which training keeps for its evaluation); and the loss there in float32, as users load the
models, where training evaluates in bfloat16.
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
from headcount.sparse.make_sparse import attentions_of, drawing, gate_bias
from headcount.sparse.objective import Loss, measure
from headcount.sparse.text import Blocks, load_text
from headcount.stats import paired_difference

METRICS = {
    "ioi": "logit_difference",
    "greater-than": "mass_difference",
    "docstring": "logit_difference",
    "ioi-long": "logit_difference",
}
BLOCKS = {64: 48, 128: 32, 256: 24, 512: 12, 1024: 6}  # tokens of a block → blocks
BLOCK = 256  # tokens, in training


def task_values(model: Model, task: Task) -> np.ndarray[Any, Any]:
    """The metric of every prompt with all heads."""
    gates = np.ones((1, model.layout.total), dtype=np.float32)
    found = evaluate(model, task, gates, metric=METRICS[task.name])
    return np.asarray(found.values, dtype=float).reshape(-1)


def edges(model: Model, text: Path) -> dict[int, float]:
    """Tokens of a block → share of open edges."""
    shares = {}
    with tempfile.TemporaryDirectory() as folder:
        for tokens, count in BLOCKS.items():
            data = load_text(text, model.tokenizer, tokens, keep=Path(folder), progress=False)
            shares[tokens] = measured(model, data.final[:count]).edges
            print(f"blocks of {tokens}: {shares[tokens]:.2%} open", flush=True)
    return shares


def measured(model: Model, blocks: Blocks) -> Loss:
    """Loss and, of a sparse model, open edges."""
    sparse = gate_bias(model.module) is not None
    attentions = attentions_of(model.module) if sparse else []
    with drawing(attentions, gate_bias(model.module) or 0.0) as draws:
        return measure(
            lambda ids: model.module(input_ids=ids, use_cache=False).logits,
            blocks,
            4,
            draws if sparse else None,
            torch.device(model.device),
        )


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--dense", default="smollm2-135m-q4")
    parser.add_argument("--sparse", default="sparse:smollm2-135m-q4")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--blocks", type=int, default=1024, help="for the loss")
    parser.add_argument("--only-loss", action="store_true", help="the rest as --out has it")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.only_loss and not (options.out and options.out.is_file()):
        parser.error("--only-loss needs an --out that an earlier run wrote.")
    dense, sparse = (load_model(name) for name in (options.dense, options.sparse))
    facts: dict[str, Any] = {"dense": dense.name, "sparse": sparse.name}
    if options.only_loss:
        facts = json.loads(options.out.read_text("utf-8"))
    else:
        facts |= tasks_and_edges(dense, sparse, options.text)
    data = load_text(options.text, dense.tokenizer, BLOCK, progress=False)
    blocks = data.final[: options.blocks]
    losses = [measured(model, blocks).loss for model in (dense, sparse)]
    facts["loss in float32"] = {"blocks": len(blocks), "dense": losses[0], "sparse": losses[1]}
    print(facts["loss in float32"], flush=True)
    if options.out:
        options.out.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def tasks_and_edges(dense: Model, sparse: Model, text: Path) -> dict[str, Any]:
    """Both models on every task, and the sparse one's edges."""
    facts: dict[str, Any] = {"tasks": {}}
    for name in METRICS:
        test = make_task(name, dense.tokenizer, n=1000).split("test")
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
    facts["open edges"] = edges(sparse, text)
    return facts


if __name__ == "__main__":
    main()
