"""Low-rank adapters: W + (α/r)·B·A, trained beside frozen weights and then merged into them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headcount.errors import HeadcountError

DOWN, UP = "down", "up"


class LowRank(nn.Module):
    """A linear layer with an adapter beside it; the layer itself stays as it is.

    The adapter starts at nothing: `up` is zero.
    """

    def __init__(self, base: nn.Module, rank: int, alpha: float, generator: torch.Generator):
        super().__init__()
        weight = linear_weight(base)
        if weight is None:
            raise HeadcountError(f"{type(base).__name__} is no plain linear layer to adapt.")
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
    """The matrix of a linear layer (or GPT-2's transposed one), if it is one of plain numbers."""
    if not isinstance(module, nn.Linear) and type(module).__name__ != "Conv1D":
        return None
    weight = module.weight
    if not isinstance(weight, nn.Parameter) or not weight.is_floating_point():
        return None
    return None if weight.device.type == "meta" else weight


def attach(
    module: nn.Module, names: Iterable[str], rank: int, alpha: float, seed: int = 0
) -> dict[str, LowRank]:
    """Put an adapter beside each of the named layers; returns them by name."""
    generator = torch.Generator().manual_seed(seed)
    made = {}
    for name in names:
        made[name] = LowRank(module.get_submodule(name), rank, alpha, generator)
        module.set_submodule(name, made[name])
    return made


def detach(module: nn.Module, adapters: Mapping[str, LowRank]) -> None:
    """Take the adapters away again; the layers are as they were."""
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
            f"{type(module).__name__} has no plain linear layers in its blocks, beside which "
            "adapters could be trained (load quantised models unquantised)."
        )
    return layers


@torch.no_grad()
def merge(module: nn.Module, tensors: Mapping[str, Tensor], scale: float) -> None:
    """Add adapters (NAME.down, NAME.up) to the weights of the layers that they are named after."""
    for name in sorted({key.rpartition(".")[0] for key in tensors}):
        layer = module.get_submodule(name)
        weight = linear_weight(layer)
        up, down = (tensors.get(f"{name}.{part}") for part in (UP, DOWN))
        if weight is None or up is None or down is None:
            raise HeadcountError(f"The model has no linear layer {name} for its adapter.")
        change = (up.float() @ down.float() * scale).to(weight.device)  # (outputs, inputs)
        change = change if isinstance(layer, nn.Linear) else change.T
        if change.shape != weight.shape:
            raise HeadcountError(
                f"The adapter of {name} is for a layer of {tuple(change.shape)} numbers, and the "
                f"model's has {tuple(weight.shape)}: it belongs to another model."
            )
        weight.copy_((weight.float() + change).to(weight.dtype))
