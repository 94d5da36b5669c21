"""The text that a model writes under head sets, handed on token by token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from headcount.engine.measure.forward import measuring
from headcount.engine.write.decode import end_tokens, generate
from headcount.engine.write.prefix import Prefix
from headcount.engine.write.settings import Decoding
from headcount.engine.write.steps import Steps
from headcount.explorer.inquiries import Inquiry
from headcount.explorer.prompts import PromptPasses
from headcount.models.gate import Ablations, gating
from headcount.tasks.encoding import decoded

Say = Callable[[list[list[str]]], None]  # is given the tokens of every text so far


@dataclass
class AblatedPrefix(Prefix):
    """An empty prefix, under whose gates heads give an ablation that is the same at all tokens."""

    ablations: Ablations | None = None

    def gating(
        self, sets: Int[np.ndarray, "rows"], *, prompt: bool
    ) -> AbstractContextManager[None]:
        """Gate each row by its head set."""
        if self.gates is None:
            return super().gating(sets, prompt=prompt)
        gates = torch.from_numpy(self.gates[sets])
        return gating(self.model.module, self.model.sites, gates, ablations=self.ablations)


class _HeldUpError(Exception):
    """Something more urgent waits, and the gates must be off the model before it is done."""


def write(
    passes: PromptPasses,
    gates: Float[np.ndarray, "sets heads"],
    new: int,
    say: Say,
    inquiry: Inquiry,
) -> list[list[str]]:
    """Continue the prompt under each head set; returns the tokens of each text.

    `say` is called after every token where the model is proven to decode with its key/value cache,
    else once. It may raise, which ends the writing. Between two tokens the inquiry pauses for what
    is more urgent; then the writing goes on from the tokens that are there.
    """
    model, prompt = passes.model, passes.encoded.prompt
    model.check_room(len(prompt), new)
    ends = end_tokens(model)
    ids: list[list[int]] = [[] for _ in gates]
    over = [False] * len(gates)

    def ended(going: list[list[int]]) -> list[bool]:
        rows = [row for row, end in enumerate(over) if not end]
        for row, text in zip(rows, going, strict=True):
            over[row] = text[-1] in ends
            ids[row] += [text[-1]] * (not over[row])
        say(pieces(passes, ids))
        if inquiry.held_up:
            raise _HeldUpError
        return [over[row] for row in rows]

    prefix = AblatedPrefix(model, gates, (), ungated=False, ablations=passes.ablations)
    if model.fast_paths.cache:
        while rows := [row for row, end in enumerate(over) if not end]:
            left = new - len(ids[rows[0]])  # unfinished texts are equally long
            if not left:
                break
            try:
                with measuring(model, len(prompt)):
                    steps = Steps(prefix, Decoding(max_new_tokens=left), ended)
                    steps.run([(*prompt, *ids[row]) for row in rows], rows)
                break
            except _HeldUpError:
                inquiry.pause()
    else:
        with prefix.gating(np.arange(len(gates)), prompt=True):
            texts = generate(model, [prompt] * len(gates), max_new_tokens=new, progress=False)
        ids = [[token for token in text.ids if token not in ends] for text in texts]
        say(pieces(passes, ids))
    return pieces(passes, ids)


def pieces(passes: PromptPasses, texts: Sequence[Sequence[int]]) -> list[list[str]]:
    """The text that each token adds: some tokens hold only a part of a character."""
    told = []
    for ids in texts:
        parts: list[str] = []
        before = ""
        for end in range(1, len(ids) + 1):
            now = decoded(passes.model.tokenizer, tuple(ids[:end]))
            whole = now.rstrip("\ufffd")
            parts.append(whole[len(before) :])
            before = max(before, whole, key=len)
        told.append(parts)
    return told
