"""One forward pass, from a batch to the logits that are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from headcount.engine.measure.batch import Batch
from headcount.errors import HeadcountError
from headcount.metrics.logits import Scored
from headcount.models.forward_modes import exactly, scored_logits
from headcount.models.memory import out_of_memory
from headcount.models.model import Model
from headcount.models.sites import accepted


@contextmanager
def measuring(model: Model) -> Iterator[None]:
    """Evaluation mode and full float32 products inside; as it was afterwards.

    Gates and other changes are made inside this context: what the model carries is proven before.
    """
    _ = model.fast_paths
    with exactly(model.module):
        yield


@contextmanager
def frozen(model: Model) -> Iterator[None]:
    """No derivative in the weights inside: only the gates are asked for, and memory is short."""
    trained = [p for p in model.module.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def score(model: Model, batch: Batch) -> Scored:
    """Run the model on a batch and keep the logits at the positions that predict the targets."""
    count = batch.targets.shape[1]
    only_scored = model.fast_paths.head
    with (
        scored_logits(model.module, count) if only_scored else nullcontext(),
        # A user's compiled graph does not see hooks that came after it.
        torch.compiler.set_stance("force_eager"),
    ):
        output = model.module(input_ids=batch.ids, **accepted(model.module, use_cache=False))
    logits: Tensor = output.logits  # (rows, tokens or scored, vocab)
    if not only_scored:
        at = batch.scored[..., None].expand(-1, -1, logits.shape[-1])
        logits = logits.gather(1, at)
    return Scored(logits, batch.targets, batch.foils, batch.also)


def fits(model: Model, work: Callable[[], object]) -> bool:
    """Do some work, or find that it does not fit into memory.

    What the failed pass had allocated is free again when this returns, not before: the error holds
    on to it.
    """
    try:
        work()
        return True
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    return False


def check_finite(values: Tensor, model: Model) -> None:
    """Refuse values that are not numbers, which no average should ever swallow."""
    if not values.isfinite().all():
        raise HeadcountError(
            f"{model.name} gave logits that are not finite numbers (NaN or infinite): load it in "
            "another dtype (float32 is safest), or check its weights and the gates."
        )
