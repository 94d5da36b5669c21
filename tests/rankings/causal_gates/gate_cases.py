"""Planted and random models, gradients, and fits that are cut: for tests of causal gates."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from planted import Plant, plant
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import Task, wrap
from headcount.engine.measure.forward import frozen, measuring
from headcount.models.model import Model
from headcount.rankings.causal_gates.passes import GatedPasses, LoadedPrompts, load_prompts
from headcount.rankings.causal_gates.schedule import first_logits
from headcount.rankings.causal_gates.training import State, fidelity
from headcount.tasks import encode

PLANTS: dict[str, dict[str, Any]] = {
    "one layer": {"needed": ["0.2"], "interfering": ["0.0"], "layers": 1},
    "spread": {"needed": ["0.1", "1.3", "2.0"], "interfering": ["0.2", "2.1"]},
    "no interference": {"needed": ["0.0", "1.1"], "layers": 2, "heads": 2},
    "odd": {"needed": ["0.0", "1.2"], "interfering": ["1.1"], "layers": 2, "heads": 3},
    "deep": {
        "needed": ["0.0", "1.1", "2.2"],
        "interfering": ["1.5", "4.0"],
        "layers": 5,
        "heads": 6,
    },
}
ROLE = {"needed": "facilitation", "irrelevant": "irrelevance", "interfering": "interference"}
QUICK: dict[str, Any] = {"updates": 40, "batch": 16, "seeds": 2, "tokens": 1024}


@cache
def built(model_type: str = "llama") -> Model:
    return wrap(tiny_model(model_type), toy_tokenizer())


@cache
def spread() -> Plant:
    return plant(**PLANTS["spread"], n=64, seed=2)


def prompts_of(model: Model, task: Task) -> LoadedPrompts:
    return load_prompts(model, encode(task.split("ranking"), model.tokenizer))


def start(model: Model, rows: int) -> torch.Tensor:
    return State.at(
        [first_logits(row, model.layout.total) for row in range(rows)], model.device
    ).logits


def gradient(
    model: Model, prompts: LoadedPrompts, batches: np.ndarray, *, tokens: int = 512, **how: Any
) -> np.ndarray:
    run = GatedPasses(model, tokens=tokens)
    for name, value in how.items():
        setattr(run, name, value)
    with measuring(model), frozen(model):
        return fidelity(run, [prompts], [batches[:, None]])(start(model, len(batches)), 0).numpy()


def interrupted(monkeypatch: pytest.MonkeyPatch, after: int, error: type[BaseException]) -> None:
    """Let the gradient fail so many updates from now."""
    usual, count = GatedPasses.gradient, 0

    def failing(self: GatedPasses, *args: Any) -> torch.Tensor:
        nonlocal count
        count += 1
        if count > after:
            raise error
        return usual(self, *args)

    monkeypatch.setattr(GatedPasses, "gradient", failing)
