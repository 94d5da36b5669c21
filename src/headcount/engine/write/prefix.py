"""The prefix that all prompts share: it runs once for each head set, and rows start from there."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.models.forward_modes import empty_cache, scored_logits
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.models.sites import accepted

Prompt = tuple[int, ...]
Layers = list[tuple[Tensor, Tensor]]  # keys and values of each layer


@dataclass
class Prefix:
    """Tokens with which every prompt starts, and their keys and values under each head set."""

    model: Model
    gates: Float[np.ndarray, "sets heads"] | None  # of all head sets; None leaves all heads on
    tokens: Prompt
    ungated: bool  # whether only the passes over new tokens are gated
    _known: dict[int, int] = field(default_factory=dict)  # head set → its row of `_layers`
    _layers: Layers = field(default_factory=list)

    def spread(self, sets: Sequence[int]) -> Any:
        """A cache that holds the prefix for each row, under the row's head set."""
        cache = empty_cache(self.model.module, len(self.model.sites))
        if not self.tokens:
            return cache
        if self.gates is None or self.ungated:
            sets = [0] * len(sets)
        if not set(sets) <= self._known.keys():
            self._read(sorted(set(sets)))
        rows = torch.tensor([self._known[number] for number in sets], device=self.model.device)
        for index, (keys, values) in enumerate(self._layers):
            at = rows.to(keys.device)  # with a device map, layers are on several devices
            cache.update(keys[at], values[at], index)
        return cache

    def gating(
        self, sets: Int[np.ndarray, "rows"], *, prompt: bool
    ) -> AbstractContextManager[None]:
        """Gate each row by its head set, in passes over prompts or over new tokens."""
        if self.gates is None or (prompt and self.ungated):
            # A model that the user has compiled would be compiled again for every length.
            eager: AbstractContextManager[None] = torch.compiler.set_stance("force_eager")
            return eager
        gates = torch.from_numpy(self.gates[sets])
        return gating(self.model.module, self.model.sites, gates)

    def _read(self, sets: list[int]) -> None:
        """Run the prefix under these head sets, and forget the prefix of all other head sets."""
        self._known, self._layers = {}, []
        ids = torch.tensor([self.tokens] * len(sets), device=self.model.device)
        cache = empty_cache(self.model.module, len(self.model.sites))
        with self.gating(np.asarray(sets), prompt=True):
            last_logits(self.model, ids, cache)
        self._layers = [(layer.keys, layer.values) for layer in cache.layers]
        self._known = {number: row for row, number in enumerate(sets)}


def last_logits(
    model: Model, ids: Int[Tensor, "rows tokens"], cache: Any, **options: Any
) -> Float[Tensor, "rows vocab"]:
    """Run tokens that follow those in a cache, and return the logits after the last of them."""
    module = model.module
    with scored_logits(module, 1) if model.fast_paths.head else nullcontext():
        options = accepted(module, past_key_values=cache, use_cache=True, **options)
        logits: Tensor = module(input_ids=ids, **options).logits
    return logits[:, -1]
