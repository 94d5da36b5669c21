"""How long a token takes on this machine: remembered from earlier runs, else timed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal
from weakref import WeakKeyDictionary

from headcount.engine.measure.calibrate import device_key, read_numbers, timed_pass, write_numbers
from headcount.models.model import Model
from headcount.system.paths import cache_dir

Kind = Literal["passes", "gradients", "writing"]
# As long as nothing is known: a backward pass takes about two forward ones. Writing token by token
# reads all weights for each, but what prompts share runs once, and answers end early.
GUESSES: dict[Kind, float] = {"passes": 1.0, "gradients": 3.0, "writing": 1.2}
WORTH = 2.0  # seconds: shorter runs say little about longer ones
ROWS = 4  # of 32 tokens, in the pass that is timed
PATIENCE = 2.0  # seconds of such passes, of which the quickest counts
_TIMED: WeakKeyDictionary[Model, float] = WeakKeyDictionary()


def seconds_per_token(model: Model, kind: Kind = "passes") -> float:
    """About how many seconds a token takes in passes of this kind; NaN where that is not known."""
    known = read_numbers(_path())
    key = device_key(model)
    if f"{key} / {kind}" in known:
        return known[f"{key} / {kind}"]
    if f"{key} / passes" not in known:
        # Not stored: what a real run takes is better, and comes soon.
        if model not in _TIMED:
            try:
                _TIMED[model] = timed_pass(model, ROWS, PATIENCE)
            except Exception:  # some models want more than token ids: no reason to end a run
                _TIMED[model] = math.nan
        return GUESSES[kind] * _TIMED[model]
    return GUESSES[kind] * known[f"{key} / passes"]


@contextmanager
def timing(model: Model, tokens: int, kind: Kind = "passes") -> Iterator[None]:
    """Remember how long these tokens took, where it was long enough to tell."""
    begin = time.perf_counter()
    yield
    seconds = time.perf_counter() - begin
    if seconds >= WORTH and tokens:
        path = _path()
        key = f"{device_key(model)} / {kind}"
        known = read_numbers(path)
        new = seconds / tokens
        # Half of what was: one odd run is not to decide for all that follow.
        write_numbers(path, {**known, key: (known.get(key, new) + new) / 2})


def _path() -> Path:
    return cache_dir() / "rates.json"
