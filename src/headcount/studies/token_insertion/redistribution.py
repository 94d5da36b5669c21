"""Activation redistribution (ARM): small activations of the first MLP are lifted at random.

After "Meaningless Tokens, Meaningful Gains" (Shi et al., arXiv 2510.01032). In every pass, for the
activations a = act(gate · x) of each row:

    ε = 1.4826 · c · median(| |a| − median|a| |)        p = share of |a| < ε
    the clip(p, 0.02, 0.25) of all entries with the smallest |a| get, by their sign,
        U(0, 1) · percentile(a, p1)     or     −U(0, 1) · |min a|

in their place ("replace", as in the published code) or on top ("add", as in the paper). The random
numbers depend on the seed and the place in the text alone, so that no row depends on another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from headcount.engine.measure.forward import measuring
from headcount.errors import HeadcountError, unknown
from headcount.models.model import Model
from headcount.studies.token_insertion.activations import near_zero_limit, on_activations

Variant = Literal["replace", "add"]
LEAST, MOST = 0.02, 0.25


@dataclass(frozen=True)
class ActivationRedistribution:
    """The settings of redistribution; published on MATH-500: c .13 and p1 99.5 (Qwen 1.5B)."""

    variant: Variant = "replace"
    c: float = 0.13
    p1: float = 99.5
    seed: int = 0
    layer: int = 0

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise unknown("redistribution", self.variant, get_args(Variant))
        if not (self.c > 0 and 0 <= self.p1 <= 100):
            raise HeadcountError("Redistribution needs c above 0 and p1 from 0 to 100.")

    @property
    def identity(self) -> dict[str, Any]:
        """What determines its effect; part of the store's keys."""
        return {**asdict(self), "version": 2}

    @contextmanager
    def acting(self, model: Model) -> Iterator[None]:
        """Redistribute in every pass of this context; nothing is left behind."""
        with measuring(model), on_activations(model, self.change, layer=self.layer):
            yield

    def change(self, a: Float[Tensor, "rows tokens width"], start: int) -> Tensor:
        """The activations of a pass whose first token has this place in the text."""
        exact = a.float().flatten(1)  # (rows, tokens·width)
        small = self.smallest(exact)
        # On the host, so that every device draws the same numbers.
        draw = torch.Generator().manual_seed(_seed(self.seed, start, a.shape[1]))
        uniform = torch.rand(a[0].numel(), generator=draw).to(a.device)
        top = _percentile(exact, self.p1)[:, None]  # (rows, 1)
        bottom = exact.min(dim=1, keepdim=True).values.abs()
        lifted = torch.where(exact >= 0, uniform * top, -uniform * bottom)
        lifted = lifted + exact if self.variant == "add" else lifted
        return torch.where(small, lifted, exact).view_as(a).to(a.dtype)

    def smallest(self, a: Float[Tensor, "rows numbers"]) -> Bool[Tensor, "rows numbers"]:
        """Which entries are lifted."""
        sizes = a.abs()
        share = (sizes < near_zero_limit(a, self.c)[:, None]).float().mean(1)
        count = (share.clamp(LEAST, MOST) * a.shape[1]).floor()[:, None]
        order = sizes.argsort(dim=1, stable=True)
        first = torch.arange(a.shape[1], device=a.device) < count
        return torch.zeros_like(a, dtype=torch.bool).scatter(1, order, first)


def _percentile(a: Float[Tensor, "rows numbers"], p: float) -> Float[Tensor, "rows"]:
    """With linear interpolation, as numpy has it; torch's own refuses more than 16 million."""
    place = p / 100 * (a.shape[1] - 1)
    low = int(place)
    ranked = a.sort(dim=1).values
    above = ranked[:, min(low + 1, a.shape[1] - 1)]
    return torch.lerp(ranked[:, low], above, place - low)


def _seed(*parts: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
