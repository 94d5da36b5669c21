"""Decide which modules are projections, and which of their input columns belong to which head."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

QUANTISED = 0.1  # relative error of kernels that round their inputs to eight or seven bits


def tolerance(dtype: torch.dtype) -> float:
    """How far two ways of computing the same number may differ, relative to its size."""
    return 1e-4 if torch.finfo(dtype).eps < 1e-6 else 4 * torch.finfo(dtype).eps


def visible(dtype: torch.dtype) -> float:
    """A relative difference that rounding does not cause between equal rows of one batch."""
    return max(1e-3, tolerance(dtype))


def linear_limit(module: nn.Module, dtype: torch.dtype) -> float:
    """How far from linear a projection may be: quantised ones may also round their inputs."""
    weights = list(module.parameters())
    plain = (type(p) is nn.Parameter or hasattr(p, "placements") for p in weights)
    exact = all(plain) and all(p.is_floating_point() for p in weights)
    if weights and exact and all(p.dtype.itemsize > 1 for p in weights):
        return tolerance(dtype)
    return max(QUANTISED, tolerance(dtype))


def rows_differ(by_row: Float[Tensor, "rows tokens width"], limit: float) -> bool:
    """Whether rows differ by more than rounding."""
    change = (by_row - by_row[:1]).abs().max()
    return bool(change > limit * by_row.abs().max())


def is_projection(function: Callable[[Tensor], Any], x: Tensor, limit: float) -> bool:
    """Whether the function is affine in x and mixes columns, up to a relative error of `limit`.

    >>> x = torch.randn(3, 4)
    >>> is_projection(torch.nn.Linear(4, 2), x, 1e-4), is_projection(torch.relu, x, 1e-4)
    (True, False)
    >>> is_projection(torch.nn.Identity(), x, 1e-4)
    False
    """
    even = torch.zeros_like(x)
    even[..., ::2] = x[..., ::2]
    nothing, whole = function(torch.zeros_like(x)), function(x)
    if not isinstance(whole, Tensor) or not whole.is_floating_point():
        return False
    rounding = 4 * torch.finfo(whole.dtype).eps * nothing.abs().max()  # a residual may be added
    whole = whole - nothing
    from_even = function(even) - nothing
    both = from_even + function(x - even) - nothing
    twice = (function(2 * x) - nothing) / 2
    error = torch.maximum((both - whole).abs().max(), (twice - whole).abs().max())
    if not error <= limit * (whole.abs().max() + 1e-12) + rounding:
        return False
    elementwise = whole.shape == x.shape and not from_even[..., 1::2].abs().max() > 0
    return not elementwise


class Slices(NamedTuple):
    """Heads side by side in the columns of a projection's input."""

    start: int
    heads: int
    size: int
    coupled: bool  # a norm over all heads scales them together
    leak: float  # largest change outside a disturbed head's slice, relative to that inside


def read_slices(
    by_row: Float[Tensor, "rows tokens width"], queries: int, limit: float = 1e-3
) -> Slices | None:
    """Find the heads' slices from rows, of which row r has query head r − 1 disturbed.

    None if the columns cannot be divided so that each query head has its own slice (or, as in
    differential attention, each of several equal groups of query heads).
    """
    base = by_row[0].double()  # (tokens, width)
    change = by_row[1 : queries + 1].double() - base  # (queries, tokens, width)
    touched = (change.abs().amax(1) > limit * float(change.abs().max())).any(0).nonzero()
    if not len(touched):
        return None
    # A projection may also take columns of an MLP, so columns that no head changes are left out
    # first; but they may belong to a head whose output is zero, so all columns are tried next.
    for start, end in ((int(touched[0]), int(touched[-1]) + 1), (0, base.shape[-1])):
        for heads in (n for n in range(queries, 0, -1) if queries % n == 0):
            if (end - start) % heads or (heads == 1 and queries > 1):
                continue
            columns = slice(start, end)
            fit = _fit(change[..., columns], base[:, columns], heads, limit)
            if fit is not None:
                return Slices(start, heads, (end - start) // heads, *fit)
    return None


def _fit(
    change: Float[Tensor, "queries tokens columns"],
    base: Float[Tensor, "tokens columns"],
    heads: int,
    limit: float,
) -> tuple[bool, float] | None:
    """Whether each query head changes its slice and no other: (coupled, leak), or None.

    A norm over all heads scales the other slices by one common number per token: they still hold
    nothing but their own head. Any other change outside the slice rules this division out.
    """
    queries, tokens, columns = change.shape
    slices = change.view(queries, tokens, heads, columns // heads)
    every = torch.arange(queries, device=change.device)
    own = every if queries == heads else _shared_slices(slices, limit)
    if own is None:
        return None
    inside = slices[every, :, own].abs().amax((1, 2))  # (queries,)
    floor = 1e-6 * float(inside.max())
    if int((inside <= floor).sum()) > queries // 2:
        return None  # heads with zero output prove nothing, so most heads must have some
    inside = inside.clamp(min=floor)
    others = slices.clone()
    others[every, :, own] = 0
    leak = float((others.abs().amax((1, 2, 3)) / inside).max())
    if leak <= limit:
        return False, leak
    if columns - columns // heads < 2:
        return None  # a single number is always a multiple of another: no proof
    rest = base.view(1, tokens, heads, -1).repeat(queries, 1, 1, 1)
    rest[every, :, own] = 0
    norm = (rest**2).sum((2, 3), keepdim=True).clamp(min=1e-300)  # (queries, tokens, 1, 1)
    scale = (others * rest).sum((2, 3), keepdim=True) / norm
    leak = float(((others - scale * rest).abs().amax((1, 2, 3)) / inside).max())
    return (True, leak) if leak <= limit else None


def _shared_slices(
    slices: Float[Tensor, "queries tokens heads size"], limit: float
) -> Int[Tensor, "queries"] | None:
    """The slice that each query head changes most; None if slices have unequally many query heads.

    Each query head must change more than half of its slice's columns, so that any two of them
    overlap: heads that lie side by side within a slice do not share it.
    """
    queries, _, heads, _ = slices.shape
    change = slices.abs().amax(1)  # (queries, heads, size)
    own = change.amax(2).argmax(1)
    change = change[torch.arange(queries, device=own.device), own]  # (queries, size)
    touched = change > limit * change.amax(1, keepdim=True)
    if not bool((touched.double().mean(1) > 0.5).all()):
        return None
    even = torch.full((heads,), queries // heads, device=own.device)
    return own if torch.equal(torch.bincount(own, minlength=heads), even) else None
