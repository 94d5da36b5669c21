"""The activations of a block's MLP, a = act(gate · x): their sparsity, and their redistribution.

Activation redistribution (ARM), after "Meaningless Tokens, Meaningful Gains" (Shi et al., arXiv
2510.01032), lifts small activations of the first MLP by random amounts. In every pass, for each
row:

    ε = 1.4826 · c · median(| |a| − median|a| |)        p = share of |a| < ε
    the clip(p, 0.02, 0.25) of all entries with the smallest |a| get, by their sign,
        U(0, 1) · percentile(a, p1)     or     −U(0, 1) · |min a|

instead of a ("replace", as in the published code) or added to a ("add", as in the paper). The
random numbers depend on the seed and the position in the text alone, so no row depends on another.
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
NEAR_ZERO = 0.13  # the c of ε in the statistics: activations below ε count as near zero
LEAST, MOST = 0.02, 0.25  # the smallest and largest share of activations that are lifted
STATISTICS = ("near_zero", "l1", "l2", "gini")

Change = Callable[[Float[Tensor, "rows tokens width"], int], Tensor | None]


@contextmanager
def on_activations(model: Model, change: Change, *, layer: int = 0) -> Iterator[None]:
    """Call `change` with a layer's activations and the position of their first token.

    This happens in every pass. The return value of `change` replaces the activations; None leaves
    them unchanged. All hooks are removed afterwards.
    """
    activation = _activation_function(model, layer)
    start = [0]

    def starting(_: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        cache = kwargs.get("past_key_values")
        start[0] = 0 if cache is None else int(cache.get_seq_length())

    def hook(_: nn.Module, args: Any, output: Tensor) -> Tensor | None:
        if output.ndim != 3:
            raise HeadcountError(
                f"The activations of layer {layer} of {model.name} do not have the shape (rows, "
                "tokens, width), so they cannot be assigned to tokens: choose another model."
            )
        return change(output, start[0])

    with ExitStack() as stack:
        top = plain(model.module)
        tops = [top, getattr(top, "get_base_model", lambda: top)()]  # PEFT wraps the model
        for module in dict.fromkeys(tops):
            stack.callback(module.register_forward_pre_hook(starting, with_kwargs=True).remove)
        stack.callback(activation.register_forward_hook(hook).remove)
        # A graph that was compiled before would ignore these hooks.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield


def _activation_function(model: Model, layer: int) -> nn.Module:
    """The activation function of a layer's MLP, as a module that no other layer shares."""
    if not 0 <= layer < len(model.sites):
        raise HeadcountError(
            f"There is no layer {layer}: choose one of the attention layers 0 to "
            f"{len(model.sites) - 1} of {model.name}."
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
        f"The MLP in layer {layer} of {model.name} has no activation function that is a module of "
        "its own, so its activations can be neither read nor changed: choose another model."
    )


def near_zero_limit(a: Float[Tensor, "rows numbers"], c: float) -> Float[Tensor, "rows"]:
    """ε = 1.4826 · c · MAD(|a|) of each row; MAD is the median absolute deviation."""
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
    """All STATISTICS of layer 0 at the given positions of each sequence, and the limits ε.

    An activation below ε is near zero. `limits` gives the ε of each sequence; without it, ε is
    computed from the sequence. Pass the returned limits on to compare two versions of a prompt by
    the same ε. `gates` are the gates of a head set.
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

        # Stop the pass after layer 0: the other layers are not needed, and take most of the time.
        with on_activations(model, read), suppress(_Enough):
            run_through(model, [sequences[number] for number in chosen], gates)
        return by_row

    return each_length(model, sequences, run, label="activations", progress=progress), used


class _Enough(Exception):  # noqa: N818  (not an error)
    """Ends a pass whose activations have been read."""


def statistics(
    a: Float[Tensor, "rows tokens width"], epsilon: Float[Tensor, "rows 1 1"]
) -> Float[Tensor, "rows tokens 4"]:
    """Share near zero, L1, L2 and Gini coefficient of each token's activations."""
    sizes = a.abs()
    ranked = sizes.sort(dim=-1).values
    width = a.shape[-1]
    rank = torch.arange(1, width + 1, device=a.device, dtype=a.dtype)
    total = ranked.sum(-1)
    gini = ((2 * rank - width - 1) * ranked).sum(-1) / (width * total.clamp(min=1e-30))
    return torch.stack(
        ((sizes < epsilon).to(a.dtype).mean(-1), total, sizes.square().sum(-1).sqrt(), gini), dim=-1
    )


@dataclass(frozen=True)
class ActivationRedistribution:
    """The settings of redistribution; the defaults are those published for Qwen 1.5B, MATH-500."""

    variant: Variant = "replace"
    c: float = 0.13
    p1: float = 99.5
    seed: int = 0
    layer: int = 0

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise unknown("redistribution", self.variant, get_args(Variant))
        if not (self.c > 0 and 0 <= self.p1 <= 100):
            raise HeadcountError(
                "Redistribution needs c above 0 and p1 from 0 to 100: change arm_c or arm_p1."
            )

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that determines the effect; the store's keys include it."""
        return {**asdict(self), "version": 2}

    @contextmanager
    def acting(self, model: Model) -> Iterator[None]:
        """Redistribute in every pass within this context; all hooks are removed afterwards."""
        _ = model.fast_paths  # they are proven on the unchanged model
        with measuring(model), on_activations(model, self.change, layer=self.layer):
            yield

    def change(self, a: Float[Tensor, "rows tokens width"], start: int) -> Tensor:
        """Redistribute the activations of a pass whose first token is at position `start`."""
        exact = a.float().flatten(1)  # (rows, tokens·width)
        small = self.smallest(exact)
        # Draw on the CPU, so that every device gets the same numbers.
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
    """Numpy's percentile (linear interpolation); torch.quantile refuses over 16 million values."""
    index = p / 100 * (a.shape[1] - 1)
    low = int(index)
    ranked = a.sort(dim=1).values
    above = ranked[:, min(low + 1, a.shape[1] - 1)]
    return torch.lerp(ranked[:, low], above, index - low)


def _seed(*parts: int) -> int:
    return int.from_bytes(hashlib.sha256(repr(parts).encode()).digest()[:7], "big")
