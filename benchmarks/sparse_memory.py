"""The memory of sparse training: an 8B shape with low-rank adapters, on one GPU.

    python benchmarks/sparse_memory.py --rows 8 --json FILE

The model has random weights and the text is random words: memory depends on neither. A few steps of
the dense control and of the sparse model are made as `headcount sparsify` makes them, through every
phase: all edges open, gates drawn with distillation, the look at the constraint.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from machine import describe_machine
from shapes import SHAPES, random_model, word_tokenizer

from headcount.models.model import wrap
from headcount.sparse.settings import Settings
from headcount.sparse.sparsify import sparsify

ARTICLES = 40


def main() -> None:
    """Train a few steps and print the peak."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shape", default="8b", choices=SHAPES)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tokens", type=int, default=1024, help="of a block")
    parser.add_argument("--rows", type=int, default=8, help="blocks in one pass")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    dtype = torch.bfloat16 if options.device != "cpu" else torch.float32
    tokenizer = word_tokenizer(SHAPES[options.shape][0])
    model = wrap(random_model(options.shape, options.device, dtype), tokenizer, name=options.shape)
    on_gpu = options.device != "cpu"
    weights = torch.cuda.memory_allocated() if on_gpu else 0
    machine = describe_machine()
    settings = Settings(
        steps=options.steps,
        block=options.tokens,
        batch=options.rows,
        own=0.0,
        dense_share=1 / options.steps,
        anneal=1 / options.steps,
        check_every=options.steps,
        evaluate_every=options.steps,
        constraint_blocks=options.rows,
        final_blocks=options.rows,
        held_out=ARTICLES // 4,
        constraint_articles=ARTICLES // 4,
    )
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "words.txt")
        text.write_text(words(SHAPES[options.shape][0], options.tokens * options.rows))
        outcome = sparsify(
            model, text, Path(folder, "out"), settings, rows=options.rows, progress=False
        )
    assert outcome is not None
    found = {
        "machine": machine,
        "shape": options.shape,
        "tokens": options.tokens,
        "rows": options.rows,
        "gib_weights": weights / 2**30 if on_gpu else None,
        "gib_peak": torch.cuda.max_memory_allocated() / 2**30 if on_gpu else None,
        "seconds": time.perf_counter() - began,
        "losses": [outcome.original.loss, outcome.control.loss, outcome.sparse.loss],
    }
    print(json.dumps(found, indent=1))
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


def words(vocabulary: int, tokens: int) -> str:
    """Articles of random words, so many tokens in every four of them."""
    rng = np.random.default_rng(0)
    size = tokens // 4 + 1
    articles = (rng.integers(3, vocabulary, size) for _ in range(ARTICLES))
    return "\n\n".join(" ".join(f"w{word}" for word in one) for one in articles)


if __name__ == "__main__":
    main()
