"""Fewer, larger matrix products: linear layers that read the same input run as one.

A step of decoding multiplies few rows by every weight of the model. Queries, keys and values have
the same input, and so have the two sides of a gated MLP: as one product each they need fewer
launches and read memory faster. Which layers read the same input is seen by watching a pass, so no
architecture is named here. The merged weights are copies; `refresh` copies them again, because
somebody may have changed the model's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headcount.models.forward_modes import instead
from headcount.models.gpu_kernels import silu_product
from headcount.models.sites import plain, probe_prompt, run
from headcount.models.slices import tolerance

# The names of layers that read the same input, by model.
_KNOWN: WeakKeyDictionary[nn.Module, list[list[str]]] = WeakKeyDictionary()


@dataclass(eq=False)
class _Product:
    """Linear layers with one input, and the copy of their weights, one below the other."""

    layers: Sequence[nn.Linear]
    weight: Tensor = field(init=False)
    bias: Tensor | None = None
    _input: Tensor | None = None  # of the pass that is running
    _outputs: tuple[Tensor, ...] = ()

    def __post_init__(self) -> None:
        self.weight = torch.cat([layer.weight.detach() for layer in self.layers])
        if self.layers[0].bias is not None:
            self.bias = torch.cat([layer.bias.detach() for layer in self.layers])

    def refresh(self) -> None:
        torch.cat([layer.weight.detach() for layer in self.layers], out=self.weight)
        if self.bias is not None:
            torch.cat([layer.bias.detach() for layer in self.layers], out=self.bias)

    def all_outputs(self, x: Tensor) -> Tensor:
        """The outputs of all layers, side by side."""
        return F.linear(x, self.weight, self.bias)

    def output(self, place: int, x: Tensor) -> Tensor:
        """The output of one layer; the first one that is asked for computes those of all."""
        if self._input is not x:
            sizes = [layer.out_features for layer in self.layers]
            self._input, self._outputs = x, self.all_outputs(x).split(sizes, -1)
        output = self._outputs[place]
        if place == len(self.layers) - 1:  # lets go of the tensors
            self._input, self._outputs = None, ()
        return output


@dataclass(eq=False)
class MergedProducts:
    """The products of a model that can be merged, and its gated MLPs."""

    products: list[_Product]
    mlps: list[tuple[nn.Module, Callable[[Tensor], Tensor]]]

    @property
    def nbytes(self) -> int:
        """The memory that the copies take."""
        return sum(product.weight.nbytes for product in self.products)

    def refresh(self) -> None:
        """Copy the model's weights again."""
        with torch.no_grad():
            for product in self.products:
                product.refresh()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Run the merged products in place of the layers' own inside this context."""
        with ExitStack() as stack:
            for product in self.products:
                for place, layer in enumerate(product.layers):
                    stack.enter_context(instead(layer, partial(product.output, place)))
            for mlp, forward in self.mlps:
                stack.enter_context(instead(mlp, forward))
            yield


@torch.no_grad()
def merge_products(module: nn.Module, most_bytes: float) -> MergedProducts | None:
    """Merge what can be merged; None if there is nothing, or if the copies need more memory."""
    module = plain(module)
    named = dict(module.named_modules())
    known = _KNOWN.get(module)
    # A layer may have been replaced since, as by one with an adapter.
    if known is None or not all(_is_plain(named.get(name)) for group in known for name in group):
        _KNOWN[module] = _same_inputs(module)
    groups: list[list[Any]] = [[named[name] for name in group] for group in _KNOWN[module]]
    if not groups or sum(_bytes(layer) for group in groups for layer in group) > most_bytes:
        return None
    products = [_Product(group) for group in groups]
    mlps = []
    parents = {layer: part for part in module.modules() for layer in part.children()}
    for product in products:
        mlp = parents[product.layers[0]]
        if (forward := _gated_mlp(mlp, product)) is not None:
            mlps.append((mlp, forward))
    return MergedProducts(products, mlps)


def _bytes(layer: nn.Linear) -> int:
    return sum(parameter.nbytes for parameter in layer.parameters())


def _same_inputs(module: nn.Module) -> list[list[str]]:
    """Linear layers that receive the very same tensor in a pass, by name, in their order."""
    calls: list[tuple[nn.Linear, Tensor]] = []

    def note(layer: nn.Module, args: tuple[Tensor, ...]) -> None:
        if isinstance(layer, nn.Linear) and len(args) == 1:
            calls.append((layer, args[0]))

    with ExitStack() as stack:
        for part in module.modules():
            if _is_plain(part):
                stack.enter_context(part.register_forward_pre_hook(note))
        run(module, probe_prompt(module, 1))
    groups: list[list[nn.Linear]] = []
    latest: Tensor | None = None
    for layer, x in calls:
        if x is latest and _alike(groups[-1][0], layer):
            groups[-1].append(layer)
        else:
            groups.append([layer])
        latest = x
    runs = Counter(layer for group in groups for layer in group)
    names = {part: name for name, part in module.named_modules()}
    return [
        [names[layer] for layer in group]
        for group in groups
        if len(group) > 1 and all(runs[layer] == 1 for layer in group)
    ]


def _is_plain(part: nn.Module | None) -> bool:
    """Whether this is a linear layer: a subclass (quantised, with an adapter) may be another."""
    return type(part) is nn.Linear and "forward" not in vars(part)


def _alike(one: nn.Linear, other: nn.Linear) -> bool:
    kinds = [
        (layer.weight.dtype, layer.weight.device, layer.bias is None) for layer in (one, other)
    ]
    return kinds[0] == kinds[1]


def _gated_mlp(mlp: nn.Module, product: _Product) -> Callable[[Tensor], Tensor] | None:
    """The MLP as one product, SiLU(a)·b in one kernel, and one more product, if that is what it is.

    None where the module computes anything else.
    """
    inside = [part for part in mlp.children() if isinstance(part, nn.Linear)]
    others = [part for part in inside if part not in product.layers]
    if len(product.layers) != 2 or len(inside) != 3 or type(others[0]) is not nn.Linear:
        return None
    last = others[0]
    if product.layers[0].out_features != product.layers[1].out_features:
        return None
    x = torch.randn(3, 1, product.layers[0].in_features, generator=torch.Generator().manual_seed(0))
    x = x.to(product.weight)

    def forward(x: Tensor) -> Tensor:
        output: Tensor = last(silu_product(product.all_outputs(x)))
        return output

    try:
        expected, got = mlp(x), forward(x)
    except Exception:  # another kind of module
        return None
    same = isinstance(expected, Tensor) and expected.shape == got.shape
    limit = tolerance(x.dtype)
    return (
        forward if same and (got - expected).abs().max() <= limit * expected.abs().max() else None
    )
