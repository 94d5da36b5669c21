"""Apply a head set to a model for as long as a context lasts, whatever runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from headcount.errors import HeadcountError
from headcount.heads import as_gates
from headcount.models.gate import gating
from headcount.models.model import Model, wrap


def as_model(model: Any) -> Model:
    """A `Model` as it is; a Hugging Face model or pipeline, wrapped."""
    if isinstance(model, Model):
        return model
    tokenizer = getattr(model, "tokenizer", None)
    inner = model if isinstance(model, nn.Module) else getattr(model, "model", None)
    if not isinstance(inner, nn.Module):
        raise HeadcountError(
            f"Cannot gate a {type(model).__name__}: give a model of headcount or of Hugging Face, "
            "or a pipeline."
        )
    return wrap(inner, tokenizer)


@contextmanager
def gated(model: Any, heads: Any) -> Iterator[Model]:
    """Switch heads off in a model, a Hugging Face model or a pipeline, inside this context.

    `heads` is a list of heads that are off (`Head` or "3.4"), or one gate for each head. Everything
    that runs the model inside, such as `generate` or a pipeline, runs it gated; afterwards nothing
    is left behind.

    >>> from headcount import gated, load_model
    >>> model = load_model("smollm2-135m")
    >>> ids = model.tokenizer("The capital of France is", return_tensors="pt").input_ids
    >>> with gated(model, ["0.0", "0.1"]):
    ...     text = model.module.generate(ids, max_new_tokens=4, do_sample=False)
    """
    wrapped = as_model(model)
    gates = as_gates(heads, wrapped.layout)
    if len(gates) != 1:
        raise HeadcountError(f"Give the gates of one head set here, not of {len(gates)}.")
    with gating(wrapped.module, wrapped.sites, torch.from_numpy(gates)):
        yield wrapped
