"""Prove, before anything is measured, that the sites found in a model are head sites."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headcount.errors import HeadcountError
from headcount.models.find_sites import ProbedSite, find_sites
from headcount.models.gate import gating
from headcount.models.mixers import find_mixers
from headcount.models.sites import (
    HeadSite,
    coarsest_dtype,
    from_rows,
    plain,
    probe_prompt,
    run,
    to_rows,
)
from headcount.models.slices import linear_limit, visible
from headcount.models.tensor_parallel import check_divisible, local, of_all_ranks


@dataclass(frozen=True)
class Check:
    """One statement about a model's heads and the largest error found in testing it."""

    statement: str
    error: float
    limit: float

    @property
    def holds(self) -> bool:
        """Whether the error is within the limit; NaN is not."""
        return self.error <= self.limit


@dataclass(frozen=True)
class Proof:
    """The proven head sites of one model, and the checks that prove them."""

    sites: tuple[HeadSite, ...]
    checks: tuple[Check, ...]
    mixers: tuple[str, ...]  # modules that mix tokens without any head, such as linear attention


@torch.no_grad()
def prove(module: nn.Module) -> Proof:
    """Find the head sites of `module` and prove them, or refuse the model by name.

    The proof runs the model on one short made-up prompt and changes nothing in it.
    """
    require_language_model(module)
    check_divisible(module)
    ids, logits = _plain_pass(module)
    probed = find_sites(module)
    sites = of_all_ranks(module, [p.site for p in probed])
    linear = [linear_limit(p.projection, p.z.dtype) for p in probed]
    equal = [visible(coarsest_dtype(module))] * len(probed)
    sums, columns = map(_sum_error, probed), map(_columns_error, probed)
    summed = "the heads' writes sum to the block's output"
    zeroed = "a gate of 0 equals zeroed columns of the projection"
    alone = "disturbing a query head changes its slice and no other"
    checks = (
        _check_ones(module, sites, ids, logits),
        _check_sites(summed, probed, sums, linear),
        _check_sites(zeroed, probed, columns, linear),
        _check_sites(alone, probed, [p.leak for p in probed], equal),
        _check_causal(module, logits, max(linear)),
    )
    _require_vocabulary(module, logits)
    return Proof(sites, checks, find_mixers(module, sites))


def require_language_model(given: Any) -> None:
    """Refuse what is not a module with embeddings of tokens, and say what to give instead."""
    kind = type(given).__name__
    if not isinstance(given, nn.Module):
        if hasattr(given, "proof"):
            raise HeadcountError(f"This {kind} is wrapped already: use it as it is.")
        inside = isinstance(getattr(given, "model", None), nn.Module)  # a pipeline
        advice = "its .model" if inside else "one from transformers"
        raise HeadcountError(f"A {kind} is not a language model: give {advice}.")
    if isinstance(given, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise HeadcountError(f"{kind} runs copies of a model: give its .module.")
    config = getattr(plain(given), "config", None)
    if getattr(config, "is_encoder_decoder", False):
        raise HeadcountError(
            f"{kind} has an encoder, which sees the whole text, so answers would leak into their "
            "own scores: give a causal language model."
        )
    # Accelerate's hooks bring weights that it has offloaded into memory.
    offloaded = any(hasattr(part, "_hf_hook") for part in given.modules())
    if not offloaded and any(p.device.type == "meta" for p in given.parameters()):
        raise HeadcountError(
            f"{kind} has no weights in memory (it is on the meta device): load its weights first."
        )
    try:
        embeddings = plain(given).get_input_embeddings()  # type: ignore[operator]
        ids = embeddings.weight.ndim == 2
    except (AttributeError, NotImplementedError, TypeError):
        ids = False
    if not ids:
        raise HeadcountError(
            f"{kind} has no table of token embeddings: give a causal language model."
        )


def _plain_pass(
    module: nn.Module,
) -> tuple[Int[Tensor, "rows tokens"], Float[Tensor, "rows tokens vocab"]]:
    """Two prompts that differ in their last token, and their logits, which must be usable."""
    ids = probe_prompt(module, 2).clone()
    ids[1, -1] = ids[1, 0]
    try:
        logits = run(module, ids)
    except AttributeError as error:  # its output has hidden states and no logits
        raise HeadcountError(
            f"{type(plain(module)).__name__} gives no logits: give a language model with its head, "
            "such as the ...ForCausalLM class of the same model."
        ) from error
    except (TypeError, ValueError) as error:  # it needs an image, say
        raise HeadcountError(
            f"{type(plain(module)).__name__} does not run on token ids alone: give a causal "
            "language model."
        ) from error
    if logits.shape[:2] != ids.shape:
        raise HeadcountError(
            f"{type(plain(module)).__name__} gives logits at {logits.shape[1]} positions for a "
            f"prompt of {ids.shape[1]} tokens (a soft prompt?): headcount needs one per token."
        )
    if not logits.isfinite().all():
        raise HeadcountError(
            "The model's logits are not finite numbers (NaN or infinite) on a plain prompt: "
            "load it in another dtype (float32 is safest) or check its weights."
        )
    return ids, logits


def _check_causal(
    module: nn.Module, logits: Float[Tensor, "2 tokens vocab"], limit: float
) -> Check:
    """Require that the last token, in which the two prompts differ, changes no earlier logit.

    Else answers would leak into their own scores.
    """
    before, after = logits[:, :-1].double()
    leak = float((before - after).abs().max() / before.abs().max().clamp(min=1e-12))
    check = Check("a changed later token changes no earlier logit", leak, limit)
    if not check.holds:
        raise HeadcountError(
            f"{type(plain(module)).__name__} is not causal: a changed later token changes earlier "
            f"logits by {leak:.1e} of their size, so answers would leak into their own scores. "
            "Give a causal language model (for a BERT-like one, is_decoder=True in its config)."
        )
    return check


def _require_vocabulary(module: nn.Module, logits: Float[Tensor, "2 tokens vocab"]) -> None:
    """Refuse a classifier of tokens; some vocabularies are padded on one side only."""
    known = plain(module).get_input_embeddings().weight.shape[0]  # type: ignore[operator]
    if logits.shape[2] < known // 2:
        raise HeadcountError(
            f"{type(plain(module)).__name__} gives {logits.shape[2]} logits for {known} tokens (a "
            "classifier?): give a causal language model."
        )


def _check_ones(
    module: nn.Module,
    sites: Sequence[HeadSite],
    ids: Int[Tensor, "rows tokens"],
    before: Float[Tensor, "rows tokens vocab"],
) -> Check:
    gates = torch.ones(1, sum(site.heads for site in sites))
    with gating(module, sites, gates, every_site=True):
        after = run(module, ids)
    error = float((after - before).abs().max())
    check = Check("a gate of 1 on every head changes no logit", error, 0.0)
    return _require(check, type(plain(module)).__name__)


def _check_sites(
    statement: str, probed: Sequence[ProbedSite], errors: Iterable[float], limits: Iterable[float]
) -> Check:
    """Require the statement at every site; return the check that is nearest to its limit."""
    checks = [
        _require(Check(statement, error, limit), p.site.attention)
        for p, error, limit in zip(probed, errors, limits, strict=True)
    ]
    return max(checks, key=lambda check: check.error / check.limit)


def _require(check: Check, name: str) -> Check:
    if check.holds:
        return check
    raise HeadcountError(
        f'Cannot prove the heads of {name}: "{check.statement}" is off by {check.error:.1e}, '
        f"more than {check.limit:.0e}."
    )


def _write(
    probed: ProbedSite, z: Tensor, weights: dict[str, Tensor] | None = None
) -> Float[Tensor, "rows tokens width"]:
    """The projection's output for z, (rows, tokens, width), optionally with other weights."""
    # Further inputs of the projection (a residual) have the rows of the probing pass.
    z = from_rows(z.expand(probed.rows, -1, -1), probed.site.order, z.new_empty(probed.shape))
    inputs = (z, *probed.call_args)
    output = torch.func.functional_call(
        probed.projection, weights or {}, inputs, dict(probed.call_kwargs)
    )
    return to_rows(output, probed.site.order, probed.rows).float()


def _columns(site: HeadSite, head: int) -> slice:
    first = site.start + head * site.size
    return slice(first, first + site.size)


def _sum_error(probed: ProbedSite) -> float:
    """How far the heads' writes are from summing to the block's output, relative to their sizes."""
    site, z = probed.site, probed.z
    # Row 0 holds no head, row h + 1 holds head h alone; the probing pass has enough rows.
    alone = z.new_zeros(probed.rows, *z.shape)
    for head in range(site.heads):
        columns = _columns(site, head)
        alone[head + 1, :, columns] = z[:, columns]
    no_heads = z.clone()
    no_heads[:, site.span] = 0  # keeps columns that belong to no head, if there are any
    whole = z[None].repeat(probed.rows, 1, 1)
    whole[0] = no_heads
    writes, (rest, block) = _write(probed, alone), _write(probed, whole)[:2]
    bias = writes[0]
    parts = torch.cat((writes[1:] - bias, (rest - bias)[None]))
    error = (parts.sum(0) - (block - bias)).abs().max()
    return float(error / parts.abs().sum(0).max().clamp(min=1e-12))


def _columns_error(probed: ProbedSite) -> float:
    site, whole = probed.site, plain_weight(probed.projection)
    if whole is None:
        return 0.0  # no plain weight to compare with: `_sum_error` is the only check
    weight = local(whole)
    gated = probed.z.clone()
    for head in range(0, site.heads, 2):
        gated[:, _columns(site, head)] = 0
    expected = _write(probed, gated)
    errors = []
    for axis in (axis for axis in (0, 1) if weight.shape[axis] == site.width):  # GPT-2: axis 0
        zeroed = weight.detach().clone()
        for head in range(0, site.heads, 2):
            zeroed.narrow(axis, _columns(site, head).start, site.size).zero_()
        error = (_write(probed, probed.z, {"weight": zeroed}) - expected).abs().max()
        errors.append(float(error / expected.abs().max().clamp(min=1e-12)))
    return min(errors, default=0.0)


def plain_weight(projection: nn.Module) -> nn.Parameter | None:
    """The weight of a projection that does nothing but multiply by it (and add a bias)."""
    weight: Any = getattr(projection, "weight", None)
    plain_type = type(weight) is nn.Parameter or hasattr(weight, "placements")
    if not plain_type or weight.ndim != 2 or not weight.is_floating_point():
        return None
    # An adapter inside adds a second path beside the weight; an offloaded weight is not in memory.
    return None if list(projection.children()) or weight.device.type == "meta" else weight
