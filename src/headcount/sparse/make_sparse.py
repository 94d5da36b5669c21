"""Give a model sparse attention, prove that the model uses it, and count its open edges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn

from headcount.errors import HeadcountError
from headcount.models.sites import coarsest_dtype, plain, probe_prompt, run
from headcount.models.slices import tolerance
from headcount.sparse.attention import SPARSE, Draw, noting_calls, register
from headcount.system.transformers_compat import (
    attention_configs,
    kernel_of,
    other_attention,
    set_kernel,
)

OPEN = 1e4  # a gate bias that opens every edge: scores are far smaller


def sparse_configs(module: nn.Module) -> list[Any]:
    """The configs of a model and its parts that choose sparse attention; empty if it is dense."""
    return [config for config in attention_configs(module) if kernel_of(config) == SPARSE]


def gate_bias(module: nn.Module) -> float | None:
    """The gate bias of a sparse model; None for a dense model."""
    return next((config.gate_bias for config in sparse_configs(module)), None)


def dense_attention(module: nn.Module) -> AbstractContextManager[None]:
    """Run a sparse model with its former, dense kernel inside this context."""
    return other_attention(
        module, lambda config, kernel: config.dense_kernel if kernel == SPARSE else kernel
    )


def make_sparse(module: nn.Module, bias: float = 0.0) -> list[nn.Module]:
    """Run `module` with sparse attention from now on; returns its attention modules.

    As a proof, the logits with every edge open must equal those of the dense model. A model that
    does not use transformers' attention interface is refused by name.
    """
    register()
    name = type(plain(module)).__name__
    if sparse_configs(module):
        raise HeadcountError(f"{name} has sparse attention already: give the dense model.")
    configs = attention_configs(module)
    ids = probe_prompt(module, 2).clone()
    ids[1] = ids[1].flip(0)
    dense = run(module, ids).float()
    calls: list[nn.Module] = []
    try:
        for config in configs:
            config.gate_bias, config.dense_kernel = OPEN, kernel_of(config)
            set_kernel(config, SPARSE)
        with noting_calls(calls):
            opened = run(module, ids).float()
        if not calls:
            raise HeadcountError(
                f"{name} cannot be made sparse: it does not use transformers' attention interface, "
                "through which sparse attention enters a model."
            )
        differs = float((opened - dense).abs().max() / dense.abs().max())
        if not differs <= 10 * tolerance(coarsest_dtype(module)):
            raise HeadcountError(
                f"{name} cannot be made sparse: with every edge open its logits differ from the "
                f"dense model's by {differs:.1e} of the largest."
            )
    except BaseException as error:
        make_dense(module)
        if isinstance(error, HeadcountError) or not isinstance(error, Exception):
            raise
        raise HeadcountError(
            f"{name} does not run with sparse attention ({type(error).__name__}: {error}), so it "
            "cannot be made sparse."
        ) from error
    for config in configs:
        config.gate_bias = float(bias)
    return list(dict.fromkeys(calls))


def make_dense(module: nn.Module) -> None:
    """Undo `make_sparse`."""
    for config in sparse_configs(module):
        set_kernel(config, config.dense_kernel)
        del config.gate_bias, config.dense_kernel


@contextmanager
def drawing(
    attentions: Sequence[nn.Module], bias: float = 0.0, pressure: float = 0.0
) -> Iterator[list[Draw]]:
    """Give every attention a `Draw`, which sets its gates and counts its edges, in this context."""
    draws = []
    try:
        for attention in attentions:
            device = next(attention.parameters()).device
            first, spread = torch.full((), bias, device=device), torch.ones((), device=device)
            draws.append(Draw(first, spread, pressure=pressure))
            attention.sparse_draw = draws[-1]  # type: ignore[assignment]
        yield draws
    finally:
        for attention in attentions:
            attention.__dict__.pop("sparse_draw", None)


def attentions_of(module: nn.Module) -> list[nn.Module]:
    """The modules of a sparse model that run sparse attention, in their order."""
    calls: list[nn.Module] = []
    with noting_calls(calls):
        run(module, probe_prompt(module, 1))
    return list(dict.fromkeys(calls))
