"""Prove that a model has derivatives in its gates, before heads are ranked by them.

Some kernels have no backward pass on some devices, quantised layers have none at all, and a kernel
that runs without recording gradients gives derivatives that lack what flows through it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from headcount.engine.measure.forward import check_finite, frozen, measuring
from headcount.errors import HeadcountError
from headcount.models.gate import gating
from headcount.models.memory import out_of_memory
from headcount.models.model import Model
from headcount.models.sites import accepted, coarsest_dtype, probe_prompt
from headcount.sparse.attention import SPARSE

WITHOUT = "ablation or patching"  # rankings that need no derivative
# Changes of the gates: the derivative must fit one of them. Small ones cross no jump (to another
# expert, or over an edge that sparse attention closes), large ones do not drown in rounding.
STEPS = (1e-2, 1e-3, 3e-2, 1e-4)
ERROR = 0.05  # relative to the derivative
ROUNDING = 1e-6  # of logits, relative to their size


def require_derivative(model: Model) -> None:
    """Refuse a model without derivatives, or with wrong ones; tested once per model."""
    if not model.proven.get("derivative"):
        try:
            with measuring(model), frozen(model):
                right = _is_right(model)
        except (NotImplementedError, RuntimeError) as error:
            if out_of_memory(error):
                raise
            raise HeadcountError(
                f"{model.name} has no derivatives on {model.device.type} with the attention kernel "
                f"{model.kernel}: choose the kernel sdpa or eager and weights that are not "
                f"quantised, or rank by {WITHOUT}."
            ) from error
        if not right:
            raise HeadcountError(
                f"The derivatives of {model.name} are wrong: a small change of the gates changes "
                f"its logits otherwise. Choose another attention kernel than {model.kernel}, or "
                f"rank by {WITHOUT}."
            )
        model.proven["derivative"] = True


def _is_right(model: Model) -> bool:
    """Whether the derivative in some direction is what small changes in that direction do."""
    generator = torch.Generator().manual_seed(0)
    ids = probe_prompt(model.module, 1)
    direction = torch.randn(1, model.layout.total, generator=generator)

    def logits(gates: Tensor) -> Tensor:
        with gating(model.module, model.sites, gates, every_site=gates.requires_grad):
            output = model.module(input_ids=ids, **accepted(model.module, use_cache=False))
        last: Tensor = output.logits[0, -1]
        return last.float()

    gates = torch.ones_like(direction).requires_grad_()
    with torch.enable_grad():
        whole = logits(gates)
        check_finite(whole, model)
        weights = torch.randn(len(whole), generator=generator).to(whole.device)
        (slopes,) = torch.autograd.grad(whole @ weights, gates)
    slope = float((slopes * direction).sum())
    # In half precision small changes drown in rounding. In a large sparse model even the smallest
    # change opens or shuts some edge: such a jump has no derivative.
    exact = coarsest_dtype(model.module) in (torch.float32, torch.float64)
    if not exact or model.kernel.startswith(SPARSE):
        return bool(slopes.isfinite().all())
    with torch.no_grad():
        rounding = ROUNDING * float(whole.norm())
        for step in STEPS:
            up, down = (logits(1 + sign * step * direction) for sign in (1, -1))
            change = float((up - down) @ weights) / (2 * step)
            allowed = ERROR * max(abs(slope), abs(change)) + rounding / step
            if abs(slope - change) <= allowed:
                return True
    return False
