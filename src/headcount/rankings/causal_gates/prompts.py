"""The prompts of a fit, on the device once, and how those of one update are cut into passes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.engine.measure.forward import measuring
from headcount.models.model import Model
from headcount.models.sites import coarsest_dtype, probe_prompt, run
from headcount.models.slices import tolerance
from headcount.tasks import Encoded


@dataclass(frozen=True, eq=False)
class Prompts:
    """Every prompt with its target, teacher-forced, filled up at the end to one length."""

    lengths: Int[np.ndarray, "examples"]
    counts: Int[np.ndarray, "examples"]  # target tokens
    ids: Int[Tensor, "examples tokens"]
    scored: Int[Tensor, "examples targets"]  # the positions that predict the target's tokens
    targets: Int[Tensor, "examples targets"]
    weights: Float[Tensor, "examples targets"]  # of each target token in its example's mean
    mixed: bool  # whether prompts of different lengths may share a pass

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True)
class Pass:
    """One pass over some of an update's prompts."""

    places: slice  # of the update's layout
    tokens: int  # of the longest prompt
    targets: int  # of the longest target


@dataclass(frozen=True, eq=False)
class Laid:
    """The prompts of one update, rows × batch, longest first."""

    prompts: Prompts
    examples: Int[Tensor, "places"]
    rows: Int[Tensor, "places"]  # whose gates each is under
    slots: Int[np.ndarray, "places"]  # row · batch + its place in the row's batch
    lengths: Int[np.ndarray, "places"]
    counts: Int[np.ndarray, "places"]


def load_prompts(model: Model, encoded: Sequence[Encoded]) -> Prompts:
    """Bring prompts and targets to the model's device."""
    lengths = np.array([len(one.prompt) + len(one.target) - 1 for one in encoded])
    counts = np.array([len(one.target) for one in encoded])
    ids = torch.zeros(len(encoded), int(lengths.max()), dtype=torch.long)
    targets = torch.zeros(len(encoded), int(counts.max()), dtype=torch.long)
    scored, weights = torch.zeros_like(targets), torch.zeros(targets.shape)
    for place, one in enumerate(encoded):
        length, count = int(lengths[place]), int(counts[place])
        ids[place, :length] = torch.tensor([*one.prompt, *one.target[:-1]])
        targets[place, :count] = torch.tensor(one.target)
        scored[place, :count] = torch.arange(length - count, length)
        weights[place, :count] = 1 / count
    on = model.device
    mixed = len(set(lengths.tolist())) > 1 and blind_to_what_follows(model)
    return Prompts(
        lengths, counts, ids.to(on), scored.to(on), targets.to(on), weights.to(on), mixed
    )


@torch.no_grad()
def blind_to_what_follows(model: Model) -> bool:
    """Whether a prompt gives the same logits when other tokens follow it: then these may be any.

    Filling up at the end needs no mask in such a model, and fused attention stays on.
    """
    ids = probe_prompt(model.module, 1)
    short = ids.shape[1] // 2
    with measuring(model):
        try:
            whole, part = run(model.module, ids), run(model.module, ids[:, :short])
        except Exception:  # a model that some length breaks does without it
            return False
    error = (whole[:, :short].float() - part.float()).abs().max() / part.float().abs().max()
    return bool(error <= tolerance(coarsest_dtype(model.module)))


def lay_out(prompts: Prompts, batches: Int[np.ndarray, "rows batch"]) -> Laid:
    """Lay out the batch of every row side by side, the longest prompts first.

    Longest first, so that what does not fit into memory is noticed at once.
    """
    examples = batches.reshape(-1)
    slots = np.lexsort((-prompts.counts[examples], -prompts.lengths[examples]))
    chosen = examples[slots]
    both = torch.from_numpy(np.stack([chosen, slots // batches.shape[1]]).astype(np.int64))
    on_device = both.to(prompts.ids.device, non_blocking=True)
    lengths, counts = prompts.lengths[chosen], prompts.counts[chosen]
    return Laid(prompts, on_device[0], on_device[1], slots, lengths, counts)


def passes(laid: Laid, tokens: int) -> Iterator[Pass]:
    """Cut an update into passes of up to `tokens` tokens, as even as can be.

    Unless lengths may be mixed, all prompts of a pass have one.
    """
    borders = [0, len(laid.lengths)]
    if not laid.prompts.mixed:
        borders[1:1] = (np.flatnonzero(np.diff(laid.lengths)) + 1).tolist()
    for first, last in pairwise(borders):
        start = first
        while start < last:
            longest = int(laid.lengths[start])
            left = last - start
            pieces = -(-left // max(1, tokens // longest))
            stop = start - (-left // pieces)
            yield Pass(slice(start, stop), longest, int(laid.counts[start:stop].max()))
            start = stop
