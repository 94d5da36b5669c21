"""The weights that are tuned: adapters or all, by name, and other values for them for a while."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.sites import accepted
from headcount.sparse.low_rank import LowRank, attach, block_layers, detach
from headcount.sparse.settings import Settings

Values = dict[str, Tensor]


class Tunable:
    """A model with weights to tune; inside its context they are trained, afterwards they are gone.

    With adapters, leaving the context takes them away; with all weights, puts the old ones back.
    """

    def __init__(self, module: nn.Module, settings: Settings) -> None:
        self.module, self.settings = module, settings
        self.adapters: dict[str, LowRank] = {}
        self.weights: dict[str, nn.Parameter] = {}
        self.start: Values = {}

    def __enter__(self) -> Tunable:
        settings = self.settings
        self.module.eval()  # no dropout: what is trained is what is measured
        self.module.requires_grad_(False)
        if settings.rank:
            layers = block_layers(self.module)
            self.adapters = attach(
                self.module, layers, settings.rank, settings.alpha, settings.seed
            )
            for name, adapter in self.adapters.items():
                self.weights |= {f"{name}.down": adapter.down, f"{name}.up": adapter.up}
        else:
            if self.is_half:
                raise HeadcountError(
                    "Tuning all weights takes them in float32, or small steps are rounded away: "
                    "leave --dtype out (on a GPU passes run in bfloat16 all the same)."
                )
            self.weights = dict(self.module.named_parameters())
        for weight in self.weights.values():
            weight.requires_grad_(True)
        self.start = {} if self.adapters else self.copy()
        self.fresh = self.copy() if self.adapters else self.start
        return self

    def __exit__(self, *_: Any) -> None:
        for weight in self.weights.values():
            weight.requires_grad_(False)
        if self.adapters:
            detach(self.module, self.adapters)
        else:
            self.put(self.start)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
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
        """Other values inside this context, without a copy; None is the model before tuning."""
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
        """One pass, in bfloat16 where there is an accelerator."""
        half = self.device.type != "cpu" or self.is_half
        context = torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext()
        with context:
            output: Tensor = self.module(
                input_ids=ids, **accepted(self.module, use_cache=False)
            ).logits
        return output

    @property
    def is_half(self) -> bool:
        """Whether the frozen weights are in half precision."""
        return any(p.dtype.itemsize == 2 for p in self.module.parameters())
