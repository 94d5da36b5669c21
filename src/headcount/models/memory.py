"""Run with fewer tokens at once where a pass does not fit into memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

from headcount.errors import HeadcountError
from headcount.models.gate import require_one_process
from headcount.models.model import SLOTS, Model

Result = TypeVar("Result")


def out_of_memory(error: Exception) -> bool:
    """Whether a device or the machine ran out of memory."""
    text = str(error).lower()
    return (
        isinstance(error, torch.OutOfMemoryError)
        or "can't allocate memory" in text
        or "out of memory" in text
    )


def release_slots(model: Model) -> bool:
    """Let go of the slots of the last decoding, which are kept for the next; whether there were."""
    return vars(model).pop(SLOTS, None) is not None


def too_large(model: Model, length: int) -> HeadcountError:
    """The error for a model that cannot run even one sequence in this memory."""
    return HeadcountError(
        f"There is not enough memory to run {model.name} on a single example of {length} tokens: "
        "use a smaller dtype or a larger device."
    )


def within_memory(model: Model, work: Callable[[int], Result], tokens: int, longest: int) -> Result:
    """The result of `work(tokens)`; `tokens` is halved while a pass does not fit into memory.

    The longest sequence has `longest` tokens, so a pass cannot have fewer.
    """
    while True:
        try:
            return work(tokens)
        except RuntimeError as error:
            if not out_of_memory(error):
                raise
        if release_slots(model):
            continue
        require_one_process(model.sites, "Running fewer tokens at once, as memory is short,")
        if tokens <= longest:
            raise too_large(model, longest)
        tokens = max(longest, tokens // 2)
