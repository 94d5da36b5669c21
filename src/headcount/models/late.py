"""Late passes: only the last tokens of a text run, under many head sets side by side.

Gates that act only on late positions leave all earlier positions of a causal model as they are. So
the keys and values of these are computed once, and all head sets read them. The head sets of a pass
follow each other as further tokens of the same row; a mask hides them from each other, and they
have equal position ids. As further rows, each head set would need a copy of the cache.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.models.sites import plain

LATE_TOKENS = 2048  # tokens of a row in one pass: head sets attend to more keys than their own


def read_only(cache: Any) -> Any:
    """Let passes read this cache and add nothing to it; returns it."""
    for layer in cache.layers:
        layer.update = partial(_with_earlier, layer.keys, layer.values)
    return cache


def _with_earlier(
    earlier_keys: Tensor, earlier_values: Tensor, keys: Tensor, values: Tensor, *_: Any, **__: Any
) -> tuple[Tensor, Tensor]:
    return torch.cat((earlier_keys, keys), -2), torch.cat((earlier_values, values), -2)


def late_inputs(
    cache: Any, ids: Int[Tensor, "rows tokens"], folds: int, dtype: torch.dtype
) -> dict[str, Any]:
    """The arguments of a pass over `ids`, once for each of `folds` head sets, after a cache."""
    earlier, (rows, tokens) = cache.get_seq_length(), ids.shape
    positions = torch.arange(earlier, earlier + tokens, device=ids.device).repeat(folds)
    return {
        "input_ids": ids.repeat(1, folds),
        "position_ids": positions.expand(rows, -1),
        "attention_mask": _mask(earlier, tokens, folds, ids.device, dtype),
        "past_key_values": cache,
        "use_cache": True,
    }


def _mask(
    earlier: int, tokens: int, folds: int, device: torch.device, dtype: torch.dtype
) -> Float[Tensor, "1 1 queries keys"]:
    """Each token sees all earlier positions, and those of its own head set up to itself."""
    place = torch.arange(folds * tokens, device=device)
    own = (place[:, None] >= place) & (place[:, None] // tokens == place // tokens)
    seen = torch.cat((own.new_ones(len(place), earlier), own), 1)
    hidden = torch.zeros(seen.shape, device=device, dtype=dtype)
    return hidden.masked_fill_(~seen, torch.finfo(dtype).min)[None, None]


def late_gates(
    gates: Float[Tensor, "folds heads"], acting: range, tokens: int
) -> Float[Tensor, "1 heads tokens"]:
    """The gates of every token of a late pass, which are 1 where they do not act.

    >>> late_gates(torch.tensor([[0.0], [0.5]]), range(1), tokens=2)
    tensor([[[0.0000, 1.0000, 0.5000, 1.0000]]])
    """
    by_token = at_positions(gates, acting, tokens)  # (folds, heads, tokens)
    return by_token.transpose(0, 1).flatten(1)[None]


def at_positions(
    gates: Float[Tensor, "rows heads"], acting: range, tokens: int
) -> Float[Tensor, "rows heads tokens"]:
    """Gates of every token, which are 1 where they do not act."""
    by_token = gates.new_ones(*gates.shape, tokens)
    by_token[..., acting.start : acting.stop] = gates[..., None]
    return by_token


def may_run_late(module: nn.Module) -> bool:
    """Whether nothing in the model depends on where tokens lie in a pass, rather than on their ids.

    A short proof would not see it: windows in masks of the model's own, and rotations that change
    with the length of the text (`depends_on_length`).
    """
    if depends_on_length(module):
        return False
    for part in plain(module).modules():
        for mask in part.buffers(recurse=False):
            square = mask.ndim >= 2 and mask.shape[-1] == mask.shape[-2] > 1
            if square and mask.dtype == torch.bool and not mask[..., -1, :].all():
                return False
    return True


def depends_on_length(module: nn.Module) -> bool:
    """Whether a token is rotated by another angle if more tokens follow in the same pass.

    Then keys from a shorter pass cannot be reused in a longer one, and prompts of different lengths
    cannot run side by side. A short proof does not see it: it happens beyond a certain length.
    """
    kinds = [str(getattr(part, "rope_type", "")) for part in plain(module).modules()]
    return any(name in kind for kind in kinds for name in ("dynamic", "longrope"))
