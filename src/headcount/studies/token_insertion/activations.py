"""The activations of a block's MLP, a = act(gate · x): how sparse they are, and a change of them.

Activation redistribution (ARM), after "Meaningless Tokens, Meaningful Gains" (Shi et al., arXiv
2510.01032), lifts small activations of the first MLP at random. In every pass, for each row:

    ε = 1.4826 · c · median(| |a| − median|a| |)        p = share of |a| < ε
    the clip(p, 0.02, 0.25) of all entries with the smallest |a| get, by their sign,
        U(0, 1) · percentile(a, p1)     or     −U(0, 1) · |min a|

in their place ("replace", as in the published code) or on top ("add", as in the paper). The random
numbers depend on the seed and the place in the text alone, so that no row depends on another.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from headcount.engine.measure.forward import measuring
from headcount.engine.read.collect import each_length, run_through
from headcount.errors import HeadcountError, unknown
from headcount.models.model import Model
from headcount.models.sites import plain
from headcount.studies.token_insertion.config import Variant

NAMES = ("act_fn", "activation_fn", "act", "hidden_act_fn")
SCALE = 1.4826  # makes the median absolute deviation of a normal variable its standard deviation
NEAR_ZERO = 0.13  # c of the limit below which an activation counts as near zero
LEAST, MOST = 0.02, 0.25  # the shares of activations that redistribution lifts
STATISTICS = ("near_zero", "l1", "l2", "gini")

Change = Callable[[Float[Tensor, "rows tokens width"], int], Tensor | None]


@contextmanager
def on_activations(model: Model, change: Change, *, layer: int = 0) -> Iterator[None]:
    """Call `change` with a layer's activations and the place of their first token, in every pass.

    What it returns takes their place; None leaves them as they are. Afterwards nothing is left.
    """
    activation = _activation_function(model, layer)
    start = [0]

    def starting(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        start[0] = 0 if cache is None else int(cache.get_seq_length())

    def hook(_: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if output.ndim != 3:
            raise HeadcountError(
                f"The activations of layer {layer} of {model.name} do not come as (rows, tokens, "
                "width), so that their tokens cannot be told apart."
            )
        return change(output, start[0])

    with ExitStack() as stack:
        top = plain(model.module)
        tops = [top, getattr(top, "get_base_model", lambda: top)()]  # PEFT wraps the model
        for module in dict.fromkeys(tops):
            stack.callback(module.register_forward_pre_hook(starting, with_kwargs=True).remove)
        stack.callback(activation.register_forward_hook(hook).remove)
        # A compiled graph does not see hooks that came after it.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _activation_function(model: Model, layer: int) -> nn.Module:
    """The activation function of the MLP beside a layer's attention; one that no other has."""
    if not 0 <= layer < len(model.sites):
        raise HeadcountError(
            f"There is no layer {layer}: {model.name} has attention layers 0 to "
            f"{len(model.sites) - 1}."
        )
    named = dict(plain(model.module).named_modules(remove_duplicate=False))
    block, _, _ = model.sites[layer].attention.rpartition(".")
    for name, module in named.items():
        if not name.startswith(f"{block}.") or name.startswith(model.sites[layer].attention):
            continue
        for attribute in NAMES:
            activation = getattr(module, attribute, None)
            if isinstance(activation, nn.Module):
                if sum(other is activation for other in named.values()) == 1:
                    return activation
                break
    raise HeadcountError(
        f"{model.name} has no MLP in layer {layer} whose activation function is a module of its "
        "own, so that its activations can be neither read nor changed."
    )


def near_zero_limit(a: Float[Tensor, "rows numbers"], c: float) -> Float[Tensor, "rows"]:
    """ε = 1.4826 · MAD · c of each row, where MAD is that of the sizes |a|."""
    sizes = a.abs()
    middle = sizes.median(dim=1, keepdim=True).values
    return SCALE * c * (sizes - middle).abs().median(dim=1).values


@torch.no_grad()
def activation_statistics(
    model: Model,
    sequences: Sequence[Sequence[int]],
    positions: Sequence[Sequence[int]],
    *,
    limits: Float[np.ndarray, "sequences"] | None = None,
    gates: Float[np.ndarray, "heads"] | None = None,
    progress: bool = True,
) -> tuple[list[Float[np.ndarray, "positions four"]], Float[np.ndarray, "sequences"]]:
    """All of STATISTICS of layer 0 at some positions of each sequence.

    An activation is near zero below ε, which is the sequence's own unless `limits` gives it; the
    limits are returned too, so that two forms of a prompt can be held against one of them. `gates`
    are those of a head set.
    """
    used = np.full(len(sequences), np.nan) if limits is None else np.asarray(limits, dtype=float)

    def run(chosen: list[int]) -> list[np.ndarray]:
        by_row: list[np.ndarray] = []

        def read(output: Tensor, _: int) -> None:
            a = output.float()
            if limits is None:
                used[chosen] = near_zero_limit(a.flatten(1), NEAR_ZERO).double().cpu().numpy()
            epsilon = torch.from_numpy(used[chosen]).to(a)[:, None, None]
            numbers = statistics(a, epsilon).double().cpu().numpy()  # (rows, tokens, 4)
            by_row.extend(n[list(positions[i])] for n, i in zip(numbers, chosen, strict=True))
            raise _Enough

        # What comes after layer 0 is of no interest, and would be most of the work.
        with on_activations(model, read), suppress(_Enough):
            run_through(model, [sequences[place] for place in chosen], gates)
        return by_row

    return each_length(model, sequences, run, label="activations", progress=progress), used


class _Enough(Exception):  # noqa: N818  (no error)
    """Ends a pass that has been read."""


def statistics(
    a: Float[Tensor, "rows tokens width"], epsilon: Float[Tensor, "rows 1 1"]
) -> Float[Tensor, "rows tokens 4"]:
    """Share near zero, L1, L2 and Gini coefficient of each token's activations."""
    sizes = a.abs()
    ranked = sizes.sort(dim=-1).values
    width = a.shape[-1]
    place = torch.arange(1, width + 1, device=a.device, dtype=a.dtype)
    total = ranked.sum(-1)
    gini = ((2 * place - width - 1) * ranked).sum(-1) / (width * total.clamp(min=1e-30))
    return torch.stack(
        ((sizes < epsilon).to(a.dtype).mean(-1), total, sizes.square().sum(-1).sqrt(), gini), dim=-1
    )


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
