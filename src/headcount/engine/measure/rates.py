"""How fast this machine runs a model: measured once, and remembered in the cache folder.

The remembered numbers only save a few seconds. If the folder cannot be read or written, they are
measured again.
"""

from __future__ import annotations

import json
import math
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal
from weakref import WeakKeyDictionary

import torch

from headcount.errors import HeadcountError
from headcount.models.forward_modes import synchronize
from headcount.models.model import Model
from headcount.models.sites import accepted
from headcount.system.files import write_json
from headcount.system.paths import cache_dir

TOKENS = 32  # tokens in a row of a timed pass: only rows × tokens matters
# The smallest size that reaches this share of the best rate is chosen: it needs the least memory.
NEARLY_BEST = 0.95

Kind = Literal["passes", "gradients", "writing"]
# The time per token relative to a forward pass, used until a real run has been timed. A backward
# pass takes about as long as two forward passes. Writing reads all weights for each new token, but
# a prefix that prompts share runs once, and many texts end early.
RELATIVE_TIMES: dict[Kind, float] = {"passes": 1.0, "gradients": 3.0, "writing": 1.2}
SHORTEST_RUN = 2.0  # seconds: shorter runs say little about longer ones
ROWS = 4  # rows in the pass that is timed for a forecast
FORECAST_SECONDS = 2.0  # how long such passes are repeated; the fastest one counts
_TIMED: WeakKeyDictionary[Model, float] = WeakKeyDictionary()


def fastest_tokens(model: Model) -> int:
    """How many tokens at once give the best rate: remembered, or measured in a few seconds."""
    key = _device_key(model)
    known = _remembered("tokens.json").get(key)
    if known is None:
        known = _best_size(model)
        _remember("tokens.json", key, known)
    return int(known)


@torch.no_grad()
def _best_size(model: Model) -> int:
    """Run passes of growing size until the time per token stops falling."""
    on_cpu = model.device.type == "cpu"
    sizes = (128, 256, 512, 1024) if on_cpu else tuple(2**n for n in range(12, 17))
    rates: dict[int, float] = {}
    for size in sizes:
        try:
            rates[size] = 1 / timed_pass(model, size // TOKENS)
        except torch.OutOfMemoryError:
            break
        if rates[size] < 0.9 * max(rates.values()):
            break
    best = max(rates.values(), default=0.0)
    return next((size for size, rate in rates.items() if rate >= NEARLY_BEST * best), sizes[0])


@torch.no_grad()
def timed_pass(model: Model, rows: int, seconds: float = 0.0) -> float:
    """Seconds per token of a pass over `rows` rows of TOKENS tokens: the fastest of several passes.

    The pass runs at least three times, and is repeated for `seconds`: on a machine that does other
    work as well, a single pass may take many times as long as usual.
    """
    vocabulary = min(1000, getattr(model.module.config, "vocab_size", 1000) - 1)
    ids = torch.arange(rows * TOKENS, device=model.device).view(rows, TOKENS) % vocabulary + 1
    options = accepted(model.module, use_cache=False, logits_to_keep=1)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:  # the first pass is a warm-up
        synchronize(model.device)
        start = time.perf_counter()
        model.module(input_ids=ids, **options)
        synchronize(model.device)
        times.append(time.perf_counter() - start)
    return min(times[1:]) / (rows * TOKENS)


def seconds_per_token(model: Model, kind: Kind = "passes") -> float:
    """About how many seconds a token takes in passes of this kind; NaN if no pass can be timed."""
    known, key = _remembered("rates.json"), _device_key(model)
    if f"{key} / {kind}" in known:
        return known[f"{key} / {kind}"]
    if f"{key} / passes" in known:
        return RELATIVE_TIMES[kind] * known[f"{key} / passes"]
    # This time is not stored: a real run will soon give a better one.
    if model not in _TIMED:
        try:
            _TIMED[model] = timed_pass(model, ROWS, FORECAST_SECONDS)
        except Exception:  # a model that needs more than token ids has no forecast, but can run
            _TIMED[model] = math.nan
    return RELATIVE_TIMES[kind] * _TIMED[model]


@contextmanager
def timing(model: Model, tokens: int, kind: Kind = "passes") -> Iterator[None]:
    """Remember the time per token of the work inside, if the work takes long enough to tell."""
    begin = time.perf_counter()
    yield
    seconds = time.perf_counter() - begin
    if seconds >= SHORTEST_RUN and tokens:
        key = f"{_device_key(model)} / {kind}"
        new = seconds / tokens
        # The average of the old rate and the new one: a single odd run does not decide alone.
        _remember("rates.json", key, (_remembered("rates.json").get(key, new) + new) / 2)


def _device_key(model: Model) -> str:
    """What a time depends on: device, threads, size and dtype of the model, version of torch."""
    device = (
        torch.cuda.get_device_name(model.device)
        if model.device.type == "cuda"
        else f"{platform.processor() or platform.machine()} × {torch.get_num_threads()}"
    )
    parameters = sum(p.numel() for p in model.module.parameters())
    return f"{device} / {parameters} {model.dtype} / torch {torch.__version__}"


def _remembered(file: str) -> dict[str, float]:
    try:
        numbers = json.loads((cache_dir() / file).read_text(encoding="utf-8"))
        return {str(key): float(value) for key, value in numbers.items()}
    except (OSError, HeadcountError, ValueError, AttributeError, TypeError):
        return {}


def _remember(file: str, key: str, number: float) -> None:
    with suppress(OSError, HeadcountError):
        write_json(cache_dir() / file, {**_remembered(file), key: number})
