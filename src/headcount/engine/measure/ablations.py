"""Ablations: the output that replaces an absent head's own output.

zero        zeros
mean        the head's mean output over the corrupted prompts of the ranking split: separately for
            each template, length and position, if the ranking split has prompts of every example's
            template and length; otherwise over all prompts and positions
clean-mean  the same mean over the prompts themselves, not the corrupted ones
resampled   the head's output on one other prompt, of the ranking split and of the same template and
            length, position by position
corrupted   the head's output on the example's corrupted prompt, position by position
streaming   what the head says when it sees only the first and the most recent tokens; computed in
            every pass, so it depends on the gates before it (`streaming:SINK:WINDOW`)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor

from headcount.engine.measure.batch import Batch, make_batches
from headcount.engine.measure.forward import measuring, score
from headcount.engine.read.collect import reading
from headcount.errors import HeadcountError, unknown
from headcount.models.gate import Ablations, PerSite
from headcount.models.memory import within_memory
from headcount.models.model import Model
from headcount.models.streaming import Streaming
from headcount.system.files import digest
from headcount.tasks.encoding import Encoded, require_corrupted

AblationName = Literal["zero", "mean", "clean-mean", "resampled", "corrupted", "streaming"]
ABLATIONS: tuple[str, ...] = get_args(AblationName)
OVER_RANKING = ("mean", "clean-mean", "resampled")  # those that read the ranking split


@dataclass(frozen=True)
class Ablation:
    """An ablation for a fixed list of examples: `provide` gives the replacements for a batch.

    `identity` goes into the store's key; `description` is what reports print.
    """

    name: str
    description: str
    identity: str
    provide: Callable[[Batch], Ablations | None] = field(repr=False)


def check_ablation(name: str) -> str:
    """The ablation with all its settings; an unknown one is refused.

    >>> check_ablation("mean"), check_ablation("streaming")
    ('mean', 'streaming:16:64')
    """
    streaming = Streaming.read(name)
    if streaming is None and name not in ABLATIONS:
        raise unknown("ablation", name, ABLATIONS)
    return name if streaming is None else str(streaming)


def make_ablation(
    name: str, model: Model, examples: Sequence[Encoded], ranking: Sequence[Encoded], tokens: int
) -> Ablation:
    """Make an ablation for `examples`; a mean is taken over `ranking`, the ranking split."""
    check_ablation(name)
    if name == "zero":
        return Ablation("zero", "zero", "zero", lambda batch: None)
    if (streaming := Streaming.read(name)) is not None:
        return _streaming(model, streaming, examples)
    if name == "corrupted":
        require_corrupted(examples)

        def provide(batch: Batch) -> PerSite:
            rows, size = [examples[index] for index in batch.examples], batch.ids.numel()
            (corrupted,) = make_batches(rows, tokens=size, device=model.device, corrupted=True)
            return head_outputs(model, corrupted)

        return Ablation(
            "corrupted", "the head's output on the corrupted prompt", "corrupted", provide
        )
    if name == "resampled":
        return _resampled(model, examples, ranking)
    return _mean(model, examples, ranking, tokens, corrupted=name == "mean")


def _streaming(model: Model, streaming: Streaming, examples: Sequence[Encoded]) -> Ablation:
    """Attention to the first and the most recent tokens, on a model that is proven to allow it."""
    model.require_streaming()
    words = f"attention to the first {streaming.sink} and the last {streaming.window} tokens"
    if all(streaming.kept(example.length) == example.length for example in examples):
        words += ", which are all that these prompts have"
    return Ablation(str(streaming), words, str(streaming), lambda batch: streaming)


def _resampled(model: Model, examples: Sequence[Encoded], ranking: Sequence[Encoded]) -> Ablation:
    """Each example gets the head outputs of one ranking prompt, chosen by the example's key."""
    by_form: dict[Form, list[Encoded]] = {}
    for prompt in ranking:
        by_form.setdefault(form(prompt, corrupted=False), []).append(prompt)
    others = []
    for example in examples:
        alike = by_form.get(form(example, corrupted=False), [])
        if not alike:
            raise HeadcountError(
                "The ablation resampled needs a prompt of the same template and length in the "
                f"ranking split for every example, and {example.example.id} has none: choose mean."
            )
        others.append(alike[int(digest(example.key)[:8], 16) % len(alike)])

    def provide(batch: Batch) -> PerSite:
        rows, size = [others[index] for index in batch.examples], batch.ids.numel()
        (other,) = make_batches(rows, tokens=size, device=model.device)
        return head_outputs(model, other)

    keys = digest(json.dumps([other.key for other in others]))
    words = f"the head's output on one of {len(ranking)} other prompts of the ranking split"
    return Ablation("resampled", words, f"resampled {keys}", provide)


@torch.no_grad()
def head_outputs(model: Model, batch: Batch) -> list[Float[Tensor, "rows tokens width"]]:
    """The output z of all heads, side by side, at every site on a batch."""
    outputs: list[Tensor] = []
    with measuring(model), reading(model, lambda _, z: outputs.append(z.clone())):
        score(model, batch)
    return outputs


Form = tuple[str, int]  # template and length


def form(prompt: Encoded, corrupted: bool) -> Form:
    """The template and length of a prompt: a mean by position is taken over prompts of one form."""
    ids = prompt.corrupted if corrupted and prompt.corrupted is not None else prompt.prompt
    return prompt.example.template, len(ids) + len(prompt.target) - 1


def _mean(
    model: Model,
    examples: Sequence[Encoded],
    ranking: Sequence[Encoded],
    tokens: int,
    *,
    corrupted: bool,
) -> Ablation:
    """Average over the ranking split: by position if it has prompts of every example's form."""
    available = {form(prompt, corrupted) for prompt in ranking}
    needed = {form(prompt, corrupted=False) for prompt in examples}
    by_position = all(template for template, _ in needed) and needed <= available

    def average(tokens: int) -> dict[Form, list[Tensor]]:
        sums: dict[Form, list[Tensor]] = {}
        counts: dict[Form, int] = {}
        for batch in make_batches(ranking, tokens=tokens, device=model.device, corrupted=corrupted):
            outputs = head_outputs(model, batch)
            for row, example in enumerate(batch.examples):
                key = form(ranking[example], corrupted) if by_position else ("", 0)
                z = [o[row].float() for o in outputs]  # (tokens, width) at each site
                z = z if by_position else [o.sum(0, keepdim=True) for o in z]
                counts[key] = counts.get(key, 0) + (1 if by_position else outputs[0].shape[1])
                sums[key] = [a + b for a, b in zip(sums[key], z, strict=True)] if key in sums else z
        return {key: [total / counts[key] for total in totals] for key, totals in sums.items()}

    @cache  # computed when a batch first needs it, so never if the store holds all values
    def means() -> dict[Form, list[Tensor]]:
        longest = max(form(prompt, corrupted)[1] for prompt in ranking)
        return within_memory(model, average, tokens, longest)

    def provide(batch: Batch) -> PerSite:
        if not by_position:
            return [mean[None] for mean in means()["", 0]]  # (1, 1, width)
        rows = [means()[form(examples[e], corrupted=False)] for e in batch.examples]
        return [torch.stack(site) for site in zip(*rows, strict=True)]

    changed = corrupted and any(prompt.corrupted for prompt in ranking)
    prompts = "corrupted prompts" if changed else "prompts"
    where = "per position within one template and length" if by_position else "over all positions"
    grouped = [(p.key, p.example.template if by_position else "") for p in ranking]
    keys = digest(json.dumps(grouped))
    kind = "mean" if corrupted else "clean mean"
    return Ablation(
        "mean" if corrupted else "clean-mean",
        f"mean over {len(ranking)} {prompts} of the ranking split, {where}",
        f"{kind} {'by position' if by_position else 'over all'} {keys}",
        provide,
    )
