"""Forward and backward passes under learned gates for any metric and any ablation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from headcount.engine.measure.ablations import make_ablation
from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.forward import score
from headcount.metrics import get_logit_metric
from headcount.metrics.answers import AnswerRows, answer_rows
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
        self.first = np.searchsorted(self.answers.owners, np.arange(len(examples) + 1))
        # A pass is cut by prompts, and each may run once for every right and wrong answer.
        self.tokens = max(1, self.tokens // int(np.diff(self.first).max()))
        self.ablation = make_ablation(ablation, model, self.answers.rows, examples, self.tokens)

    def one_pass(
        self, logits: Float[Tensor, "rows heads"], laid: LaidOut, piece: Pass, objective: Objective
    ) -> Float[Tensor, "rows heads"]:
        """The part of the gradient that comes from one pass."""
        leaf = logits.detach().requires_grad_()
        chosen = laid.examples[piece.places].cpu().numpy()
        ran = [np.arange(self.first[example], self.first[example + 1]) for example in chosen]
        owners = np.repeat(np.arange(len(chosen)), list(map(len, ran)))
        answers = self._answers_of(chosen, np.concatenate(ran))
        model, values = self.model, []
        order: list[int] = []
        gate_rows = laid.rows[piece.places][torch.from_numpy(owners).to(logits.device)]
        one_hot = (gate_rows[:, None] == torch.arange(len(logits), device=logits.device)).float()
        with torch.enable_grad():
            gates = one_hot @ leaf.sigmoid()  # (answer rows, heads)
            for batch in make_batches(answers.rows, tokens=1 << 60, device=model.device):
                numbers = np.concatenate(ran)[list(batch.examples)]
                z0 = self.ablation.provide(replace(batch, examples=tuple(map(int, numbers))))
                g = gates[list(batch.examples)]
                with gating(model.module, model.sites, g, ablations=z0, every_site=True):
                    values.append(answers.metric.function(score(model, batch)))
                order += batch.examples
            each = torch.cat(values)
            table = torch.zeros_like(each).index_put(
                (torch.tensor(order, device=each.device),), each
            )
            loss = objective(answers.combined(table), piece.places).sum()
            (gradient,) = torch.autograd.grad(loss, leaf)
        return gradient

    def _answers_of(
        self, chosen: Int[np.ndarray, "places"], ran: Int[np.ndarray, "rows"]
    ) -> AnswerRows:
        """The answers of the examples of a pass, whose rows are numbered anew; `ran` are theirs."""
        sizes = self.first[chosen + 1] - self.first[chosen]
        shift = (np.cumsum(sizes) - sizes - self.first[chosen])[:, None]
        right, wrong = (
            np.where(table[chosen] >= 0, table[chosen] + shift, -1)
            for table in (self.answers.right, self.answers.wrong)
        )
        rows = [self.answers.rows[row] for row in ran]
        return replace(self.answers, rows=rows, right=right, wrong=wrong)


@dataclass(frozen=True)
class MakeMetricPasses:
    """Makes such passes for a model: plain data, so that it can be sent to a worker."""

    metric: str
    ablation: str
    examples: Sequence[Encoded]

    def __call__(self, model: Model, *, tokens: int | None, compiled: bool) -> MetricPasses:
        """Passes for this model; they are never compiled."""
        return MetricPasses(model, self.metric, self.ablation, self.examples, tokens or 0)
