"""Our own decoding loop over the key/value cache, for models that are proven to support it.

It does less work than the model's own `generate`: a prefix that all prompts share runs once for
each head set, rows that have ended leave the batch, and only the tokens are copied from the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headcount.engine.measure.forward import check_finite
from headcount.engine.write.prefix import Prefix, Prompt, last_logits
from headcount.engine.write.sampling import FiniteCheck, Sampling
from headcount.engine.write.settings import Decoding
from headcount.models.model import Model
from headcount.models.sites import coarsest_dtype, probe_prompt
from headcount.models.slices import tolerance

WORTH_REMOVING = 0.1  # ended rows are removed from the batch when they are this share of it

Ended = Callable[[list[list[int]]], list[bool]]


@dataclass
class Steps:
    """Decodes prompts, each row under its own head set.

    Prompts of different lengths are padded between the shared prefix and the rest, where the model
    is proven to ignore padding: see `ignores_gaps`.
    """

    prefix: Prefix  # it also knows the model and the gates of all head sets
    decoding: Decoding
    ended: Ended | None = None  # tells, from the new tokens of rows, which rows have ended
    logits: list[Tensor] | None = None  # a list to which the logits of every step are appended

    @torch.no_grad()
    def run(self, prompts: Sequence[Prompt], sets: Sequence[int]) -> list[list[int]]:
        """The new tokens of each prompt, under the head set whose number `sets` gives for it."""
        model, finite = self.prefix.model, FiniteCheck()
        new = self.decoding.max_new_tokens
        sampling = Sampling(self.decoding, prompts, new) if self.decoding.temperature else None
        start = len(self.prefix.tokens)
        ids, padding = pad_left([prompt[start:] for prompt in prompts], start, model.device)
        cache = self.prefix.spread(sets)
        alive = torch.arange(len(prompts))  # kept on the CPU, so that reading it needs no waiting
        numbers = np.asarray(sets)
        texts: list[list[int]] = [[] for _ in prompts]
        over = [False] * len(prompts)  # which prompts have ended, including rows still in the batch
        unfetched: list[Tensor] = []  # tokens that are only on the device so far
        with ExitStack() as stack:
            stack.enter_context(self.prefix.gating(numbers, prompt=True))
            for step in range(new):
                logits = last_logits(
                    model, ids, cache, **({} if padding is None else padding.options)
                )
                finite(ids, logits)
                if self.logits is not None:
                    self.logits.append(logits)
                scores = logits if sampling is None else sampling.draw(logits, alive, step)
                tokens = scores.argmax(-1)
                ids = tokens[:, None]
                padding = None if padding is None else padding.next_step()
                unfetched.append(tokens)
                stay = None
                if self.ended is not None:
                    unfetched.clear()
                    ended = self._append(texts, over, alive.tolist(), tokens.tolist())
                    if all(ended):
                        break
                    if sum(ended) >= max(1, WORTH_REMOVING * len(ended)):
                        stay = torch.tensor([i for i, end in enumerate(ended) if not end])
                if stay is not None:
                    numbers, alive = numbers[stay.numpy()], alive[stay]
                    stay = stay.to(model.device)
                    ids = ids[stay]
                    padding = None if padding is None else padding.of(stay)
                    for layer in cache.layers:  # with a device map, layers are on several devices
                        layer.batch_select_indices(stay.to(layer.keys.device))
                if stay is not None or (step == 0 and self.prefix.ungated):
                    stack.close()
                    stack.enter_context(self.prefix.gating(numbers, prompt=False))
        check_finite(finite.result, model)
        return torch.stack(unfetched, 1).tolist() if unfetched else texts

    def _append(
        self, texts: list[list[int]], over: list[bool], rows: list[int], tokens: list[int]
    ) -> list[bool]:
        """Append new tokens to the unfinished texts of these rows; tells which rows have ended."""
        assert self.ended is not None
        going = [row for row in rows if not over[row]]
        for row, token in zip(rows, tokens, strict=True):
            if not over[row]:
                texts[row].append(token)
        for row, end in zip(going, self.ended([texts[row] for row in going]), strict=True):
            over[row] = end
        return [over[row] for row in rows]


@dataclass(frozen=True)
class _Padding:
    """The attention mask, which is 0 at padding, and the positions of the tokens of a pass."""

    mask: Int[Tensor, "rows columns"]
    positions: Int[Tensor, "rows tokens"]

    @property
    def options(self) -> dict[str, Tensor]:
        """The arguments of a pass."""
        return {"attention_mask": self.mask, "position_ids": self.positions}

    def next_step(self) -> _Padding:
        """The mask and positions of the next pass, over one more token."""
        more = self.mask.new_ones(len(self.mask), 1)
        return _Padding(torch.cat((self.mask, more), 1), self.positions[:, -1:] + 1)

    def of(self, rows: Int[Tensor, "some"]) -> _Padding:
        """The mask and positions of these rows."""
        return _Padding(self.mask[rows], self.positions[rows])


def pad_left(
    rests: Sequence[Prompt], start: int, device: torch.device
) -> tuple[Int[Tensor, "rows tokens"], _Padding | None]:
    """Pad the rests of prompts, after a prefix of `start` tokens, on the left to equal length."""
    width = max(map(len, rests))
    ids = torch.zeros(len(rests), width, dtype=torch.long)
    mask = torch.ones(len(rests), start + width, dtype=torch.long)
    for row, rest in enumerate(rests):
        ids[row, width - len(rest) :] = torch.tensor(rest)
        mask[row, start : start + width - len(rest)] = 0
    ids = ids.to(device)
    if bool(mask.all()):
        return ids, None
    positions = (mask.cumsum(-1) - 1)[:, start:].clamp(min=0)
    return ids, _Padding(mask.to(device), positions.to(device))


def padding_ignored(
    model: Model, way: str, pair: list[Prompt], logits: Callable[[list[Prompt]], Sequence[Tensor]]
) -> bool:
    """Whether the second prompt of a pair has the same logits next to the first as alone.

    The second prompt is shorter, so that it is padded next to the first. Tested once per model and
    `way` of decoding; `logits` decodes prompts in that way and returns the logits of each step.
    """
    known = model.proven
    if way not in known:
        try:
            both = zip(logits(pair), logits(pair[1:]), strict=True)
            errors = [float((a[1:] - b).abs().max() / b.abs().max()) for a, b in both]
            known[way] = max(errors) <= tolerance(coarsest_dtype(model.module))
        except Exception:  # a model that fails with padding runs without padding
            known[way] = False
    return known[way]


@torch.no_grad()
def ignores_gaps(model: Model) -> bool:
    """Whether padding between a cached prefix and the rest leaves the logits unchanged (tested)."""
    ids = tuple(probe_prompt(model.module, 1)[0].tolist())

    def logits(prompts: list[Prompt]) -> list[Tensor]:
        prefix = Prefix(model, None, ids[:3], ungated=False)
        steps = Steps(prefix, Decoding(max_new_tokens=3), logits=[])
        steps.run(prompts, [0] * len(prompts))
        return steps.logits or []

    return padding_ignored(model, "gaps", [ids, ids[:3] + ids[6:]], logits)
