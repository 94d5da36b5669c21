"""Decoding under gates against transformers' own `generate`: the same prompts, the same batch.

    python benchmarks/decoding.py --prompts 32 --new 64 --repeats 3

Both write greedily and exactly `--new` tokens, in turns, in one process. Printed are the median
times, their ratio (ours over theirs; below 1 is faster), that of the processor's time, and how many
of the texts are equal. Ours runs without gates ("plain") and with one at every head, each at the
number next to 1 ("gated").
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from machine import describe_machine

from headcount import generate, load_model
from headcount.models.model import Model
from headcount.tasks import encode, make_task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="smollm2-135m-q4")
    parser.add_argument("--device")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--shots", type=int, default=0, help="solved problems in each prompt")
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", help="write the results to this file")
    options = parser.parse_args()
    model = load_model(options.model, device=options.device, dtype=options.dtype)
    task = make_task("word-problems", model.tokenizer, n=options.prompts, shots=options.shots)
    ids = [one.prompt for one in encode(task, model.tokenizer)]
    results = {"machine": describe_machine(), "prompts": len(ids), "new": options.new, "ways": {}}
    for name, gates in (("plain", None), ("gated", gates_of(model))):
        ours = partial(
            generate,
            endless(model),
            ids,
            gates,
            max_new_tokens=options.new,
            rows=len(ids),
            progress=False,
        )
        results["ways"][name] = race(
            lambda ours=ours: [list(text.ids) for text in ours()],
            partial(theirs, model, ids, options.new),
            options.repeats,
        )
        print(f"{name}: {json.dumps(results['ways'][name])}", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


def gates_of(model: Model) -> Any:
    """Every head at the number next to 1: all gates are at work, and the texts should be equal."""
    return np.full(model.layout.total, np.nextafter(np.float32(1), np.float32(0)))


def endless(model: Model) -> Model:
    """The model, with nothing that ends a text: both sides write the same number of tokens."""
    model.module.generation_config.eos_token_id = None
    model.tokenizer.eos_token = None
    return model


@torch.no_grad()
def theirs(model: Model, prompts: list[tuple[int, ...]], new: int) -> list[list[int]]:
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
    ours: Callable[[], list[list[int]]], other: Callable[[], list[list[int]]], repeats: int
) -> dict[str, Any]:
    """Both in turns, after one run each that does not count."""
    times: dict[str, list[float]] = {"ours": [], "theirs": []}
    cpu: dict[str, list[float]] = {"ours": [], "theirs": []}  # tells more on a busy machine
    texts: dict[str, list[list[int]]] = {}
    for repeat in range(repeats + 1):
        for name, run in (("ours", ours), ("theirs", other)):
            start, used = time.perf_counter(), time.process_time()
            texts[name] = run()
            if repeat:
                times[name].append(time.perf_counter() - start)
                cpu[name].append(time.process_time() - used)
    medians = {name: statistics.median(some) for name, some in times.items()}
    work = {name: statistics.median(some) for name, some in cpu.items()}
    equal = sum(a == b for a, b in zip(texts["ours"], texts["theirs"], strict=True))
    return {
        "ours_s": round(medians["ours"], 3),
        "generate_s": round(medians["theirs"], 3),
        "ratio": round(medians["ours"] / medians["theirs"], 3),
        "cpu_ratio": round(work["ours"] / work["theirs"], 3),
        "equal_texts": equal,
        "texts": len(texts["ours"]),
    }


if __name__ == "__main__":
    main()
