"""One plain forward pass, from a batch to the logits that are scored."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from headcount.engine.measure.batch import Batch
from headcount.errors import HeadcountError
from headcount.metrics.logits import Scored
from headcount.models.forward_modes import exactly, scored_logits
from headcount.models.memory import out_of_memory, release_slots
from headcount.models.model import Model
from headcount.models.sites import accepted


@contextmanager
def measuring(model: Model, tokens: int = 0) -> Iterator[None]:
    """Evaluation mode and full float32 products inside; the previous modes are restored afterwards.

    `tokens` is the length of the longest prompt, if it is known. Enter this context before gating:
    it first tests whether the unchanged model can compute the scored logits only.
    """
    _ = model.scores_alone
    with exactly(model.module, tokens):
        yield


@contextmanager
def frozen(model: Model) -> Iterator[None]:
    """Compute no gradients of the weights inside, which saves memory: only the gates need them."""
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
    only_scored = model.scores_alone
    with (
        scored_logits(model.module, count) if only_scored else nullcontext(),
        # A model that the user has compiled would ignore hooks that are registered afterwards.
        torch.compiler.set_stance("force_eager"),
    ):
        output = model.module(input_ids=batch.ids, **accepted(model.module, use_cache=False))
    logits: Tensor = output.logits  # (rows, tokens or scored, vocab)
    if not only_scored:
        at = batch.scored[..., None].expand(-1, -1, logits.shape[-1])
        logits = logits.gather(1, at)
    return Scored(logits, batch.targets, batch.foils, batch.also)


def fits(model: Model, work: Callable[[], object]) -> bool:
    """Do some work, and tell whether it fitted into memory.

    The exception holds references to what the failed pass had allocated, so that memory is freed
    only when this function returns.
    """
    try:
        work()
        return True
    except RuntimeError as error:
        if not out_of_memory(error):
            raise
    released = release_slots(model)
    if model.device.type == "cuda":
        torch.cuda.empty_cache()
    return released and fits(model, work)


def check_finite(values: Tensor, model: Model) -> None:
    """Refuse NaN and infinite values, which would spoil every average that includes them."""
    if not values.isfinite().all():
        raise HeadcountError(
            f"{model.name} gave logits that are not finite numbers (NaN or infinite): load it in "
            "another dtype (float32 is safest), or check its weights and the gates."
        )
