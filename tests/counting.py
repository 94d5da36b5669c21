"""Count the tokens that really go through a model, by kind of work."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch

from headcount.engine.measure import ablations as ablation
from headcount.engine.measure.batch import shared_start
from headcount.engine.measure.plan import SHORTEST_PREFIX
from headcount.engine.measure.runner import Runner
from headcount.engine.write import writing
from headcount.rankings.causal_gates.passes import GatedPasses

attribution = importlib.import_module(
    "headcount.rankings.attribution"
)  # a function goes by its name


@contextmanager
def counting() -> Iterator[Counter[str]]:
    """Inside, every pass of the evaluator, of rankings and of decoding is counted."""
    ran: Counter[str] = Counter()
    usual = {
        "whole": Runner.whole,
        "under": Runner.under,
        "outputs": ablation.head_outputs,
        "generate": writing.generate,
        "score": attribution.score,
        "one_pass": GatedPasses.one_pass,
    }

    def whole(self: Runner, *how: Any) -> Any:
        ran["passes"] += self.batch.ids.numel()
        return usual["whole"](self, *how)

    def under(self: Runner, gates: Any, start: int) -> Any:
        ran["passes"] += len(gates) * self.batch.ids.numel()
        return usual["under"](self, gates, start)

    def outputs(model: Any, batch: Any) -> Any:
        ran["passes"] += batch.ids.numel()
        return usual["outputs"](model, batch)

    def generate(model: Any, prompts: Any, gates: Any, **options: Any) -> Any:
        shared = shared_start(prompts) if len(set(prompts)) > 1 else 0
        shared *= shared >= SHORTEST_PREFIX  # runs once for each head set
        ran["writing"] += sum(len(one) - shared + options["max_new_tokens"] for one in prompts)
        ran["writing"] += shared * (1 if gates is None else len(np.unique(gates, axis=0)))
        return usual["generate"](model, prompts, gates, **options)

    def score(model: Any, batch: Any) -> Any:
        ran["gradients" if torch.is_grad_enabled() else "passes"] += batch.ids.numel()
        return usual["score"](model, batch)

    def one_pass(self: GatedPasses, logits: Any, laid: Any, some: Any, objective: Any) -> Any:
        ran["gradients"] += int(laid.lengths[some.places].sum())
        return usual["one_pass"](self, logits, laid, some, objective)

    with (
        mock.patch.object(Runner, "whole", whole),
        mock.patch.object(Runner, "under", under),
        mock.patch.object(ablation, "head_outputs", outputs),
        mock.patch.object(writing, "generate", generate),
        mock.patch.object(attribution, "score", score),
        mock.patch.object(GatedPasses, "one_pass", one_pass),
    ):
        yield ran
