"""Two small GPU kernels for decoding, in Triton, which comes with torch's CUDA builds.

A step of decoding is bound by memory and by the number of launches. `attend` reads just the keys
and values of the positions that a row has, where torch's attention would read those of the longest
row; `rotate` is one launch in place of ten. Nothing relies on these kernels being right: a model
decodes with them only after its logits were compared with those of a plain pass.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from torch import Tensor

BLOCK = 64  # positions that a program reads at once


@cache
def _kernels() -> Any:
    """The module of the kernels, or None where there is no Triton."""
    try:
        from headcount.models import triton_kernels
    except ImportError:
        return None
    return triton_kernels


def can_attend(samples: list[tuple[Tensor, Tensor]]) -> bool:
    """Whether `attend` takes keys and values of these sizes, on this device."""
    sizes = {x.shape[-1] for pair in samples for x in pair}
    on_gpu = all(x.is_cuda for pair in samples for x in pair)
    return on_gpu and all(_power(size, 16) for size in sizes) and _kernels() is not None


def _power(number: int, least: int) -> bool:
    return least <= number <= 256 and not number & (number - 1)


def attend(query: Tensor, key: Tensor, value: Tensor, positions: Tensor, scale: float) -> Tensor:
    """Attention of one query per head to the positions up to each row's own.

    query (rows, heads, 1, size), key and value (rows, groups, positions, size), positions (rows,);
    returns (rows, 1, heads, size of a value).
    """
    rows, heads, _, size = query.shape
    groups, width = key.shape[1], value.shape[-1]
    out = query.new_empty(rows, 1, heads, width)
    per = heads // groups
    _kernels().attend[(rows, groups)](
        query, key, value, out, positions, scale,
        query.stride(0), query.stride(1), *key.stride()[:3], *value.stride()[:3],
        PER=per, QUERIES=max(16, 1 << (per - 1).bit_length()), SIZE=size, WIDTH=width, BLOCK=BLOCK,
    )  # fmt: skip
    return out


def can_rotate(q: Tensor, cos: Tensor) -> bool:
    """Whether `rotate` takes these queries: single tokens, whole heads, on a GPU."""
    single = q.is_cuda and q.ndim == 4 and q.shape[2] == 1 and q.stride(-1) == 1
    fits = cos.ndim == 3 and cos.shape[-1] == q.shape[-1] and cos.shape[1] == 1
    return single and fits and _power(q.shape[-1], 2) and _kernels() is not None


def rotate(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """Turn single tokens: q and k (rows, heads, 1, size), cos and sin (rows or 1, 1, size)."""
    rows, heads, _, size = q.shape
    out = q.new_empty(rows, heads + k.shape[1], 1, size)
    _kernels().rotate[(rows, heads + k.shape[1])](
        q, k, out, cos, sin, q.stride(0), q.stride(1), k.stride(0), k.stride(1),
        *(x.stride(0) if x.shape[0] > 1 else 0 for x in (cos, sin)),
        HEADS=heads, HALF=size // 2,
    )  # fmt: skip
    return out[:, :heads], out[:, heads:]
