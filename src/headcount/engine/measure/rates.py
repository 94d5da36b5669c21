"""How fast this machine is with a model: measured here, and remembered in the cache folder.

What is remembered saves a few seconds and no more: where the folder cannot be read or written, it
is measured again.
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

TOKENS = 32  # of a row in a pass that is timed: what matters is rows × tokens
GOOD = 0.95  # of the best rate: the smallest size that reaches it wins, since it needs least memory

Kind = Literal["passes", "gradients", "writing"]
# As long as nothing is known: a backward pass takes about two forward ones. Writing token by token
# reads all weights for each, but what prompts share runs once, and answers end early.
GUESSES: dict[Kind, float] = {"passes": 1.0, "gradients": 3.0, "writing": 1.2}
WORTH = 2.0  # seconds: shorter runs say little about longer ones
ROWS = 4  # in the pass that is timed for a forecast
PATIENCE = 2.0  # seconds of such passes, of which the quickest counts
_TIMED: WeakKeyDictionary[Model, float] = WeakKeyDictionary()


def liked_tokens(model: Model) -> int:
    """Measure (a few seconds) or remember how many tokens at once give the best rate."""
    key = _device_key(model)
    known = _remembered("tokens.json").get(key)
    if known is None:
        known = _best_size(model)
        _remember("tokens.json", key, known)
    return int(known)


@torch.no_grad()
def _best_size(model: Model) -> int:
    """Run passes of growing size until they stop getting faster per token."""
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


def seconds_per_token(model: Model, kind: Kind = "passes") -> float:
    """About how many seconds a token takes in passes of this kind; NaN where that is not known."""
    known, key = _remembered("rates.json"), _device_key(model)
    if f"{key} / {kind}" in known:
        return known[f"{key} / {kind}"]
    if f"{key} / passes" in known:
        return GUESSES[kind] * known[f"{key} / passes"]
    # Not stored: what a real run takes is better, and comes soon.
    if model not in _TIMED:
        try:
            _TIMED[model] = timed_pass(model, ROWS, PATIENCE)
        except Exception:  # some models want more than token ids: no reason to end a run
            _TIMED[model] = math.nan
    return GUESSES[kind] * _TIMED[model]


@contextmanager
def timing(model: Model, tokens: int, kind: Kind = "passes") -> Iterator[None]:
    """Remember how long these tokens took, where it was long enough to tell."""
    begin = time.perf_counter()
    yield
    seconds = time.perf_counter() - begin
    if seconds >= WORTH and tokens:
        key = f"{_device_key(model)} / {kind}"
        new = seconds / tokens
        # Half of what was: one odd run is not to decide for all that follow.
        _remember("rates.json", key, (_remembered("rates.json").get(key, new) + new) / 2)


def _device_key(model: Model) -> str:
    """What a time is true of: device, threads, size and dtype of the model, version of torch."""
    device = (
        torch.cuda.get_device_name(model.device)
        if model.device.type == "cuda"
        else f"{platform.processor() or platform.machine()} × {torch.get_num_threads()}"
    )
    numbers = sum(p.numel() for p in model.module.parameters())
    return f"{device} / {numbers} {model.dtype} / torch {torch.__version__}"


def _remembered(file: str) -> dict[str, float]:
    try:
        numbers = json.loads((cache_dir() / file).read_text(encoding="utf-8"))
        return {str(key): float(value) for key, value in numbers.items()}
    except (OSError, HeadcountError, ValueError, AttributeError, TypeError):
        return {}


def _remember(file: str, key: str, number: float) -> None:
    with suppress(OSError, HeadcountError):
        write_json(cache_dir() / file, {**_remembered(file), key: number})
