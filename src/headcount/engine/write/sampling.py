"""Draw tokens so that the continuation of a prompt does not depend on the rest of its batch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from headcount.engine.write.settings import Sampled

LIKELY = 1024  # the most likely tokens, which nearly always hold the probability mass `top_p`


class FiniteCheck:
    """Notes whether any logit was NaN or infinite, without waiting for the device at each step."""

    def __init__(self) -> None:
        self.result = torch.zeros(())  # becomes NaN with the first bad logit

    def __call__(
        self, input_ids: Int[Tensor, "rows tokens"], scores: Float[Tensor, "rows vocab"]
    ) -> Float[Tensor, "rows vocab"]:
        """Called by `generate` with each step's logits."""
        # Minus infinity is allowed: some models use it to exclude tokens.
        bad = (scores.isnan() | (scores == torch.inf)).any()
        self.result = self.result.to(scores.device) + torch.where(bad, torch.nan, 0.0)
        return scores


def likeliest(p: Float[Tensor, "rows vocab"], mass: float) -> Bool[Tensor, "rows vocab"]:
    """The smallest set of most likely tokens that holds this mass; of equal tokens the first ones.

    >>> likeliest(torch.tensor([[0.1, 0.4, 0.1, 0.4]]), 0.85).tolist()
    [[True, True, False, True]]
    """
    ranked = p.topk(min(LIKELY, p.shape[-1]), dim=-1).values
    if bool((ranked.sum(-1) < mass).any()):  # rare; sorting the vocabulary costs as much as a pass
        ranked = p.sort(descending=True, dim=-1).values
    before = ranked.cumsum(-1) - ranked  # the mass of more likely tokens
    kept = (before < mass).sum(-1, keepdim=True).clamp(min=1)  # (rows, 1)
    least = ranked.gather(-1, kept - 1)
    equal = p == least
    spare = equal.cumsum(-1) > kept - (p > least).sum(-1, keepdim=True)
    return ~((p < least) | (equal & spare))  # NaN is kept here, and FiniteCheck reports it


class Sampling:
    """Turns greedy decoding into sampling: sets all logits but the drawn token's to −∞."""

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
        self,
        scores: Float[Tensor, "rows vocab"],
        rows: Int[Tensor, "rows"],
        step: int | Int[Tensor, "rows"],
    ) -> Float[Tensor, "rows vocab"]:
        """Draw the token of this step, counted from 0, in some of the rows."""
        wide = torch.float32 if scores.device.type == "mps" else torch.float64  # MPS lacks float64
        p = (scores.to(wide) / self.how.temperature).softmax(-1)  # (rows, vocab)
        if self.how.top_p < 1:
            p = p.masked_fill(~likeliest(p, self.how.top_p), 0)
        up_to = p.cumsum(-1)
        self.numbers = self.numbers.to(p)
        number = self.numbers[rows, step, None] * up_to[:, -1:]  # below the sum
        drawn = (up_to <= number).sum(-1, keepdim=True)
        return torch.full_like(scores, -torch.inf).scatter(-1, drawn, 0.0)


def _numbers(prompt: tuple[int, ...], seed: int, count: int) -> Float[Tensor, "count"]:
    """Random numbers from 0 to 1 that depend only on the prompt and the seed, not on the batch."""
    digest = hashlib.sha256(f"{seed} {prompt}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
    return torch.rand(count, generator=generator, dtype=torch.float64)
