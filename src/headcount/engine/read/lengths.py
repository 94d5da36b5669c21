"""Run a model on token sequences, those of one length together, without any padding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.forward import measuring
from headcount.engine.measure.plan import default_tokens
from headcount.errors import HeadcountError
from headcount.models.forward_modes import scored_logits
from headcount.models.gate import gating
from headcount.models.memory import within_memory
from headcount.models.model import Model
from headcount.models.sites import accepted
from headcount.system.progress import progress as progress_bar


def each_length(
    model: Model,
    sequences: Sequence[Sequence[int]],
    run: Callable[[list[int]], object],
    *,
    label: str,
    progress: bool,
) -> None:
    """Call `run` with the numbers of some sequences of equal length, until all have been run.

    As many at once as memory allows; where it runs out, `run` is called again with fewer.
    """
    if not sequences or not all(sequences):
        raise HeadcountError("Give at least one sequence, each with at least one token.")
    by_length: dict[int, list[int]] = {}
    for number, ids in enumerate(sequences):
        by_length.setdefault(len(ids), []).append(number)
    with (
        progress_bar(label, len(sequences), show=progress, unit="sequence") as bar,
        measuring(model),
    ):

        def work(tokens: int) -> None:
            for length, left in by_length.items():
                rows = max(1, tokens // length)
                while left:
                    run(left[:rows])
                    bar.update(len(left[:rows]))
                    del left[:rows]

        within_memory(model, work, default_tokens(model), max(by_length))


def run_through(
    model: Model,
    sequences: Sequence[Sequence[int]],
    gates: Float[np.ndarray, "heads"] | None = None,
) -> None:
    """One pass over sequences of equal length under a head set, for what hooks read on the way."""
    ids = torch.tensor([list(sequence) for sequence in sequences], device=model.device)
    with ExitStack() as stack:
        if model.short_cuts.head:
            stack.enter_context(scored_logits(model.module, 1))
        if gates is not None:
            stack.enter_context(gating(model.module, model.sites, torch.from_numpy(gates[None])))
        # A user's compiled graph does not see hooks that came after it.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        model.module(input_ids=ids, **accepted(model.module, use_cache=False))
