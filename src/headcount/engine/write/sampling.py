"""Draw tokens so that how a prompt goes on does not depend on what else is in the batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.engine.write.settings import Sampled

LIKELY = 1024  # tokens that hold nearly all mass, most of the time


class Watch:
    """Notes whether any logit was not a number, without waiting for the device."""

    def __init__(self) -> None:
        self.found = torch.zeros(())  # NaN as soon as there was one

    def __call__(
        self, input_ids: Int[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocab"]
    ) -> Float[Tensor, "rows vocab"]:
        """Called by `generate` with each step's logits."""
        # Minus infinity is how some models rule tokens out.
        bad = (scores.isnan() | (scores == torch.inf)).any()
        self.found = self.found.to(scores.device) + torch.where(bad, torch.nan, 0.0)
        return scores


def likeliest(p: Float[Tensor, "rows vocab"], mass: float) -> Bool[Tensor, "rows vocab"]:
    """The fewest tokens that hold this mass, likelier ones first; of equal ones those before.

    >>> likeliest(torch.tensor([[0.1, 0.4, 0.1, 0.4]]), 0.85).tolist()
    [[True, True, False, True]]
    """
    ranked = p.topk(min(LIKELY, p.shape[-1]), dim=-1).values
    if bool((ranked.sum(-1) < mass).any()):  # seldom, and sorting all takes as long as the pass
        ranked = p.sort(descending=True, dim=-1).values
    before = ranked.cumsum(-1) - ranked  # the mass of likelier tokens
    kept = (before < mass).sum(-1, keepdim=True).clamp(min=1)  # (rows, 1)
    least = ranked.gather(-1, kept - 1)
    equal = p == least
    spare = equal.cumsum(-1) > kept - (p > least).sum(-1, keepdim=True)
    return ~((p < least) | (equal & spare))  # what is no number stays, and is refused later


class Sampling:
    """Turns greedy decoding into sampling: all but the drawn token are ruled out."""

    def __init__(self, how: Sampled, prompts: Sequence[tuple[int, ...]], new: int) -> None:
        self.how, self.step = how, 0
        self.numbers = torch.stack([_numbers(prompt, how.seed, new) for prompt in prompts])

    def __call__(
        self, input_ids: Int[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocab"]
    ) -> Float[Tensor, "rows vocab"]:
        """Called by `generate` with each step's logits."""
        self.step += 1
        return self.draw(scores, torch.arange(len(scores)), self.step - 1)

    def draw(
        self, scores: Float[Tensor, "rows vocab"], rows: Int[Tensor, "rows"], step: int
    ) -> Float[Tensor, "rows vocab"]:
        """Draw the token of this step, counted from 0, in some of the rows."""
        wide = torch.float32 if scores.device.type == "mps" else torch.float64  # MPS has no wider
        p = (scores.to(wide) / self.how.temperature).softmax(-1)  # (rows, vocab)
        if self.how.top_p < 1:
            p = p.masked_fill(~likeliest(p, self.how.top_p), 0)
        up_to = p.cumsum(-1)
        number = self.numbers[rows.cpu(), step, None].to(p) * up_to[:, -1:]  # below the sum
        drawn = (up_to <= number).sum(-1, keepdim=True)
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0.0)


def _numbers(prompt: tuple[int, ...], seed: int, count: int) -> Float[Tensor, "count"]:
    """Numbers from 0 to 1 of a prompt and a seed: the same whatever is beside the prompt."""
    digest = hashlib.sha256(f"{seed} {prompt}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    return torch.rand(count, generator=generator, dtype=torch.float64)
