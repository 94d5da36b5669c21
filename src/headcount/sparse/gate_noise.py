"""Logistic noise that is computed, not drawn: the same place and seed give the same number.

Sparse attention needs a fresh number for every row, head, query and key in each training step, and
the same ones again in the backward pass. A generator would have to keep them all; a hash makes each
where it is used, whatever the chunks, the device or the compiler.
"""

from __future__ import annotations

import torch
from torch import Tensor

# lowbias32, a hash of 32 bits in which every bit of the input changes half of the output's.
FIRST = 0x7FEB352D
SECOND = 0x846CA68B - (1 << 32)
GOLDEN = 0x9E3779B1 - (1 << 32)


# Shapes are said in words here: the checks of the tests would break compiled passes apart.
def mixed(x: Tensor) -> Tensor:
    """Hash 32-bit integers; products wrap around, and shifts move zeros in."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * FIRST
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * SECOND
    return x ^ ((x >> 16) & 0xFFFF)


def wrapped(number: int) -> int:
    """As 32 bits have it, which a GPU's compiler asks of constants.

    >>> wrapped(GOLDEN * 512) == (torch.tensor(GOLDEN, dtype=torch.int32) * 512).item()
    True
    """
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


def logistic_noise(seed: Tensor, rows: int, heads: int, queries: range, keys: int) -> Tensor:
    """logit(u), u uniform between 0 and 1, for these queries: (rows, heads, queries, keys).

    >>> noise = logistic_noise(torch.tensor(5, dtype=torch.int32), 1, 2, range(3), 4)
    >>> part = logistic_noise(torch.tensor(5, dtype=torch.int32), 1, 2, range(1, 3), 4)
    >>> torch.equal(noise[:, :, 1:], part)
    True
    """

    def places(n: int, first: int = 0) -> Tensor:
        """GOLDEN · (first, first + 1, …)."""
        steps = torch.arange(n, dtype=torch.int32, device=seed.device)
        return GOLDEN * steps + wrapped(GOLDEN * first)

    x = mixed(seed + places(rows))  # (rows,)
    x = mixed(x[:, None] + places(heads))  # (rows, heads)
    x = mixed(x[..., None] + places(len(queries), queries.start))  # (rows, heads, queries)
    x = mixed(x[..., None] + places(keys))  # (rows, heads, queries, keys)
    # 23 bits and a half: neither 0 nor 1, and exact in float32.
    u = (((x >> 9) & 0x7FFFFF).float() + 0.5) * 2.0**-23
    return u.log() - torch.log1p(-u)
