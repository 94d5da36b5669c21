"""Our own decoding loop over the key/value cache, for models that are proven to support it.

It does less work than the model's own `generate`: a prefix that all prompts share runs once for
each head set, rows that have ended leave the batch, and only the tokens are copied from the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.engine.measure.forward import check_finite
from headcount.engine.write.sampling import FiniteCheck, Sampling
from headcount.engine.write.settings import Decoding
from headcount.models.forward_modes import empty_cache, scored_logits
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.models.sites import accepted, coarsest_dtype, probe_prompt
from headcount.models.slices import tolerance

WORTH_REMOVING = 0.1  # ended rows are removed from the batch when they are this share of it

Prompt = tuple[int, ...]
Ended = Callable[[list[list[int]]], list[bool]]
Layers = list[tuple[Tensor, Tensor]]  # keys and values of each layer


@dataclass
class Steps:
    """Decodes prompts, each row under its own head set.

    Prompts of different lengths are padded between the shared prefix and the rest, where the model
    is proven to ignore padding: see `ignores_gaps`.
    """

    model: Model
    gates: Float[np.ndarray, "sets heads"] | None  # of all head sets; None leaves all heads on
    prefix: Prompt  # the tokens with which every prompt starts; they run once for each head set
    decoding: Decoding
    ended: Ended | None = None  # tells, from the new tokens of rows, which rows have ended
    logits: list[Tensor] | None = None  # a list to which the logits of every step are appended
    _known: dict[int, int] = field(default_factory=dict)  # head set → its row of `_layers`
    _layers: Layers = field(default_factory=list)

    @property
    def prompt_ungated(self) -> bool:
        """Whether only the passes over new tokens are gated."""
        return self.decoding.scope == "decode"

    @torch.no_grad()
    def run(self, prompts: Sequence[Prompt], sets: Sequence[int]) -> list[list[int]]:
        """The new tokens of each prompt, under the head set whose number `sets` gives for it."""
        model, finite = self.model, FiniteCheck()
        new = self.decoding.max_new_tokens
        sampling = Sampling(self.decoding, prompts, new) if self.decoding.temperature else None
        start = len(self.prefix)
        ids, padding = pad_left([prompt[start:] for prompt in prompts], start, model.device)
        cache = self._spread(sets)
        alive = torch.arange(len(prompts))  # kept on the CPU, so that reading it needs no waiting
        numbers = np.asarray(sets)
        texts: list[list[int]] = [[] for _ in prompts]
        over = [False] * len(prompts)  # which prompts have ended, including rows still in the batch
        unfetched: list[Tensor] = []  # tokens that are only on the device so far
        with ExitStack() as stack:
            stack.enter_context(self._gating(numbers, prompt=True))
            for step in range(new):
                logits = self._pass(ids, cache, padding)
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
                if stay is not None or (step == 0 and self.prompt_ungated):
                    stack.close()
                    stack.enter_context(self._gating(numbers, prompt=False))
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

    def _gating(self, sets: Int[np.ndarray, "rows"], prompt: bool) -> AbstractContextManager[None]:
        if self.gates is None or (prompt and self.prompt_ungated):
            # A model that the user has compiled would be compiled again for every length.
            eager: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
            return eager
        gates = torch.from_numpy(self.gates[sets])
        return gating(self.model.module, self.model.sites, gates)

    def _pass(
        self, ids: Int[Tensor, "rows tokens"], cache: Any, padding: _Padding | None = None
    ) -> Float[Tensor, "rows vocab"]:
        module = self.model.module
        last = scored_logits(module, 1) if self.model.fast_paths.head else nullcontext()
        options: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        if padding is not None:
            options |= {"attention_mask": padding.mask, "position_ids": padding.positions}
        with last:
            options = accepted(module, **options)
            logits: Tensor = module(input_ids=ids, **options).logits
        return logits[:, -1]

    def _empty(self) -> Any:
        return empty_cache(self.model.module, len(self.model.sites))

    def _spread(self, sets: Sequence[int]) -> Any:
        """A cache that holds the prefix for each row, under the row's head set."""
        cache = self._empty()
        if not self.prefix:
            return cache
        if self.gates is None or self.prompt_ungated:
            sets = [0] * len(sets)
        if not set(sets) <= self._known.keys():
            self._read_prefix(sorted(set(sets)))
        rows = torch.tensor([self._known[number] for number in sets], device=self.model.device)
        for index, (keys, values) in enumerate(self._layers):
            at = rows.to(keys.device)  # with a device map, layers are on several devices
            cache.update(keys[at], values[at], index)
        return cache

    def _read_prefix(self, sets: list[int]) -> None:
        """Run the prefix under these head sets, and forget the prefix of all other head sets."""
        self._known, self._layers = {}, []
        ids = torch.tensor([self.prefix] * len(sets), device=self.model.device)
        cache = self._empty()
        with self._gating(np.asarray(sets), prompt=True):
            self._pass(ids, cache)
        self._layers = [(layer.keys, layer.values) for layer in cache.layers]
        self._known = {number: row for row, number in enumerate(sets)}


@dataclass(frozen=True)
class _Padding:
    """The attention mask, which is 0 at padding, and the positions of the tokens of a pass."""

    mask: Int[Tensor, "rows columns"]
    positions: Int[Tensor, "rows tokens"]

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


_PROVEN: WeakKeyDictionary[Model, dict[str, bool]] = WeakKeyDictionary()


def padding_ignored(
    model: Model, way: str, pair: list[Prompt], logits: Callable[[list[Prompt]], Sequence[Tensor]]
) -> bool:
    """Whether the second prompt of a pair has the same logits next to the first as alone.

    The second prompt is shorter, so that it is padded next to the first. Tested once per model and
    `way` of decoding; `logits` decodes prompts in that way and returns the logits of each step.
    """
    known = _PROVEN.setdefault(model, {})
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
        steps = Steps(model, None, ids[:3], Decoding(max_new_tokens=3), logits=[])
        steps.run(prompts, [0] * len(prompts))
        return steps.logits or []

    return padding_ignored(model, "gaps", [ids, ids[:3] + ids[6:]], logits)
