"""Gate a model's heads for whatever runs inside a context: masks, ablations, steering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.heads import as_gates
from headcount.models.gate import gating
from headcount.models.model import Model, wrap
from headcount.models.sites import HeadSite


@contextmanager
def gated(
    model: Any, heads: Any = (), *, ablations: Any = None, biases: Any = None
) -> Iterator[Model]:
    """Gate the heads of a model, a Hugging Face model or a pipeline, inside this context.

    Each head's output z becomes g·z + b. `heads` names the heads whose g is 0 (names, `Head`s or a
    `HeadSet`), or gives g for each head. `ablations` are what absent heads say instead, so that
    b = (1 − g)·ablation; without them b is 0. `biases` are b itself: with no heads off they steer.
    Both are a dict of vectors by head, {"3.4": vector}, in which heads that are not named have
    zeros, or one array per layer that broadcasts to (rows, tokens, heads, size). Mean ablation is
    `ablations=[z.mean(0) for z in collect(model, ids, positions, mean=True)]`.

    Everything that runs the model inside, such as `generate` or a pipeline, runs it gated;
    afterwards nothing is left behind.

    >>> from headcount import gated, load_model
    >>> model = load_model("smollm2-135m-q4")
    >>> ids = model.tokenizer("The capital of France is", return_tensors="pt").input_ids
    >>> with gated(model, ["0.0", "0.1"]):
    ...     text = model.module.generate(ids, max_new_tokens=4, do_sample=False)
    >>> with gated(model, biases={"3.4": torch.ones(64)}):  # steering
    ...     logits = model.module(ids).logits
    """
    wrapped = _as_model(model)
    gates = torch.from_numpy(as_gates(heads, wrapped.layout)[None])
    if ablations is not None and biases is not None:
        raise HeadcountError("Give ablations or biases, not both: biases are b itself.")
    z0 = None if ablations is None else _per_site(wrapped, ablations, "ablations")
    b = None if biases is None else _per_site(wrapped, biases, "biases")
    with gating(wrapped.module, wrapped.sites, gates, ablations=z0, biases=b):
        yield wrapped


def _per_site(model: Model, given: Any, what: str) -> list[Tensor | None]:
    """The vectors given to `gated` in the form of `gating`: a tensor or None for each site."""
    by_layer: dict[int, Any] = {}
    if not isinstance(given, Mapping | Sequence):
        raise HeadcountError(
            f"Give {what} as a dict by head, or as a list with an array per layer."
        )
    if isinstance(given, Mapping):
        for name, vector in given.items():
            head = model.layout.parse(str(name))
            site = model.sites[head.layer]
            values = torch.as_tensor(vector, dtype=torch.float32)
            if values.shape[-1:] != (site.size,):
                raise HeadcountError(
                    f"The {what} of head {head} need {site.size} numbers, the head's size, not "
                    f"shape {tuple(values.shape)}."
                )
            zeros = torch.zeros(*values.shape[:-1], site.heads, site.size)
            by_layer.setdefault(head.layer, zeros)
            if by_layer[head.layer].shape != zeros.shape:
                raise HeadcountError(f"Give equally shaped {what} for all heads of a layer.")
            by_layer[head.layer][..., head.index, :] = values
    elif len(given) == len(model.sites):
        by_layer = dict(enumerate(given))
    else:
        raise HeadcountError(
            f"Give {what} as a dict by head or as one array for each of the {len(model.sites)} "
            f"attention layers, not {len(given)} of them."
        )
    return [_at_site(site, by_layer.get(site.index), what) for site in model.sites]


def _at_site(site: HeadSite, given: Any, what: str) -> Tensor | None:
    """Values of (rows, tokens, heads, size), or of their last axes, as (rows, tokens, width)."""
    if given is None:
        return None
    values = torch.as_tensor(given, dtype=torch.float32)
    if values.shape[-2:] != (site.heads, site.size) or values.ndim > 4:
        raise HeadcountError(
            f"The {what} of layer {site.index} need a shape that ends in {site.heads} heads of "
            f"size {site.size}, after at most rows and tokens, not {tuple(values.shape)}."
        )
    if not values.isfinite().all():
        raise HeadcountError(f"The {what} of layer {site.index} are not all finite numbers.")
    values = values.reshape(*(1,) * (4 - values.ndim), *values.shape).flatten(-2)
    whole = values.new_zeros(*values.shape[:-1], site.width)
    whole[..., site.span] = values
    return whole


def _as_model(model: Any) -> Model:
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
