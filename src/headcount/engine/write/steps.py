"""Decoding step by step through the key/value cache, where a model is proven to carry that.

Against the model's own `generate` this does less: tokens that all prompts share run once for each
head set, rows that have ended leave the batch, and nothing is asked of the device but the tokens.
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
from headcount.engine.write.sampling import Sampling, Watch
from headcount.engine.write.settings import Decoding
from headcount.models.forward_modes import empty_cache, scored_logits
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.models.sites import accepted, coarsest_dtype, probe_prompt
from headcount.models.slices import tolerance

WORTH_LEAVING = 0.1  # share of rows that must have ended before the others are moved together

Prompt = tuple[int, ...]
Ended = Callable[[list[list[int]]], list[bool]]
Layers = list[tuple[Tensor, Tensor]]  # keys and values of each layer


@dataclass
class Steps:
    """Decoding of prompts, each row under its own head set.

    Prompts of different lengths are filled up behind the shared prefix: see `bears_gaps`.
    """

    model: Model
    gates: Float[np.ndarray, "sets heads"] | None  # of all head sets; None leaves all heads on
    prefix: Prompt  # tokens with which every prompt starts, run once for each head set
    decoding: Decoding
    ended: Ended | None = None  # which rows, given all their new tokens, have come to an end
    logits: list[Tensor] | None = None  # of every step, where they are asked for
    _known: dict[int, int] = field(default_factory=dict)  # head set → its row of `_layers`
    _layers: Layers = field(default_factory=list)

    @property
    def spare_prompt(self) -> bool:
        """Whether only the passes over new tokens are gated."""
        return self.decoding.scope == "decode"

    @torch.no_grad()
    def run(self, prompts: Sequence[Prompt], sets: Sequence[int]) -> list[list[int]]:
        """The new tokens of each prompt under the head set of that number."""
        model, watch = self.model, Watch()
        new = self.decoding.max_new_tokens
        sampling = Sampling(self.decoding, prompts, new) if self.decoding.temperature else None
        start = len(self.prefix)
        ids, gaps = filled([prompt[start:] for prompt in prompts], start, model.device)
        cache = self._spread(sets)
        alive = torch.arange(len(prompts))  # on the host, which need not ask the device for it
        numbers = np.asarray(sets)
        texts: list[list[int]] = [[] for _ in prompts]
        over = [False] * len(prompts)  # rows that have ended, also while they stay in the batch
        unseen: list[Tensor] = []  # tokens that nobody has had to look at yet
        with ExitStack() as stack:
            stack.enter_context(self._gating(numbers, prompt=True))
            for step in range(new):
                logits = self._pass(ids, cache, gaps)
                watch(ids, logits)
                if self.logits is not None:
                    self.logits.append(logits)
                scores = logits if sampling is None else sampling.draw(logits, alive, step)
                tokens = scores.argmax(-1)
                ids = tokens[:, None]
                gaps = None if gaps is None else gaps.after()
                unseen.append(tokens)
                stay = None
                if self.ended is not None:
                    unseen.clear()
                    gone = self._read(texts, over, alive.tolist(), tokens.tolist())
                    if all(gone):
                        break
                    if sum(gone) >= max(1, WORTH_LEAVING * len(gone)):
                        stay = torch.tensor([i for i, end in enumerate(gone) if not end])
                if stay is not None:
                    numbers, alive = numbers[stay.numpy()], alive[stay]
                    stay = stay.to(model.device)
                    ids = ids[stay]
                    gaps = None if gaps is None else gaps.of(stay)
                    for layer in cache.layers:  # a device map gives each its own device
                        layer.batch_select_indices(stay.to(layer.keys.device))
                if stay is not None or (step == 0 and self.spare_prompt):
                    stack.close()
                    stack.enter_context(self._gating(numbers, prompt=False))
        check_finite(watch.found, model)
        return torch.stack(unseen, 1).tolist() if unseen else texts

    def _read(
        self, texts: list[list[int]], over: list[bool], places: list[int], tokens: list[int]
    ) -> list[bool]:
        """Note the new tokens of rows that go on; tells which rows have ended, now or before."""
        assert self.ended is not None
        going = [place for place in places if not over[place]]
        for place, token in zip(places, tokens, strict=True):
            if not over[place]:
                texts[place].append(token)
        for place, end in zip(going, self.ended([texts[p] for p in going]), strict=True):
            over[place] = end
        return [over[place] for place in places]

    def _gating(self, sets: Int[np.ndarray, "rows"], prompt: bool) -> AbstractContextManager[None]:
        if self.gates is None or (prompt and self.spare_prompt):
            # A user's compiled graph would be made anew for every length.
            eager: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
            return eager
        gates = torch.from_numpy(self.gates[sets])
        return gating(self.model.module, self.model.sites, gates)

    def _pass(
        self, ids: Int[Tensor, "rows tokens"], cache: Any, gaps: _Gaps | None = None
    ) -> Float[Tensor, "rows vocab"]:
        module = self.model.module
        last = scored_logits(module, 1) if self.model.fast_paths.head else nullcontext()
        options: dict[str, Any] = {"past_key_values": cache, "use_cache": True}
        if gaps is not None:
            options |= {"attention_mask": gaps.mask, "position_ids": gaps.positions}
        with last:
            options = accepted(module, **options)
            logits: Tensor = module(input_ids=ids, **options).logits
        return logits[:, -1]

    def _empty(self) -> Any:
        return empty_cache(self.model.module, len(self.model.sites))

    def _spread(self, sets: Sequence[int]) -> Any:
        """A cache that holds the prefix of each row, under its head set."""
        cache = self._empty()
        if not self.prefix:
            return cache
        if self.gates is None or self.spare_prompt:
            sets = [0] * len(sets)
        if not set(sets) <= self._known.keys():
            self._read_prefix(sorted(set(sets)))
        rows = torch.tensor([self._known[number] for number in sets], device=self.model.device)
        for index, (keys, values) in enumerate(self._layers):
            some = rows.to(keys.device)  # a device map gives each layer its own
            cache.update(keys[some], values[some], index)
        return cache

    def _read_prefix(self, sets: list[int]) -> None:
        """Run the prefix under these head sets; those of others are forgotten."""
        self._known, self._layers = {}, []
        ids = torch.tensor([self.prefix] * len(sets), device=self.model.device)
        cache = self._empty()
        with self._gating(np.asarray(sets), prompt=True):
            self._pass(ids, cache)
        self._layers = [(layer.keys, layer.values) for layer in cache.layers]
        self._known = {number: row for row, number in enumerate(sets)}


@dataclass(frozen=True)
class _Gaps:
    """Which columns are tokens, from the first of the prefix on, and where the last ones stand."""

    mask: Int[Tensor, "rows columns"]
    positions: Int[Tensor, "rows tokens"]

    def after(self) -> _Gaps:
        """One token later."""
        more = self.mask.new_ones(len(self.mask), 1)
        return _Gaps(torch.cat((self.mask, more), 1), self.positions[:, -1:] + 1)

    def of(self, rows: Int[Tensor, "some"]) -> _Gaps:
        """Some of the rows."""
        return _Gaps(self.mask[rows], self.positions[rows])


def filled(
    rests: Sequence[Prompt], start: int, device: torch.device
) -> tuple[Int[Tensor, "rows tokens"], _Gaps | None]:
    """What follows the prefix of `start` tokens, filled up on the left where lengths differ."""
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
    return ids, _Gaps(mask.to(device), positions.to(device))


_BEARS: WeakKeyDictionary[Model, dict[str, bool]] = WeakKeyDictionary()


def bears_filling(
    model: Model, way: str, pair: list[Prompt], logits: Callable[[list[Prompt]], Sequence[Tensor]]
) -> bool:
    """Whether the second prompt of a pair goes on beside the first as it does alone.

    Proven when first asked for, by the `logits` of each step of this way of decoding.
    """
    known = _BEARS.setdefault(model, {})
    if way not in known:
        try:
            both = zip(logits(pair), logits(pair[1:]), strict=True)
            errors = [float((a[1:] - b).abs().max() / b.abs().max()) for a, b in both]
            known[way] = max(errors) <= tolerance(coarsest_dtype(model.module))
        except Exception:  # a model that filling breaks in any way does without it
            known[way] = False
    return known[way]


@torch.no_grad()
def bears_gaps(model: Model) -> bool:
    """Whether padding between a cached prefix and the rest leaves the logits unchanged.

    Proven in a pass over the rest and two steps.
    """
    ids = tuple(probe_prompt(model.module, 1)[0].tolist())

    def logits(prompts: list[Prompt]) -> list[Tensor]:
        steps = Steps(model, None, ids[:3], Decoding(max_new_tokens=3), logits=[])
        steps.run(prompts, [0] * len(prompts))
        return steps.logits or []

    return bears_filling(model, "gaps", [ids, ids[:3] + ids[6:]], logits)
