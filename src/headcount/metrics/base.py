"""What a metric is, and what it is given."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jaxtyping import Float, Int

if TYPE_CHECKING or "torch" in sys.modules:  # nobody waits for torch only to list the metrics
    from torch import Tensor


@dataclass(frozen=True)
class Scored:
    """What a model said where the target stands, for examples of equal target length."""

    logits: Float[Tensor, "rows tokens vocab"]  # at the positions that predict the target's tokens
    targets: Int[Tensor, "rows tokens"]
    foils: Int[Tensor, "rows foils"]  # the first token of each; -1 where a row has fewer
    also: Int[Tensor, "rows also"] | None = None  # the same of further right answers


@dataclass(frozen=True)
class Metric:
    """One number per example.

    key             its name on the command line and in the store
    name            its name on axes and in tables
    function        from `Scored` to one value per row
    differentiable  whether rankings by derivative can use it
    needs_foils     whether examples must have foils with a first token of their own
    binary          whether its values are 0 or 1, so that its mean is an accuracy
    """

    key: str
    name: str
    function: Callable[[Scored], Float[Tensor, "rows"]]
    differentiable: bool = True
    needs_foils: bool = False
    binary: bool = False
