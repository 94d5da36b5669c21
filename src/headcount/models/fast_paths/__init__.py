"""Fast paths: ways through a model that leave out work and reproduce its logits.

`trunk` starts passes late and ends them early, `prove` shows which of it a model carries.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from torch import nn

from headcount.models.fast_paths.trunk import Trunk, scored_only
from headcount.models.forward_modes import scored_logits


@dataclass(frozen=True)
class ShortCuts:
    """What a model can carry; each was shown to leave its logits as they are."""

    head: bool = False  # logits only where they are scored
    trunk: Trunk | None = None  # start at the first gated site
    attention: bool = False  # … and there, from the output projection on
    scored: bool = False  # the end of the last block only where logits are scored
    cache: bool = False  # tokens that all rows share run once, through the key/value cache


@contextmanager
def scored_end(module: nn.Module, cuts: ShortCuts, count: int) -> Iterator[None]:
    """Run the end of the model at the last `count` positions only, as far as `cuts` allow."""
    last_block = cuts.head and cuts.scored and cuts.trunk is not None
    with (
        scored_logits(module, count) if cuts.head else nullcontext(),
        scored_only(module, cuts.trunk, count) if last_block and cuts.trunk else nullcontext(),
    ):
        yield


def spread_cache(fresh: Any, prefix: Any, undisturbed: Any, folds: int, rows: int) -> Any:
    """Fill the `fresh` cache for `rows` rows under each of `folds` head sets; returns it.

    `prefix` comes from a pass of `folds` rows over the tokens that all rows share. Layers that its
    late start left empty say what they say in the pass of one row that was left `undisturbed`.
    """
    for index, layer in enumerate(prefix.layers):
        ran = layer.is_initialized
        source, copies = (layer, rows) if ran else (undisturbed.layers[index], folds * rows)
        keys, values = (x.repeat_interleave(copies, 0) for x in (source.keys, source.values))
        fresh.update(keys, values, index)
    return fresh
