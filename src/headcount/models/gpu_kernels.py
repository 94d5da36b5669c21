"""Small GPU kernels for decoding, in Triton, which comes with torch's CUDA builds.

A step of decoding is bound by memory and by the number of launches. `attend` reads just the keys
and values of the positions that a row has, where torch's attention would read those of the longest
row, and gates its heads; `rotate`, `put`, `rms_norm` and `silu_product` are one launch each in
place of up to ten. Nothing relies on these kernels being right: a model decodes with them only
after its logits were compared with those of a plain pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

BLOCK = 64  # positions that a program of `attend` reads at once
WIDEST = 16_384  # numbers of a row that one program of `rms_norm` takes
LARGEST = 512  # bytes of a key or value in `attend`: blocks of more do not fit into shared memory

_aside = False  # whether the kernels are set aside: see `without_kernels`


@cache
def _kernels() -> Any:
    """The module of the kernels, or None where there is no Triton."""
    try:
        from headcount.models import triton_kernels
    except Exception:  # there is none, or one that does not work with this Python or torch
        return None
    return triton_kernels


def kernels_run(device: torch.device) -> bool:
    """Whether the kernels are used on this device."""
    return device.type == "cuda" and not _aside and _kernels() is not None


@contextmanager
def without_kernels() -> Iterator[Callable[[], None]]:
    """Use torch's own kernels inside this context, and after it if what it yields was called."""
    global _aside
    before, stay = _aside, []
    _aside = True
    try:
        yield lambda: stay.append(True)
    finally:
        _aside = before or bool(stay)


def _usable(x: Tensor) -> bool:
    """Whether the kernels run where this tensor is."""
    return kernels_run(x.device)


def can_attend(samples: list[tuple[Tensor, Tensor]]) -> bool:
    """Whether `attend` takes keys and values of these sizes, on this device."""
    sizes = {x.shape[-1] for pair in samples for x in pair}
    on_gpu = all(_usable(x) for pair in samples for x in pair)
    wide = any(x.shape[-1] * x.itemsize > LARGEST for pair in samples for x in pair)
    return on_gpu and not wide and all(_power(size, 16) for size in sizes)


def _power(number: int, least: int) -> bool:
    return least <= number <= 256 and not number & (number - 1)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    positions: Tensor,
    scale: float,
    gates: Tensor | None = None,
) -> Tensor:
    """Attention of one query per head to the positions up to each row's own, times its gate.

    query (rows, heads, 1, size), key and value (rows, groups, positions, size), positions (rows,),
    gates (rows, heads); returns (rows, 1, heads, size of a value).
    """
    rows, heads, _, size = query.shape
    groups, width = key.shape[1], value.shape[-1]
    out = query.new_empty(rows, 1, heads, width)
    per = heads // groups
    _kernels().attend[(rows, groups)](
        query, key, value, out, positions, out if gates is None else gates, scale,
        query.stride(0), query.stride(1), *key.stride()[:3], *value.stride()[:3],
        PER=per, QUERIES=max(16, 1 << (per - 1).bit_length()), SIZE=size, WIDTH=width, BLOCK=BLOCK,
        GATED=gates is not None,
    )  # fmt: skip
    return out


def can_rotate(q: Tensor, k: Tensor, cos: Tensor) -> bool:
    """Whether `rotate` takes these queries and keys: whole heads, on a GPU."""
    whole = q.ndim == 4 and q.stride(-1) == k.stride(-1) == 1
    fits = cos.ndim == 3 and cos.shape[-1] == q.shape[-1] and cos.shape[1] == q.shape[2]
    same = q.dtype == k.dtype == cos.dtype
    return _usable(q) and whole and fits and same and _power(q.shape[-1], 2)


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Turn q and k (rows, heads, tokens, size) by cos and sin (rows or 1, tokens, size)."""
    rows, heads, tokens, size = q.shape
    both = heads + k.shape[1]
    # Heads of one token side by side, as the projections wrote them.
    out = q.new_empty(rows, tokens, both, size)
    cos, sin = cos.contiguous(), sin.contiguous()
    block = min(16, 1 << (both - 1).bit_length())  # heads that a program turns
    _kernels().rotate[(rows * tokens, -(-both // block))](
        q, k, out, cos, sin, *q.stride()[:3], *k.stride()[:3],
        *(x.stride(0) if x.shape[0] > 1 else 0 for x in (cos, sin)),
        tokens, HEADS=heads, BOTH=both, HALF=size // 2, BLOCK=block,
    )  # fmt: skip
    turned = out.transpose(1, 2)  # (rows, heads, tokens, size)
    return turned[:, :heads], turned[:, heads:]


Pair = tuple[Tensor, Tensor]


def put(new: Pair, tables: Pair, places: Tensor) -> None:
    """Write each row of new keys and values, (rows, numbers), to its place in two tables."""
    keys, values = new
    if not _usable(keys) or keys.stride(1) != 1 or values.stride(1) != 1:
        for table, numbers in zip(tables, new, strict=True):
            table.index_copy_(0, places, numbers)
        return
    sizes = keys.shape[1], values.shape[1]
    _kernels().put[(len(keys),)](
        keys, values, *tables, places, keys.stride(0), values.stride(0), *sizes,
        BLOCK=1 << (max(sizes) - 1).bit_length(),
    )  # fmt: skip


def rms_norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """Scale the last axis to a mean square of 1, and multiply it by the weights."""
    width = len(weight)
    if not _usable(x) or x.shape[-1] != width or width > WIDEST or not x.is_contiguous():
        return torch.nn.functional.rms_norm(x, weight.shape, weight, epsilon)
    out = torch.empty_like(x)
    _kernels().rms_norm[(x.numel() // width,)](
        x, weight, out, width, epsilon, BLOCK=1 << (width - 1).bit_length()
    )
    return out


def silu_product(both: Tensor) -> Tensor:
    """SiLU of the first half of the last axis, times the second half."""
    half = both.shape[-1] // 2
    if not _usable(both):
        return torch.nn.functional.silu(both[..., :half]) * both[..., half:]
    both = both.contiguous()
    out = both.new_empty(*both.shape[:-1], half)
    block = 1024
    grid = (both.numel() // (2 * half), -(-half // block))
    _kernels().silu_product[grid](both, out, half, BLOCK=block)
    return out
