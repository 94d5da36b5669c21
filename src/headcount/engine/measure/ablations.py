"""Ablations: what an absent head says instead of its own output.

zero        nothing
mean        its mean output over the corrupted prompts of the ranking split: position by position
            within one template and length where that part has such prompts for every example,
            otherwise over all positions
corrupted   its output on the example's corrupted prompt, position by position
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
from headcount.errors import unknown
from headcount.models.gate import PerSite
from headcount.models.memory import within_memory
from headcount.models.model import Model
from headcount.system.files import digest
from headcount.tasks.encoding import Encoded, require_corrupted

AblationName = Literal["zero", "mean", "corrupted"]


@dataclass(frozen=True)
class Ablation:
    """A ablation that is ready for the examples it was made for.

    `identity` goes into the store's key; `description` is what reports print.
    """

    name: str
    description: str
    identity: str
    provide: Callable[[Batch], PerSite | None] = field(repr=False)


def make_ablation(
    name: str, model: Model, examples: Sequence[Encoded], ranking: Sequence[Encoded], tokens: int
) -> Ablation:
    """Make a ablation for `examples`; the mean is taken over `ranking`."""
    if name not in get_args(AblationName):
        raise unknown("ablation", name, get_args(AblationName))
    if name == "zero":
        return Ablation("zero", "zero", "zero", lambda batch: None)
    if name == "corrupted":
        require_corrupted(examples)

        def provide(batch: Batch) -> PerSite:
            rows, size = [examples[place] for place in batch.examples], batch.ids.numel()
            (corrupted,) = make_batches(rows, tokens=size, device=model.device, corrupted=True)
            return head_outputs(model, corrupted)

        return Ablation(
            "corrupted", "the head's output on the corrupted prompt", "corrupted", provide
        )
    return _mean(model, examples, ranking, tokens)


@torch.no_grad()
def head_outputs(model: Model, batch: Batch) -> list[Float[Tensor, "rows tokens width"]]:
    """Every site's z on a batch."""
    outputs: list[Tensor] = []
    with measuring(model), reading(model, lambda _, z: outputs.append(z.clone())):
        score(model, batch)
    return outputs


Form = tuple[str, int]  # template and length


def form(prompt: Encoded, corrupted: bool) -> Form:
    """What prompts have in common that a mean by position is taken over."""
    ids = prompt.corrupted if corrupted and prompt.corrupted is not None else prompt.prompt
    return prompt.example.template, len(ids) + len(prompt.target) - 1


def _mean(
    model: Model, examples: Sequence[Encoded], ranking: Sequence[Encoded], tokens: int
) -> Ablation:
    """Average over the ranking split, per position where every example has its like there."""
    there = {form(one, corrupted=True) for one in ranking}
    wanted = {form(one, corrupted=False) for one in examples}
    by_position = all(template for template, _ in wanted) and wanted <= there

    def average(tokens: int) -> dict[Form, list[Tensor]]:
        sums: dict[Form, list[Tensor]] = {}
        counts: dict[Form, int] = {}
        for batch in make_batches(ranking, tokens=tokens, device=model.device, corrupted=True):
            outputs = head_outputs(model, batch)
            for row, example in enumerate(batch.examples):
                key = form(ranking[example], corrupted=True) if by_position else ("", 0)
                z = [o[row].float() for o in outputs]  # (tokens, width) at each site
                z = z if by_position else [o.sum(0, keepdim=True) for o in z]
                counts[key] = counts.get(key, 0) + (1 if by_position else outputs[0].shape[1])
                sums[key] = [a + b for a, b in zip(sums[key], z, strict=True)] if key in sums else z
        return {key: [total / counts[key] for total in totals] for key, totals in sums.items()}

    @cache  # computed when first needed: where the store knows all values, it is not
    def means() -> dict[Form, list[Tensor]]:
        longest = max(form(one, corrupted=True)[1] for one in ranking)
        return within_memory(model, average, tokens, longest)

    def provide(batch: Batch) -> PerSite:
        if not by_position:
            return [mean[None] for mean in means()["", 0]]  # (1, 1, width)
        rows = [means()[form(examples[e], corrupted=False)] for e in batch.examples]
        return [torch.stack(site) for site in zip(*rows, strict=True)]

    prompts = "corrupted prompts" if any(one.corrupted for one in ranking) else "prompts"
    where = "per position within one template and length" if by_position else "over all positions"
    grouped = [(one.key, one.example.template if by_position else "") for one in ranking]
    keys = digest(json.dumps(grouped))
    return Ablation(
        "mean",
        f"mean over {len(ranking)} {prompts} of the ranking split, {where}",
        f"mean {'by position' if by_position else 'over all'} {keys}",
        provide,
    )
