"""How many tokens this device likes to run at once with this model: measured, then remembered."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from pathlib import Path

import torch

from headcount.models.forward_modes import synchronize
from headcount.models.model import Model
from headcount.models.sites import accepted
from headcount.system.paths import cache_dir

TOKENS = 32  # of a row: what matters is rows × tokens
GOOD = 0.95  # of the best rate: the smallest size that reaches it wins, since it needs least memory


def liked_tokens(model: Model) -> int:
    """Measure (a few seconds) or remember how many tokens at once give the best rate."""
    path = cache_dir() / "tokens.json"
    key = device_key(model)
    known = read_numbers(path)
    if key not in known:
        known[key] = measure(model)
        write_numbers(path, {**read_numbers(path), key: known[key]})
    return int(known[key])


@torch.no_grad()
def measure(model: Model) -> int:
    """Run passes of growing size until they stop getting faster per token."""
    sizes = (
        (128, 256, 512, 1024) if model.device.type == "cpu" else tuple(2**n for n in range(12, 17))
    )
    rates: dict[int, float] = {}
    for size in sizes:
        try:
            rates[size] = 1 / timed_pass(model, size // TOKENS)
        except torch.OutOfMemoryError:
            break
        if rates[size] < 0.9 * max(rates.values()):
            break
    best = max(rates.values(), default=0.0)
    return next((size for size, rate in rates.items() if rate >= GOOD * best), sizes[0])


@torch.no_grad()
def timed_pass(model: Model, rows: int, patience: float = 0.0) -> float:
    """Seconds per token of a pass over so many rows of TOKENS tokens: the shortest of some.

    It is run three times, and again for as many seconds as `patience`: on a machine that does other
    work too, single passes may take many times as long as usual.
    """
    words = min(1000, getattr(model.module.config, "vocab_size", 1000) - 1)
    ids = torch.arange(rows * TOKENS, device=model.device).view(rows, TOKENS) % words + 1
    options = accepted(model.module, use_cache=False, logits_to_keep=1)
    times: list[float] = []
    end = time.perf_counter() + patience
    while len(times) < 3 or time.perf_counter() < end:  # the first warms up
        synchronize(model.device)
        start = time.perf_counter()
        model.module(input_ids=ids, **options)
        synchronize(model.device)
        times.append(time.perf_counter() - start)
    return min(times[1:]) / (rows * TOKENS)


def device_key(model: Model) -> str:
    """What a time is true of: device, threads, size and dtype of the model, version of torch."""
    device = (
        torch.cuda.get_device_name(model.device)
        if model.device.type == "cuda"
        else f"{platform.processor() or platform.machine()} × {torch.get_num_threads()}"
    )
    numbers = sum(p.numel() for p in model.module.parameters())
    return f"{device} / {numbers} {model.dtype} / torch {torch.__version__}"


def read_numbers(path: Path) -> dict[str, float]:
    """The remembered numbers; none where there is no file, or a damaged one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {str(key): float(value) for key, value in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}  # a damaged memory is measured again


def write_numbers(path: Path, known: dict[str, float]) -> None:
    """Replace the file at once, so that nobody reads half of it."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        json.dump(known, file, indent=1)
    os.replace(file.name, path)
