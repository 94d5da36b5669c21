"""Decoding under gates: greedy or sampled, each row under its own head set.

The model's own `generate` does the decoding; gates act inside it. Sampling adds to each row's
logits Gumbel noise from a generator of that row's own and takes the largest, which draws from the
same distribution as usual and does not depend on what else is in the batch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal, get_args

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.engine.forward import measuring
from headcount.engine.plan import default_tokens
from headcount.errors import HeadcountError, did_you_mean
from headcount.heads import as_gates
from headcount.models.gate import Passes, gating
from headcount.models.model import Model
from headcount.models.sites import plain
from headcount.progress import progress as progress_bar

Scope = Literal["all", "decode"]


@dataclass(frozen=True)
class Generation:
    """What a model wrote after one prompt."""

    ids: tuple[int, ...]
    text: str
    finished: bool  # an end was reached; False where the limit cut the text


def generate(
    model: Model,
    prompts: Sequence[str] | Sequence[Sequence[int]],
    heads: Any = None,
    *,
    max_new_tokens: int = 128,
    scope: Scope = "all",
    temperature: float = 0.0,
    top_p: float = 1.0,
    seed: int = 0,
    stop: Sequence[str] = (),
    rows: int | None = None,
    progress: bool = True,
) -> list[Generation]:
    """Let the model continue each prompt under a head set.

    `heads` is a list of heads that are off, or gates: one row for all prompts or one for each.
    Scope "all" gates prompt and new tokens; "decode" gates only the passes over single new tokens,
    so the first new token comes from the whole model. Temperature 0 is greedy. Text from one of the
    `stop` strings on is cut off.

    >>> from headcount import generate, load_model
    >>> model = load_model("smollm2-135m")
    >>> generate(model, ["The capital of France is"], max_new_tokens=1)[0].text
    ' Paris'
    """
    if scope not in get_args(Scope):
        raise HeadcountError(
            f'There is no scope "{scope}" (known: {", ".join(get_args(Scope))}).'
            f"{did_you_mean(scope, get_args(Scope))}"
        )
    if max_new_tokens < 1:
        raise HeadcountError(f"Ask for at least one new token, not {max_new_tokens}.")
    if temperature < 0 or not 0 < top_p <= 1:
        raise HeadcountError("The temperature must be at least 0, and top_p above 0 and at most 1.")
    ids = [_ids(model, prompt) for prompt in prompts]
    gates = None
    if heads is not None:
        gates = as_gates(heads, model.layout)
        if len(gates) not in (1, len(ids)):
            raise HeadcountError(
                f"Give one row of gates or one for each of the {len(ids)} prompts, not "
                f"{len(gates)}."
            )
        gates = np.broadcast_to(gates, (len(ids), model.layout.total))
    results: dict[int, Generation] = {}
    sampler = None if temperature == 0 else (temperature, top_p, seed)
    with progress_bar("decoding", len(ids), show=progress, unit="prompt") as bar, measuring(model):
        for batch in _batches(model, ids, rows or _rows(model, ids, max_new_tokens)):
            chosen = None if gates is None else torch.from_numpy(gates[batch].copy())
            texts = _decode(
                model, [ids[i] for i in batch], chosen, max_new_tokens, scope, sampler, stop
            )
            results.update(zip(batch, texts, strict=True))
            bar.update(len(batch))
    return [results[place] for place in range(len(ids))]


def _ids(model: Model, prompt: str | Sequence[int]) -> tuple[int, ...]:
    found = tuple(model.tokenizer.encode(prompt)) if isinstance(prompt, str) else tuple(prompt)
    if not found:
        raise HeadcountError("A prompt has no tokens: write at least one word.")
    return found


def _rows(model: Model, ids: Sequence[Sequence[int]], new: int) -> int:
    """Decoding reads all weights for each token: many rows at once, while their caches fit."""
    return max(1, 16 * default_tokens(model) // (max(map(len, ids)) + new))


def _batches(model: Model, ids: Sequence[Sequence[int]], rows: int) -> list[list[int]]:
    """Prompts of like length together, so that there is little padding.

    Where a model does not bear padding on the left, only prompts of one length go together.
    """
    order = sorted(range(len(ids)), key=lambda place: (-len(ids[place]), place))
    alike = [order]
    if len({len(prompt) for prompt in ids}) > 1 and not model.pads("left"):
        alike = [list(group) for _, group in groupby(order, key=lambda place: len(ids[place]))]
    return [group[start : start + rows] for group in alike for start in range(0, len(group), rows)]


@torch.no_grad()
def _decode(
    model: Model,
    prompts: Sequence[tuple[int, ...]],
    gates: Float[Tensor, "rows heads"] | None,
    new: int,
    scope: Scope,
    sampler: tuple[float, float, int] | None,
    stop: Sequence[str],
) -> list[Generation]:
    from transformers import GenerationConfig, LogitsProcessorList

    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):  # padding on the left: all rows go on at the same place
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    module: Any = plain(model.module)
    ends = _ends(model)
    settings = GenerationConfig(
        max_new_tokens=new,
        do_sample=False,
        eos_token_id=sorted(ends) or None,
        pad_token_id=min(ends, default=0),
    )
    processors = LogitsProcessorList()
    if sampler is not None:
        processors.append(_Sampling(prompts, width, *sampler))
    extra: dict[str, Any] = {}
    if stop:
        extra = {"stop_strings": list(stop), "tokenizer": model.tokenizer}
    with ExitStack() as stack:
        if gates is not None:
            passes: Passes = "single tokens" if scope == "decode" else "all"
            stack.enter_context(gating(module, model.sites, gates, passes=passes))
        output = module.generate(
            ids.to(model.device),
            attention_mask=mask.to(model.device),
            generation_config=settings,
            logits_processor=processors,
            **extra,
        )
    return [_generation(model, row[width:].tolist(), ends, stop) for row in output.cpu()]


def _ends(model: Model) -> set[int]:
    """Token ids that end a text, by the model's own settings and its tokenizer."""
    config = getattr(plain(model.module), "generation_config", None)
    ends = getattr(config, "eos_token_id", None)
    found = set(ends if isinstance(ends, list | tuple) else [ends])
    found.add(getattr(model.tokenizer, "eos_token_id", None))
    return {int(end) for end in found if end is not None}


def _generation(model: Model, ids: list[int], ends: set[int], stop: Sequence[str]) -> Generation:
    place = next((i for i, token in enumerate(ids) if token in ends), None)
    finished = place is not None
    ids = ids if place is None else ids[:place]
    text = model.tokenizer.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    cuts = [text.index(string) for string in stop if string in text]
    if cuts:
        text, finished = text[: min(cuts)], True
    return Generation(tuple(ids), text, finished)


class _Sampling:
    """Turns greedy decoding into sampling, with one generator for each row."""

    def __init__(
        self,
        prompts: Sequence[tuple[int, ...]],
        width: int,
        temperature: float,
        top_p: float,
        seed: int,
    ) -> None:
        self.temperature, self.top_p = temperature, top_p
        self.generators = [_generator(prompt, seed) for prompt in prompts]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.float() / self.temperature
        if self.top_p < 1:
            ranked, order = scores.sort(descending=True, dim=-1)
            before = ranked.softmax(-1).cumsum(-1) - ranked.softmax(-1)  # mass of likelier tokens
            scores = scores.masked_fill(
                (before >= self.top_p).gather(-1, order.argsort(-1)), -torch.inf
            )
        uniform = torch.stack(
            [torch.rand(scores.shape[-1], generator=generator) for generator in self.generators]
        )
        noise = -(-uniform.clamp(min=1e-20).log()).clamp(min=1e-20).log()
        return scores + noise.to(scores.device)


def _generator(prompt: tuple[int, ...], seed: int) -> torch.Generator:
    """Of a prompt and a seed: the same prompt draws the same, whatever is beside it."""
    digest = hashlib.sha256(f"{seed} {prompt}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big", signed=True))
