"""Prove that the sites that were found are head sites, before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.gate import gating
from headcount.models.sites import (
    TOKENS,
    Found,
    HeadSite,
    find_sites,
    plain,
    probe_prompt,
    run,
)
from headcount.models.slices import QUANTISED, tolerance


@dataclass(frozen=True)
class Check:
    """One statement about a model's heads and the largest error found in testing it."""

    statement: str
    error: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the error is within the limit; NaN is not."""
        return self.error <= self.limit


@dataclass(frozen=True)
class Proof:
    """What was shown about the heads of one model, and the sites it was shown for."""

    sites: tuple[HeadSite, ...]
    checks: tuple[Check, ...]
    mixers: tuple[str, ...]  # modules that mix tokens without any head, such as linear attention


@torch.no_grad()
def prove(module: nn.Module) -> Proof:
    """Find the head sites of `module` and prove them, or refuse the model by name.

    The proof runs the model on one short made-up prompt and changes nothing in it.
    """
    found = find_sites(module)
    sites = tuple(f.site for f in found)
    limit = tolerance(next(plain(module).parameters()).dtype)
    checks = (
        Check("a gate of 1 on every head changes no logit", _ones(module, sites), 0.0),
        Check(
            "the heads' writes sum to the block's output",
            _worst(found, _sum_error),
            _linear_limit(found, limit),
        ),
        Check(
            "a gate of 0 equals zeroed columns of the projection",
            _worst(found, _columns_error),
            _linear_limit(found, limit),
        ),
        Check(
            "disturbing a query head changes its slice and no other",
            max(f.leak for f in found),
            10 * limit,
        ),
    )
    for check in checks:
        if not check.holds:
            name = found[0].site.module
            raise HeadcountError(
                f"Cannot prove the heads of {type(plain(module)).__name__} (such as {name}): "
                f'"{check.statement}" is off by {check.error:.1e}, more than {check.limit:.0e}.'
            )
    return Proof(sites, checks, _mixers(module, found))


def _linear_limit(found: Sequence[Found], limit: float) -> float:
    """Quantised projections round their inputs too, so their sums are only nearly equal."""
    plain_weights = all(_weight(f) is not None for f in found)
    return limit if plain_weights else max(limit, QUANTISED)


def _ones(module: nn.Module, sites: Sequence[HeadSite]) -> float:
    ids = probe_prompt(module, 2)
    before = run(module, ids)
    if not before.isfinite().all():
        raise HeadcountError(
            "The model's logits are not finite numbers (NaN or infinite) on a plain prompt: "
            "load it in another dtype (float32 is safest) or check its weights."
        )
    gates = torch.ones(1, sum(site.heads for site in sites))
    with gating(module, sites, gates, every_site=True):
        after = run(module, ids)
    return float((after - before).abs().max())


def _worst(found: Sequence[Found], error: Callable[[Found], float]) -> float:
    return max(error(f) for f in found)


def _write(found: Found, z: Tensor) -> Tensor:
    """What the projection makes of z, a batch of (tokens, width)."""
    # The probing pass had more rows, and other inputs (a residual) come with their rows.
    rows = _rows_of(found)
    if found.site.order == "tokens":
        z = z[:, None].expand(-1, rows, -1)
    else:
        z = z[None].expand(rows, -1, -1)
    z = z.flatten(0, 1) if found.site.order == "flat" else z
    output = found.projection(
        z.reshape(found.shape).contiguous(), *found.call_args, **found.call_kwargs
    )
    return output.float()  # type: ignore[no-any-return]


def _rows_of(found: Found) -> int:
    total = 1
    for n in found.shape:
        total *= n
    return total // found.z.numel()


def _sum_error(found: Found) -> float:
    site, z = found.site, found.z
    nothing = _write(found, torch.zeros_like(z))
    total = torch.zeros_like(nothing)
    outside = z.clone()
    outside[:, site.span] = 0
    total += _write(found, outside) - nothing  # columns that are no head's, if there are any
    for head in range(site.heads):
        alone = torch.zeros_like(z)
        columns = slice(site.start + head * site.size, site.start + (head + 1) * site.size)
        alone[:, columns] = z[:, columns]
        total += _write(found, alone) - nothing
    whole = _write(found, z) - nothing
    return float((total - whole).abs().max() / whole.abs().max().clamp(min=1e-12))


def _weight(found: Found) -> tuple[str, int] | None:
    """The projection's weight by name, and which of its axes is the input; None if not plain."""
    weight = getattr(found.projection, "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.ndim != 2 or not weight.is_floating_point():
        return None
    if len(list(found.projection.children())):
        return None  # an adapter around the weight takes the same input past it
    is_conv1d = type(found.projection).__name__ == "Conv1D"  # GPT-2's linear layer, transposed
    axis = 0 if is_conv1d else 1
    return ("weight", axis) if weight.shape[axis] == found.site.width else None


def _columns_error(found: Found) -> float:
    site = found.site
    odd = [head for head in range(site.heads) if head % 2 == 0]
    columns = [site.start + h * site.size + i for h in odd for i in range(site.size)]
    gated = found.z.clone()
    gated[:, columns] = 0
    place = _weight(found)
    if place is None:
        return 0.0  # no plain weight to compare with: the sum above is the check
    name, axis = place
    weight = getattr(found.projection, name).detach().clone()
    weight.index_fill_(axis, torch.tensor(columns, device=weight.device), 0)
    zeroed = torch.func.functional_call(
        found.projection,
        {name: weight},
        (found.z.reshape(_one_row(found)), *found.call_args),
        dict(found.call_kwargs),
    )
    expected = found.projection(gated.reshape(_one_row(found)))
    size = expected.abs().max().clamp(min=1e-12)
    return float((zeroed - expected).abs().max() / size)


def _one_row(found: Found) -> tuple[int, ...]:
    tokens, width = found.z.shape
    return {"rows": (1, tokens, width), "flat": (tokens, width), "tokens": (tokens, 1, width)}[
        found.site.order
    ]


def _mixers(module: nn.Module, found: Sequence[Found]) -> tuple[str, ...]:
    """Modules through which tokens see earlier tokens although every head is switched off.

    Two rows differ in one early token. Where a module's input agrees at the later positions and its
    output does not, tokens mix inside it; there the rows are made to agree again. What an attention
    block does before its gated projection does not count.
    """
    sites = [f.site for f in found]
    owners = tuple(f.owner for f in found)
    ids = probe_prompt(module, 2).clone()
    early = 2
    ids[1, early] = (ids[1, early] + 3) % int(ids.max() + 1)
    names: list[str] = []

    def later(value: Any) -> Tensor | None:
        tensor = value[0] if isinstance(value, tuple) and value else value
        if not isinstance(tensor, Tensor) or not tensor.is_floating_point():
            return None
        fits = tensor.ndim >= 3 and tensor.shape[:2] == (2, TOKENS)
        return tensor[:, early + 1 :] if fits else None

    def differ(tensor: Tensor) -> bool:
        change = (tensor[0] - tensor[1]).abs().max()
        return bool(change > 10 * tolerance(tensor.dtype) * tensor.abs().max().clamp(min=1e-6))

    def watch(name: str) -> Callable[..., Any]:
        def hook(_: nn.Module, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
            after = later(output)
            inputs = [t for t in map(later, (*args, *kwargs.values())) if t is not None]
            if after is None or not inputs or not differ(after) or any(map(differ, inputs)):
                return None
            if not any(name == owner or name.startswith(f"{owner}.") for owner in owners):
                names.append(name)
            tensor = output[0] if isinstance(output, tuple) else output
            tensor = tensor.clone()
            tensor[1, early + 1 :] = tensor[0, early + 1 :]
            return (tensor, *output[1:]) if isinstance(output, tuple) else tensor

        return hook

    gates = torch.zeros(1, sum(site.heads for site in sites))
    with ExitStack() as stack:
        for name, child in plain(module).named_modules():
            handle = child.register_forward_hook(watch(name), with_kwargs=True)
            stack.callback(handle.remove)
        stack.enter_context(gating(module, sites, gates))
        run(module, ids)
    return tuple(names)
