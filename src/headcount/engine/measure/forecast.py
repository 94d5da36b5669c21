"""What a run will measure, counted before it starts.

The same code runs as later, in a context in which nothing is measured: where it would be, the work
is noted and placeholders are given back. They go to a store of their own that is thrown away, so
that what is needed twice counts once, as in the run itself. Rankings that are not known yet are
placeholders too: what is measured under the heads that they will choose then counts as unknown.
"""

from __future__ import annotations

import hashlib
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.rates import Kind, seconds_per_token
from headcount.models.model import Model
from headcount.overlay import Overlay, OverlayContext
from headcount.stats import few_resamples
from headcount.store import Store, StoreContext
from headcount.system.progress import duration

Thing = Literal["value", "text", "pass"]
HERE = "on this machine"
RESAMPLES = 8  # of placeholders: nobody looks at their intervals


@dataclass(frozen=True, eq=False)
class Work:
    """One stretch of work: so many values or texts, and the tokens that they take."""

    model: Model
    thing: Thing
    count: int
    tokens: int
    known: int = 0  # values or texts that need not be measured
    kind: Kind = "passes"


@dataclass(eq=False)
class Forecast:
    """The work ahead. `stopped` is why it could not be followed to its end, if so."""

    works: list[Work] = field(default_factory=list)
    stopped: Exception | None = None
    _asked: set[bytes] = field(default_factory=set, repr=False)

    def add(self, model: Model, thing: Thing, count: int, tokens: int, **more: Any) -> None:
        """Note some work."""
        self.works.append(Work(model, thing, int(count), int(tokens), **more))

    def known_before(
        self,
        shelf: StoreContext | None,
        sets: Float[np.ndarray, "sets heads"],
        keys: Sequence[str],
        thing: Thing,
    ) -> int:
        """How many of these values or texts the user's own store holds; 0 where asked again."""
        if not isinstance(shelf, OverlayContext):
            return 0
        asked = hashlib.sha256("\n".join((shelf.text, thing, *keys)).encode() + sets.tobytes())
        if asked.digest() in self._asked:
            return 0
        self._asked.add(asked.digest())
        if thing == "value":
            return int((~np.isnan(shelf.below.read(sets, keys))).sum())
        return sum(text is not None for text in shelf.below.read_texts(sets, keys).ravel())

    def count(self, thing: Thing) -> int:
        """How many values or texts are to be measured."""
        return sum(work.count for work in self.works if work.thing == thing)

    @property
    def tokens(self) -> int:
        """How many tokens run through a model, each once for every head set."""
        return sum(work.tokens for work in self.works)

    @property
    def known(self) -> int:
        """How many values and texts are known already."""
        return sum(work.known for work in self.works)

    def seconds(self) -> float:
        """About how long it will take here, by earlier runs or by timing a pass."""
        return sum(
            work.tokens * seconds_per_token(work.model, work.kind)
            for work in self.works
            if work.tokens
        )

    def to_json(self) -> dict[str, Any]:
        """The numbers, for programs."""
        return {
            "values": self.count("value"),
            "texts": self.count("text"),
            "tokens": self.tokens,
            "known": self.known,
            "seconds": self.seconds(),
            "complete": self.stopped is None,
        }

    def __str__(self) -> str:
        parts = [f"{n:,} {t}s" for t in ("value", "text") if (n := self.count(t))]
        known = f"{self.known:,} more are known already" if self.known else ""
        if not self.tokens:
            return f"Nothing is left to measure{f': {known}' if known else ''}.".replace(
                "more ", ""
            )
        few = "At least" if self.stopped is not None else "Ahead:"
        up_to = "up to" if self.count("text") else "about"
        what = " and ".join(parts) or "passes that score heads"
        text = f"{few} {what}, {up_to} {round_off(self.tokens):,} tokens"
        if known:
            text += f" ({known})"
        seconds = self.seconds()
        return f"{text}." if math.isnan(seconds) else f"{text}: about {duration(seconds)} {HERE}."


def round_off(number: int) -> int:
    """Three digits are enough to plan by.

    >>> round_off(123456), round_off(87)
    (123000, 87)
    """
    digits = max(0, len(str(number)) - 3)
    return round(number, -digits) if digits else number


class Foreseen(Exception):  # noqa: N818  (no error: all that is to be measured has been noted)
    """A forecast has reached the end of its work."""


class Unforeseen(Exception):  # noqa: N818
    """A model was about to run in a forecast."""


_NOW: ContextVar[Forecast | None] = ContextVar("forecast", default=None)
_SETTING_UP: ContextVar[bool] = ContextVar("setting up", default=False)


def forecast() -> Forecast | None:
    """The forecast that is being made, if one is."""
    return _NOW.get()


def all_measured() -> None:
    """What follows only sums up what was measured: a forecast ends here."""
    if _NOW.get() is not None:
        raise Foreseen


@contextmanager
def setting_up() -> Iterator[None]:
    """Inside, a model may run in a forecast too: for what is proven once, and the run needs."""
    token = _SETTING_UP.set(True)
    try:
        yield
    finally:
        _SETTING_UP.reset(token)


def placeholders(*shape: int) -> np.ndarray:
    """Numbers where measured ones will be: random, so that nothing is degenerate."""
    return np.random.default_rng(0).random(shape)


def foresee(run: Callable[[Store | None], object], store: Store | None) -> Forecast:
    """What `run` would measure with this store; it is called with a store that keeps nothing."""
    found = Forecast()
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite") as glass:
        seen = None if store is None else Overlay(store, glass)
        with _forecasting(found), few_resamples(RESAMPLES):
            try:
                run(seen)
            except Foreseen:
                pass
            except Exception as error:  # the run itself will say it better
                found.stopped = error
    return found


@contextmanager
def _forecasting(found: Forecast) -> Iterator[None]:
    """Inside, work is noted, and a model that runs all the same is stopped."""

    def stop(module: torch.nn.Module, _: Any) -> None:
        if _SETTING_UP.get():
            return
        raise Unforeseen(f"{type(module).__name__} was about to run")

    token = _NOW.set(found)
    handle = torch.nn.modules.module.register_module_forward_pre_hook(stop)
    try:
        yield
    finally:
        handle.remove()
        _NOW.reset(token)
