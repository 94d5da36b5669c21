"""Rankings by derivative: how fast the metric falls when a head's gate is turned down.

The gate enters as z' = g·z + (1 − g)·stand-in, so the derivative of the metric in g at g = 1 is the
first-order estimate of metric(head there) − metric(head replaced): positive for heads that help.
Every example has its own row of gates, so one backward pass gives one derivative per example.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from headcount.engine.measure.ablations import make_stand_in
from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.forward import check_finite, measuring, score
from headcount.engine.measure.plan import default_tokens
from headcount.engine.measure.rates import timing
from headcount.errors import HeadcountError
from headcount.heads import HeadScores
from headcount.metrics import METRICS, Metric, get_logit_metric
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.system.progress import progress as progress_bar
from headcount.tasks import Task, encode, require_foils


def attribution(
    model: Model,
    task: Task,
    *,
    metric: str = "logprob",
    stand_in: str = "zero",
    progress: bool = True,
) -> HeadScores:
    """The derivative of the metric in each head's gate at 1, averaged over the ranking part."""
    samples, _ = _derivatives(model, task, metric, stand_in, np.ones(1), progress)
    return HeadScores(model.layout, samples.mean(0), "attribution", samples=samples)


def integrated_gradients(
    model: Model,
    task: Task,
    *,
    metric: str = "logprob",
    stand_in: str = "zero",
    steps: int = 16,
    progress: bool = True,
) -> HeadScores:
    """The derivative along the way on which all gates go together from 0 to 1.

    The scores of all heads sum to metric(all heads) − metric(no head), example by example, up to
    the error of the numerical integration; the parameters of the result carry both sides.
    """
    if steps < 1:
        raise HeadcountError(f"Integrated gradients need at least 1 step, not {steps}.")
    # Gauss–Legendre: for smooth paths the error falls far faster than with equal steps.
    points, weights = np.polynomial.legendre.leggauss(steps)
    at, weights = (points + 1) / 2, weights / 2
    samples, ends = _derivatives(model, task, metric, stand_in, at, progress, weights, ends=True)
    return HeadScores(
        model.layout,
        samples.mean(0),
        "integrated-gradients",
        parameters={"sum": float(samples.sum(1).mean()), "difference": float(ends.mean())},
        samples=samples,
    )


def _derivatives(
    model: Model,
    task: Task,
    metric: str | Metric,
    stand_in: str,
    at: Float[np.ndarray, "points"],
    show: bool,
    weights: Float[np.ndarray, "points"] | None = None,
    ends: bool = False,
) -> tuple[Float[np.ndarray, "examples heads"], Float[np.ndarray, "examples"]]:
    """Derivatives with all gates at each of `at`, weighted and summed.

    With `ends` also metric(all heads) − metric(no head), otherwise zeros.
    """
    chosen = get_logit_metric(metric)
    if not chosen.differentiable:
        usable = ", ".join(m.key for m in METRICS.values() if m.differentiable)
        raise HeadcountError(
            f'The metric "{chosen.key}" has no derivative to rank heads by: use one of {usable}.'
        )
    ranking = encode(task.part("ranking"), model.tokenizer)
    if chosen.needs_foils:
        require_foils(ranking, f"the metric {chosen.key}")
    # A backward pass keeps the activations of every layer, so half a batch fits where one did.
    tokens = default_tokens(model) // 2
    filler = make_stand_in(stand_in, model, ranking, ranking, tokens)
    samples = np.zeros((len(ranking), model.layout.total))
    differences = np.zeros(len(ranking))
    weights = np.ones(len(at)) if weights is None else weights
    batches = make_batches(ranking, tokens=tokens, device=model.device)
    total = len(ranking) * len(at)
    with (
        progress_bar("ranking", total, show=show) as bar,
        measuring(model),
        _frozen(model),
        timing(model, sum(one.length for one in ranking) * len(at), "gradients"),
    ):
        for batch in batches:
            rows, z0 = list(batch.examples), filler.provide(batch)

            def run(gates: torch.Tensor, batch: Any = batch, z0: Any = z0) -> torch.Tensor:
                with gating(
                    model.module, model.sites, gates, stand_ins=z0, every_site=gates.requires_grad
                ):
                    values = chosen.function(score(model, batch))
                check_finite(values, model)
                return values

            if ends:
                with torch.no_grad():
                    whole = torch.ones(1, model.layout.total)
                    difference = run(whole) - run(torch.zeros_like(whole))
                differences[rows] = difference.double().cpu().numpy()
            for point, weight in zip(at, weights, strict=True):
                gates = torch.full((batch.rows, model.layout.total), float(point))
                gates = gates.to(model.device).requires_grad_()
                with torch.enable_grad():
                    (slope,) = torch.autograd.grad(run(gates).sum(), gates)
                samples[rows] += weight * slope.double().cpu().numpy()
                bar.update(batch.rows)
    return samples, differences


@contextmanager
def _frozen(model: Model) -> Iterator[None]:
    """No derivative in the weights inside: only the gates are asked for, and memory is short."""
    trained = [p for p in model.module.parameters() if p.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)
