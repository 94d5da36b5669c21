"""Decoding under gates against transformers' own `generate`: the same prompts, the same batch.

    python benchmarks/decoding.py --prompts 32 --new 64 --repeats 3
    python benchmarks/decoding.py --shape 8b --device cuda --dtype bfloat16 --prompts 128 --new 128

Both write greedily and exactly `--new` tokens, in turns, in one process; first calls do not count,
but are printed. Ours runs without gates ("plain"), with one head set for all rows ("gated": every
head at the number next to 1), and with a head set of its own for each row ("head sets": an eighth
of the heads off). Printed are the median times, how many times as fast we are, milliseconds a step
(the prompts' pass included), its share of what the memory's bandwidth allows (`--bandwidth`, for
weights and cache alone), and how many texts are equal. Where texts differ, the gap between the two
tokens at the first difference is measured by a pass over the text: the largest gap is printed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from machine import describe_machine, describe_versions
from shapes import SHAPES, random_model, word_tokenizer

from headcount import generate, load_model, wrap
from headcount.models.forward_modes import synchronize
from headcount.models.model import Model
from headcount.tasks import encode, make_task

Texts = list[list[int]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2-135m-q4")
    parser.add_argument("--shape", choices=list(SHAPES), help="random weights in place of a model")
    parser.add_argument("--device")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=100, help="in a prompt of random words")
    parser.add_argument("--shots", type=int, default=0, help="solved problems in each prompt")
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bandwidth", type=float, default=4.3e12, help="bytes a second")
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()
    model, ids = model_and_prompts(options)
    floor = step_bytes(model, ids, options.new) / options.bandwidth
    results: dict[str, Any] = {
        "machine": describe_machine(),
        "versions": describe_versions([]),
        "command": f"python {' '.join(sys.argv)}",
        "options": vars(options),
        "floor_ms": round(1e3 * floor, 3),
        "ways": {},
    }
    for name, gates in gates_of(model, len(ids)).items():
        ours = partial(
            generate, endless(model), ids, gates, max_new_tokens=options.new, progress=False
        )
        outcome = race(
            model,
            lambda ours=ours: [list(text.ids) for text in ours()],
            partial(theirs, model, ids, options.new),
            options.repeats,
        )
        outcome["step_ms"] = round(1e3 * outcome["ours_s"] / options.new, 3)
        outcome["share_of_bandwidth"] = round(floor * options.new / outcome["ours_s"], 3)
        if name != "head sets":  # these texts are meant to differ
            outcome |= compare(model, ids, outcome["texts"], outcome["their_texts"])
        del outcome["texts"], outcome["their_texts"]
        results["ways"][name] = outcome
        print(f"{options.shape or options.model}, {name}: {json.dumps(outcome)}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


def model_and_prompts(options: argparse.Namespace) -> tuple[Model, list[tuple[int, ...]]]:
    """A real model with word problems, or random weights with random words."""
    if options.shape is None:
        model = load_model(options.model, device=options.device, dtype=options.dtype)
        task = make_task("word-problems", model.tokenizer, n=options.prompts, shots=options.shots)
        return model, [one.prompt for one in encode(task, model.tokenizer)]
    dtype = getattr(torch, options.dtype)
    module = random_model(options.shape, options.device or "cpu", dtype)
    vocabulary = SHAPES[options.shape][0]
    model = wrap(module, word_tokenizer(vocabulary), name=options.shape)
    rng = np.random.default_rng(0)
    drawn = rng.integers(3, vocabulary, (options.prompts, options.tokens))
    return model, [tuple(row) for row in drawn.tolist()]


def step_bytes(model: Model, ids: list[tuple[int, ...]], new: int) -> float:
    """The bytes that a step must read: all weights once, and half of the new tokens' cache."""
    config: Any = model.module.config
    weights = sum(p.nbytes for p in model.module.parameters())
    embeddings = model.module.get_input_embeddings().weight
    if model.module.get_output_embeddings().weight is not embeddings:
        weights -= embeddings.nbytes  # a step reads a row of it for each token
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token = 2 * config.num_hidden_layers * config.num_key_value_heads * size * model.dtype.itemsize
    return weights + token * sum(len(row) + new / 2 for row in ids)


def gates_of(model: Model, rows: int) -> dict[str, Any]:
    """The ways to decode, by name, and the gates of each."""
    rng = np.random.default_rng(0)
    heads = model.layout.total
    sets = np.ones((rows, heads))
    for row in sets:
        row[rng.choice(heads, heads // 8, replace=False)] = 0
    # At the number next to 1 all gates are at work, and the texts should be equal.
    near = np.full(heads, np.nextafter(np.float32(1), np.float32(0)))
    return {"plain": None, "gated": near, "head sets": sets}


def endless(model: Model) -> Model:
    """The model, with nothing that ends a text: both sides write the same number of tokens."""
    model.module.generation_config.eos_token_id = None
    model.tokenizer.eos_token = None
    return model


@torch.no_grad()
def theirs(model: Model, prompts: list[tuple[int, ...]], new: int) -> Texts:
    """One call of `generate`, padded on the left as its documentation says."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    output = endless(model).module.generate(
        ids.to(model.device),
        attention_mask=mask.to(model.device),
        max_new_tokens=new,
        do_sample=False,
        pad_token_id=0,
    )
    return output[:, width:].tolist()


def race(
    model: Model, ours: Callable[[], Texts], other: Callable[[], Texts], repeats: int
) -> dict[str, Any]:
    """Both in turns, after one run each that does not count."""
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    cpu: dict[str, list[float]] = {"ours": [], "theirs": []}  # tells more on a busy machine
    texts: dict[str, Texts] = {}
    for _ in range(repeats + 1):
        for name, run in (("ours", ours), ("theirs", other)):
            synchronize(model.device)
            start, used = time.perf_counter(), time.process_time()
            texts[name] = run()
            synchronize(model.device)
            times[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - used)
    medians = {name: statistics.median(some[1:]) for name, some in times.items()}
    work = {name: statistics.median(some[1:]) for name, some in cpu.items()}
    return {
        "ours_s": round(medians["ours"], 3),
        "generate_s": round(medians["theirs"], 3),
        "times_as_fast": round(medians["theirs"] / medians["ours"], 2),
        "cpu_ratio": round(work["ours"] / work["theirs"], 3),
        "first_call_s": round(times["ours"][0], 3),
        "generate_first_call_s": round(times["theirs"][0], 3),
        "texts": texts["ours"],
        "their_texts": texts["theirs"],
    }


@torch.no_grad()
def compare(
    model: Model, prompts: list[tuple[int, ...]], ours: Texts, other: Texts
) -> dict[str, Any]:
    """How many texts are equal, and the largest gap between two tokens where texts part."""
    gaps = []
    for prompt, a, b in zip(prompts, ours, other, strict=True):
        place = next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None)
        if place is not None:
            ids = torch.tensor([[*prompt, *a[:place]]], device=model.device)
            p = model.module(input_ids=ids).logits[0, -1].float().log_softmax(-1)
            gaps.append(float((p[a[place]] - p[b[place]]).abs()))
    equal = len(prompts) - len(gaps)
    return {"equal_texts": equal, "of": len(prompts), "largest_gap": max(gaps, default=0.0)}


if __name__ == "__main__":
    main()
