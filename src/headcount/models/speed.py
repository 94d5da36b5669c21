"""How many tokens per second models read and write, measured in turns."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import torch

from headcount.models.sites import accepted, input_device, probe_prompt

READING, WRITING = "reading", "writing"


@torch.no_grad()
def tokens_per_second(
    modules: Mapping[str, Any], *, rows: int = 4, prompt: int = 256, new: int = 16, rounds: int = 6
) -> dict[str, dict[str, list[float]]]:
    """Tokens per second of each model, by round, in reading a prompt and in writing after it.

    In every round each model reads the same `rows` prompts and writes `new` tokens greedily with
    its cache. Models take turns, in alternating order, so that what else the machine does meets
    them alike; a first round is not counted.
    """
    found: dict[str, dict[str, list[float]]] = {
        what: {name: [] for name in modules} for what in (READING, WRITING)
    }
    for number in range(rounds + 1):
        order = list(modules) if number % 2 else list(modules)[::-1]
        for name in order:
            seconds = _timed(modules[name], rows, prompt, new)
            if number:
                found[READING][name].append(rows * prompt / seconds[0])
                found[WRITING][name].append(rows * new / seconds[1])
    return found


def _timed(module: Any, rows: int, prompt: int, new: int) -> tuple[float, float]:
    """Seconds of reading the prompts, and of writing."""
    ids = probe_prompt(module, rows).repeat(1, prompt)[:, :prompt]
    options = accepted(module, use_cache=True)
    began = _now(module)
    output = module(input_ids=ids, **options)
    read = _now(module)
    for _ in range(new):
        ids = output.logits[:, -1:].argmax(-1)
        output = module(input_ids=ids, past_key_values=output.past_key_values, **options)
    return read - began, _now(module) - read


def _now(module: Any) -> float:
    """The time, after a GPU has finished its work."""
    device = input_device(module)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
