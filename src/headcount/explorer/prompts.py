"""One prompt in an explorer: its tokens, and what comes next under head sets.

The pass of the whole model is recorded once for each prompt. A head set then runs from its first
gated head on, so that the answer to a click comes at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.engine.measure.ablations import make_ablation
from headcount.engine.measure.batch import Batch, make_batches
from headcount.engine.measure.forward import check_finite, measuring
from headcount.engine.measure.measuring import first_sites
from headcount.engine.measure.plan import Plan, default_tokens
from headcount.engine.measure.runner import Runner
from headcount.errors import HeadcountError
from headcount.explorer.state import ExplorerState
from headcount.models.gate import Ablations
from headcount.models.model import Model
from headcount.tasks import Encoded, Example, Task
from headcount.tasks.encoding import continuation_ids, decoded, one_bos
from headcount.tasks.task import HALF_PAIR, NOT_UNICODE, quoted

MOST_TOKENS = 256  # of a prompt
MOST_CHARACTERS = 4000  # of a prompt: a longer one is not even cut into tokens
MOST_TEXT = 200  # characters of an answer
MOST_FOILS = 8
SHOWN = 10  # next tokens


@dataclass(frozen=True, eq=False)
class PromptPasses:
    """The passes of a model over one prompt, under one ablation."""

    model: Model
    encoded: Encoded
    target: int | None  # the first token of the right answer
    foils: tuple[int, ...]  # the first tokens of wrong answers
    ablation: str = "zero"
    ranking: Sequence[Encoded] = ()  # over which a mean is taken

    @classmethod
    def of(cls, model: Model, state: ExplorerState, task: Task | None) -> PromptPasses:
        """The passes over the prompt of a state; refuses a prompt that cannot be read."""
        encoded, answers = read_prompt(model, state)
        ranking: list[Encoded] = []
        if state.ablation == "mean":
            if task is None:
                raise HeadcountError(
                    "A mean is taken over the prompts of a task: start with a task, or choose the "
                    "zero ablation."
                )
            ranking = model.encode(task.split("ranking"))
        elif state.ablation == "corrupted" and encoded.corrupted is None:
            raise HeadcountError(
                "The ablation corrupted needs a corrupted prompt beside the prompt: write one, of "
                "as many tokens."
            )
        return cls(model, encoded, *answers, state.ablation, ranking)

    @cached_property
    def batch(self) -> Batch:
        """The prompt as a batch of one row."""
        (batch,) = make_batches([self.encoded], tokens=1 << 60, device=self.model.device)
        return batch

    @cached_property
    def ablations(self) -> Ablations | None:
        """What gated heads give instead of their outputs."""
        tokens = default_tokens(self.model)
        made = make_ablation(self.ablation, self.model, [self.encoded], self.ranking, tokens)
        return made.provide(self.batch)

    @cached_property
    def _runner(self) -> Runner:
        plan = Plan(default_tokens(self.model), self.model.fast_paths, fold=True)
        return Runner(self.model, self.batch, plan, self.ablations)

    @cached_property
    def whole(self) -> Float[np.ndarray, "vocab"]:
        """The log-probabilities of the next token, from the whole model."""
        with torch.no_grad(), measuring(self.model, self.encoded.length):
            scored = self._runner.whole(range(len(self.model.sites)))
        return np.asarray(self._logprobs(scored.logits)[0])

    @torch.no_grad()
    def under(self, gates: Float[np.ndarray, "sets heads"]) -> Float[np.ndarray, "sets vocab"]:
        """The log-probabilities of the next token under each head set."""
        rows = [self.whole] * len(gates)
        starts = first_sites(gates, self.model.layout)
        gated = [row for row, start in enumerate(starts) if start < len(self.model.sites)]
        if gated:
            start = min(starts[row] for row in gated)
            with measuring(self.model, self.encoded.length):
                scored = self._runner.under(torch.from_numpy(gates[gated]), start)
            for row, logprobs in zip(gated, self._logprobs(scored.logits), strict=True):
                rows[row] = logprobs
        return np.stack(rows)

    def _logprobs(self, logits: Float[Tensor, "rows 1 vocab"]) -> Float[np.ndarray, "rows vocab"]:
        check_finite(logits, self.model)
        return np.asarray(logits[:, 0].float().log_softmax(-1).cpu())

    def table(
        self,
        under: Float[np.ndarray, "vocab"],
        controls: Float[np.ndarray, "draws vocab"],
    ) -> dict[str, Any]:
        """The likeliest next tokens and the answers, each with its probabilities."""
        columns = [self.whole, under, *controls]
        roles = {} if self.target is None else {self.target: "target"}
        roles |= dict.fromkeys(self.foils, "foil")
        named = dict.fromkeys(roles)
        for logprobs in columns[:2]:
            named |= dict.fromkeys(np.argsort(-logprobs)[:SHOWN].tolist())
        rows = [
            {
                "id": token,
                "token": self.text_of(token),
                "role": roles.get(token, ""),
                "whole": float(np.exp(self.whole[token])),
                "set": float(np.exp(under[token])),
                "random": [float(np.exp(control[token])) for control in controls],
            }
            for token in named
        ]
        return {
            "rows": rows,
            "difference": [self._difference(column) for column in columns],
            "divergence": [0.0, *(_divergence(self.whole, column) for column in columns[1:])],
        }

    def text_of(self, token: int) -> str:
        """One token as text."""
        return decoded(self.model.tokenizer, (token,))

    @cached_property
    def tokens(self) -> list[str]:
        """The prompt's tokens as texts."""
        return [self.text_of(token) for token in self.encoded.prompt]

    def _difference(self, logprobs: Float[np.ndarray, "vocab"]) -> float | None:
        """The logit of the target minus the highest of the foils; None without these."""
        if self.target is None or not self.foils:
            return None
        return float(logprobs[self.target] - logprobs[list(self.foils)].max())


def _divergence(whole: Float[np.ndarray, "vocab"], other: Float[np.ndarray, "vocab"]) -> float:
    """The Kullback–Leibler divergence of the whole model's next token from another's, in nats."""
    return max(0.0, float((np.exp(whole) * (whole - other)).sum()))


Answers = tuple[int | None, tuple[int, ...]]  # the target's first token, and those of the foils


def read_prompt(model: Model, state: ExplorerState) -> tuple[Encoded, Answers]:
    """The prompt of a state and its answers, which count by their first tokens."""
    if model.tokenizer is None:
        raise HeadcountError(f"{model.name} has no tokenizer to read a prompt with.")
    prompt = _prompt_ids(model, state.prompt, "The prompt")
    texts = [text for text in (state.target, *state.foils) if text]
    if len(state.foils) > MOST_FOILS:
        raise HeadcountError(f"Give at most {MOST_FOILS} foils, not {len(state.foils)}.")
    if any(len(text) > MOST_TEXT for text in texts):
        raise HeadcountError(f"An answer has at most {MOST_TEXT} characters: shorten it.")
    first = {text: continuation_ids(model.tokenizer, text)[0] for text in texts}
    model.check_known([*first.values()], "An answer")
    target = first.get(state.target)
    foils = tuple(dict.fromkeys(first[text] for text in state.foils if text))
    if target in foils:
        raise HeadcountError(
            f"The target {quoted(state.target)} and a foil start with the same token, so the next "
            "token cannot tell them apart: choose another foil."
        )
    corrupted = None
    if state.corrupted and state.ablation == "corrupted":
        corrupted = _prompt_ids(model, state.corrupted, "The corrupted prompt")
        if len(corrupted) != len(prompt):
            raise HeadcountError(
                f"The corrupted prompt has {len(corrupted)} tokens and the prompt {len(prompt)}: "
                "give it as many."
            )
    example = Example("prompt", state.prompt, state.target or "?")
    # Only the next token is read, so any one token may stand for the target.
    return Encoded(example, prompt, (prompt[-1],), (), corrupted), (target, foils)


def _prompt_ids(model: Model, text: str, what: str) -> tuple[int, ...]:
    if len(text) > MOST_CHARACTERS:
        raise HeadcountError(
            f"{what} has {len(text):,} characters, and the explorer reads at most "
            f"{MOST_CHARACTERS:,}: shorten it."
        )
    if HALF_PAIR.search(text):
        raise HeadcountError(f"{what} is {NOT_UNICODE}: write it as Unicode text.")
    ids = one_bos(model.tokenizer, tuple(map(int, model.tokenizer.encode(text))))
    if not ids:
        raise HeadcountError(f"{what} has no tokens: write at least one word.")
    most = min(MOST_TOKENS, model.context_limit or MOST_TOKENS)
    if len(ids) > most:
        raise HeadcountError(
            f"{what} has {len(ids)} tokens, and the explorer reads at most {most}: shorten it."
        )
    model.check_known(ids, what)
    return ids
