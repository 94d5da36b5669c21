"""The weights that training changes: low-rank adapters, or all weights of the model.

An adapter turns a layer's W into W + (α/r)·B·A. It is trained while W is frozen, and merged into W
when a sparse model is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.sites import accepted
from headcount.sparse.settings import Settings

Values = dict[str, Tensor]


class LowRank(nn.Module):
    """A linear layer plus an adapter; the layer itself is not changed.

    `up` starts at zero, so that a new adapter changes nothing.
    """

    def __init__(self, base: nn.Module, rank: int, alpha: float, generator: torch.Generator):
        super().__init__()
        weight = linear_weight(base)
        if weight is None:
            raise HeadcountError(
                f"Cannot adapt a {type(base).__name__}: it is not a plain linear layer."
            )
        outputs, inputs = weight.shape if isinstance(base, nn.Linear) else reversed(weight.shape)
        self.base, self.scale = base, alpha / rank
        bound = 1 / math.sqrt(inputs)
        down = torch.empty(rank, inputs).uniform_(-bound, bound, generator=generator)
        self.down = nn.Parameter(down.to(weight.device))  # (rank, inputs)
        self.up = nn.Parameter(torch.zeros(outputs, rank, device=weight.device))

    def forward(self, x: Tensor) -> Tensor:  # (…, inputs) → (…, outputs)
        """The layer's output plus the adapter's."""
        output: Tensor = self.base(x)
        return output + F.linear(F.linear(x, self.down), self.up) * self.scale


def linear_weight(module: nn.Module) -> nn.Parameter | None:
    """The weight of an unquantised linear layer (or of GPT-2's transposed one), else None."""
    if not isinstance(module, nn.Linear) and type(module).__name__ != "Conv1D":
        return None
    weight = module.weight
    if not isinstance(weight, nn.Parameter) or not weight.is_floating_point():
        return None
    return None if weight.device.type == "meta" else weight


def attach(
    module: nn.Module, names: Iterable[str], rank: int, alpha: float, seed: int = 0
) -> dict[str, LowRank]:
    """Wrap each of the named layers in an adapter; returns the adapters by name."""
    generator = torch.Generator().manual_seed(seed)
    adapters = {}
    for name in names:
        adapters[name] = LowRank(module.get_submodule(name), rank, alpha, generator)
        module.set_submodule(name, adapters[name])
    return adapters


def detach(module: nn.Module, adapters: Mapping[str, LowRank]) -> None:
    """Remove the adapters and put the original layers back."""
    for name, adapter in adapters.items():
        module.set_submodule(name, adapter.base)


def block_layers(module: nn.Module) -> list[str]:
    """The linear layers inside a model's blocks, in their order: attention and MLP projections."""
    layers = [
        name
        for name, child in module.named_modules()
        if linear_weight(child) is not None and any(part.isdigit() for part in name.split("."))
    ]
    if not layers:
        raise HeadcountError(
            f"{type(module).__name__} has no plain linear layers in its blocks that adapters "
            "could be attached to: load the model without quantisation."
        )
    return layers


def layer_width(module: nn.Module) -> int:
    """The width of the widest layer that adapters are attached to: no adapter needs more ranks."""
    weights = (linear_weight(module.get_submodule(name)) for name in block_layers(module))
    return max(min(weight.shape) for weight in weights if weight is not None)


@torch.no_grad()
def merge(module: nn.Module, tensors: Mapping[str, Tensor], scale: float) -> None:
    """Add adapters (NAME.down, NAME.up) to the weights of the layers that they are named after."""
    for name in sorted({key.rpartition(".")[0] for key in tensors}):
        layer = module.get_submodule(name)
        weight = linear_weight(layer)
        up, down = (tensors.get(f"{name}.{part}") for part in ("up", "down"))
        if weight is None or up is None or down is None:
            raise HeadcountError(
                f"The adapter of {name} has no linear layer in this model: load its own base model."
            )
        change = (up.float() @ down.float() * scale).to(weight.device)  # (outputs, inputs)
        change = change if isinstance(layer, nn.Linear) else change.T
        if change.shape != weight.shape:
            raise HeadcountError(
                f"The adapter of {name} has shape {tuple(change.shape)}, and the layer has "
                f"{tuple(weight.shape)}: the adapter belongs to another model."
            )
        weight.copy_((weight.float() + change).to(weight.dtype))


class Tunable:
    """A context in which a model's weights are trained.

    Leaving it removes the adapters or, where all weights are trained, puts the old weights back.
    """

    def __init__(self, module: nn.Module, settings: Settings) -> None:
        self.module, self.settings = module, settings
        self.adapters: dict[str, LowRank] = {}
        self.weights: dict[str, nn.Parameter] = {}

    def __enter__(self) -> Tunable:
        settings = self.settings
        self.module.eval()  # no dropout: what is trained is what is measured
        self.module.requires_grad_(False)
        if settings.rank:
            options = (settings.rank, settings.alpha, settings.seed)
            self.adapters = attach(self.module, block_layers(self.module), *options)
            for name, adapter in self.adapters.items():
                self.weights |= {f"{name}.down": adapter.down, f"{name}.up": adapter.up}
        else:
            if self.is_half:
                raise HeadcountError(
                    "Tuning all weights needs float32, because half precision rounds small steps "
                    "away: leave --dtype out (a GPU still runs passes in bfloat16)."
                )
            self.weights = dict(self.module.named_parameters())
        for weight in self.weights.values():
            weight.requires_grad_(True)
        self.fresh = self.copy()  # before tuning
        return self

    def __exit__(self, *_: Any) -> None:
        for weight in self.weights.values():
            weight.requires_grad_(False)
        if self.adapters:
            detach(self.module, self.adapters)
        else:
            self.put(self.fresh)

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(iter(self.weights.values())).device

    @torch.no_grad()
    def copy(self) -> Values:
        """The weights as they are now."""
        return {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def put(self, values: Mapping[str, Tensor]) -> None:
        """Set the weights to `values`."""
        for name, weight in self.weights.items():
            weight.copy_(values[name])

    @contextmanager
    def using(self, values: Mapping[str, Tensor] | None) -> Iterator[None]:
        """Use other values inside this context, without a copy; None: those before training."""
        other = self.fresh if values is None else values
        before = {name: weight.data for name, weight in self.weights.items()}
        for name, weight in self.weights.items():
            weight.data = other[name]
        try:
            yield
        finally:
            for name, weight in self.weights.items():
                weight.data = before[name]

    def logits(self, ids: Int[Tensor, "rows tokens"]) -> Tensor:
        """The logits of one pass, which runs in bfloat16 on an accelerator."""
        half = self.device.type != "cpu" or self.is_half
        options = accepted(self.module, use_cache=False)
        with torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext():
            output: Tensor = self.module(input_ids=ids, **options).logits
        return output

    @property
    def is_half(self) -> bool:
        """Whether the frozen weights are in half precision."""
        return any(p.dtype.itemsize == 2 for p in self.module.parameters())
