"""Prove whether prompts of different lengths may share a batch."""

from __future__ import annotations

import torch
from torch import nn

from headcount.models.sites import accepted, coarsest_dtype, probe_prompt, run
from headcount.models.slices import tolerance

FILLED = 4  # tokens


@torch.no_grad()
def prove_padding(module: nn.Module, side: str) -> bool:
    """Whether a prompt filled up on one side, with mask and positions, gives the same logits.

    Some models count positions from the first column whatever stands there, or past the padding.
    """
    ids = probe_prompt(module, 2).clone()
    short = ids[:1, FILLED:]
    filled, rest = slice(0, FILLED), slice(FILLED, None)
    if side == "right":
        filled, rest = slice(-FILLED, None), slice(0, -FILLED)
    ids[1, rest] = short
    ids[1, filled] = 0
    mask = torch.ones_like(ids)
    mask[1, filled] = 0
    positions = (mask.cumsum(-1) - 1).clamp(min=0)
    options = accepted(module, attention_mask=mask, position_ids=positions, use_cache=False)
    expected = run(module, short).float()
    try:
        got = module(input_ids=ids, **options).logits[1:, rest].float()
    except Exception:  # a model that padding breaks in any way does without it
        return False
    error = (got - expected).abs().max() / expected.abs().max()
    return bool(error <= tolerance(coarsest_dtype(module)))
