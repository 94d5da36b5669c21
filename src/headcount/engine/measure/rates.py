"""How fast this machine runs a model: measured once, and remembered in the cache folder.

The remembered numbers only save a few seconds. If the folder cannot be read or written, they are
measured again, or guessed.
"""

from __future__ import annotations

import math
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Literal
from weakref import WeakKeyDictionary

import torch

from headcount.models.fast_paths import FastPaths
from headcount.models.forward_modes import exactly, synchronize
from headcount.models.model import Model
from headcount.models.sites import accepted, is_unloaded
from headcount.system.remembered import remember, remembered_number

TOKENS = 32  # tokens in a row of a timed pass: only rows × tokens matters
# The smallest size that reaches this share of the best rate is chosen: it needs the least memory.
NEARLY_BEST = 0.95

RATES, SIZES = "rates.json", "tokens.json"
Kind = Literal["passes", "compiled", "gradients", "writing"]
# The time per token relative to a forward pass, used until a real run has been timed. A backward
# pass takes about as long as two forward passes. Writing reads all weights for each new token, but
# a prefix that prompts share runs once, and many texts end early.
# Compiled blocks save the least where matrix products take most of the time: 19 % in an 8B shape.
RELATIVE_TIMES: dict[Kind, float] = {
    "passes": 1.0,
    "compiled": 0.8,
    "gradients": 3.0,
    "writing": 1.2,
}
SHORTEST_RUN = 2.0  # seconds: shorter runs say little about longer ones
BUSY = 0.6  # of its threads: a run that got less shared the processor, and says little about others
# Rows in the pass that is timed for a forecast, and how many seconds such passes are repeated; the
# fastest one counts. On a GPU a smaller pass would time nothing but Python.
FORECAST = {"cpu": (4, 2.0), "cuda": (128, 0.2)}

# Guesses, for a machine that has not run such a model yet.
GPU_RATE = 4e14  # operations per second of a data-centre GPU
CPU_RATE = 5e10  # … of one thread of a CPU
GPU_LAUNCH = 5e-4  # seconds in which Python launches the kernels of one block: no pass is faster
PROOF_PASSES = 50  # whole passes that take as long as the proof of the fast paths …
PROOF_TOKENS = 40  # … and the tokens of one of them
COMPILE_SECONDS = 30.0  # of one shape of a block, where the compiler's cache is empty
_TIMED: WeakKeyDictionary[Model, float] = WeakKeyDictionary()


@dataclass(frozen=True)
class Speed:
    """Seconds on this machine for one model, as far as they are known, else guessed."""

    token: float  # a token in a large pass
    compiled_token: float  # … by compiled blocks
    launch: float  # a small pass on a GPU, which takes as long as Python takes to launch it
    prove: float  # the proof of the fast paths; 0 once it is known
    compile: float  # compiling the blocks


def speed_of(model: Model) -> Speed:
    """What is remembered of this model, device and version of torch; nothing runs for it."""
    key, on_gpu = _device_key(model), model.device.type == "cuda"
    parameters = sum(p.numel() for p in model.module.parameters())
    guess = 2 * parameters / (GPU_RATE if on_gpu else CPU_RATE * torch.get_num_threads())
    share = RELATIVE_TIMES["compiled"]
    known = {
        what: remembered_number(RATES, f"{key} / {what}")
        for what in ("passes", "compiled", "proof", "compile")
    }
    token, compiled = known["passes"], known["compiled"]
    if token is None:
        token = guess if compiled is None else compiled / share
    if compiled is None:  # small models, far from the guess, gain most
        compiled = min(share * token, guess)
    launch = GPU_LAUNCH * len(model.sites) if on_gpu else 0.0
    proof = PROOF_PASSES * max(launch, PROOF_TOKENS * token)
    prove = 0.0 if model.known_paths is not None else _known_or(known["proof"], proof)
    return Speed(token, compiled, launch, prove, _known_or(known["compile"], COMPILE_SECONDS))


def _known_or(known: float | None, guess: float) -> float:
    return guess if known is None else known


def proven_paths(model: Model) -> FastPaths:
    """The fast paths of a model; the time that a proof takes here is remembered."""
    if model.known_paths is None:
        begin = time.perf_counter()
        _ = model.fast_paths
        remember(RATES, f"{_device_key(model)} / proof", time.perf_counter() - begin)
    return model.fast_paths


def known_tokens(model: Model) -> int | None:
    """How many tokens at once give the best rate, if an earlier run has measured it."""
    known = remembered_number(SIZES, _device_key(model))
    return int(known) if known is not None and known >= 1 else None


def fastest_tokens(model: Model) -> int:
    """How many tokens at once give the best rate: remembered, or measured in a few seconds."""
    known = known_tokens(model)
    if known is None:
        known = _best_size(model)
        remember(SIZES, _device_key(model), known)
    return known


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
    with exactly(model.module):
        while len(times) < 3 or time.perf_counter() < end:  # the first pass is a warm-up
            synchronize(model.device)
            start = time.perf_counter()
            model.module(input_ids=ids, **options)
            synchronize(model.device)
            times.append(time.perf_counter() - start)
    return min(times[1:]) / (rows * TOKENS)


def seconds_per_token(model: Model, kind: Kind = "passes") -> float:
    """About how many seconds a token takes in passes of this kind; NaN if no pass can be timed."""
    if is_unloaded(model.module):  # how fast a server is, nobody knows here
        return math.nan
    for measured in (kind, "passes"):
        known = remembered_number(RATES, f"{_device_key(model)} / {measured}")
        if known is not None:
            return known if measured == kind else RELATIVE_TIMES[kind] * known
    # This time is not stored: a real run will soon give a better one.
    if model not in _TIMED:
        try:
            _TIMED[model] = timed_pass(model, *FORECAST.get(model.device.type, FORECAST["cpu"]))
        except Exception:  # a model that needs more than token ids has no forecast, but can run
            _TIMED[model] = math.nan
    return RELATIVE_TIMES[kind] * _TIMED[model]


@contextmanager
def timing(model: Model, tokens: int, kind: Kind = "passes") -> Iterator[None]:
    """Remember the time per token of the work inside, if the work takes long enough to tell.

    Time that went into compiling is remembered by itself. On a CPU that was busy with other work,
    nothing is.
    """
    begin, compiled_before = time.perf_counter(), _compile_seconds()
    used = time.process_time()
    yield
    seconds, compiling = time.perf_counter() - begin, _compile_seconds() - compiled_before
    used = time.process_time() - used
    if model.device.type == "cpu" and used < BUSY * seconds * torch.get_num_threads():
        return
    key = _device_key(model)
    if compiling > 0 and kind == "compiled":
        remember(RATES, f"{key} / compile", compiling)
    # Torch may report more time of compiling than has passed, if it compiles in several threads.
    if seconds >= SHORTEST_RUN and tokens and seconds > compiling:
        new = (seconds - compiling) / tokens
        # The average of the old rate and the new one: a single odd run does not decide alone.
        old = remembered_number(RATES, f"{key} / {kind}")
        remember(RATES, f"{key} / {kind}", new if old is None else (old + new) / 2)


def _compile_seconds() -> float:
    """How long torch has compiled in this process; 0 where this version of torch does not tell."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    with suppress(AttributeError, KeyError, TypeError):
        return float(dynamo.calculate_time_spent()["total_wall_time"])  # type: ignore[union-attr]
    return 0.0


def _device_key(model: Model) -> str:
    """What a time depends on: device, threads, size and dtype of the model, version of torch."""
    device = (
        torch.cuda.get_device_name(model.device)
        if model.device.type == "cuda"
        else f"{platform.processor() or platform.machine()} × {torch.get_num_threads()}"
    )
    parameters = sum(p.numel() for p in model.module.parameters())
    return f"{device} / {parameters} {model.dtype} / torch {torch.__version__}"
