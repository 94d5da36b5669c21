"""Forward and backward passes under learned gates for any metric and any ablation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headcount.engine.measure.ablations import make_ablation
from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.forward import score
from headcount.errors import HeadcountError
from headcount.metrics import get_logit_metric
from headcount.metrics.answers import answer_rows
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.rankings.causal_gates.passes import GatedPasses, LaidOut, Objective, Pass
from headcount.tasks import Encoded


class MetricPasses(GatedPasses):
    """Computes the gradients of an objective in a metric of each prompt, under an ablation."""

    def __init__(
        self, model: Model, metric: str, ablation: str, examples: Sequence[Encoded], tokens: int
    ) -> None:
        super().__init__(model, tokens=tokens or None)
        self.may_recompute = False
        self.answers = answer_rows(get_logit_metric(metric), examples)
        if len(self.answers.rows) != len(examples):
            raise HeadcountError(
                f"Gates with a budget need a metric that runs each prompt once, and {metric} runs "
                "some of these prompts several times: choose logprob or logit_difference."
            )
        self.ablation = make_ablation(ablation, model, self.answers.rows, examples, self.tokens)

    def one_pass(
        self, logits: Float[Tensor, "rows heads"], laid: LaidOut, piece: Pass, objective: Objective
    ) -> Float[Tensor, "rows heads"]:
        """The part of the gradient that comes from one pass."""
        leaf = logits.detach().requires_grad_()
        chosen = laid.examples[piece.places].tolist()
        rows = torch.arange(len(logits), device=logits.device)
        one_hot = (laid.rows[piece.places, None] == rows).float()  # (places, rows)
        encoded = [self.answers.rows[example] for example in chosen]
        with torch.enable_grad():
            gates = one_hot @ leaf.sigmoid()  # (places, heads)
            loss = gates.new_zeros(())
            for batch in make_batches(encoded, tokens=1 << 60, device=self.model.device):
                own = replace(batch, examples=tuple(chosen[place] for place in batch.examples))
                z0, g = self.ablation.provide(own), gates[list(batch.examples)]
                model = self.model
                with gating(model.module, model.sites, g, ablations=z0, every_site=True):
                    values = self.answers.metric.function(score(model, batch))
                loss = loss + objective(self._combined(values, encoded), piece.places).sum()
            (gradient,) = torch.autograd.grad(loss, leaf)
        return gradient

    def _combined(self, values: Tensor, encoded: list[Encoded]) -> Tensor:
        """The metric of each example from that of its only row."""
        right = np.arange(len(values))[:, None]
        rows = encoded[: len(values)]
        only = replace(self.answers, rows=rows, right=right, wrong=right[:, :0])
        return only.combined(values)


@dataclass(frozen=True)
class MakeMetricPasses:
    """Makes such passes for a model: plain data, so that it can be sent to a worker."""

    metric: str
    ablation: str
    examples: Sequence[Encoded]

    def __call__(self, model: Model, *, tokens: int | None, compiled: bool) -> MetricPasses:
        """Passes for this model; they are never compiled."""
        return MetricPasses(model, self.metric, self.ablation, self.examples, tokens or 0)
