"""Contrastive gates: the printed loss, and heads that only the forgotten skill needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rankings.causal_gates.gate_cases import built, prompts_of, spread, start
from toy import toy_task

from headcount import Example, HeadcountError, Lab, Task
from headcount.engine.measure.forward import frozen, measuring
from headcount.rankings.causal_gates.contrast import contrast, fit_contrastive
from headcount.rankings.causal_gates.passes import GatedPasses, LoadedPrompts, lay_out, passes
from headcount.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("tokens", [9, 1000])
def test_the_contrastive_gradient_is_that_of_the_printed_loss(tokens: int) -> None:
    model = built()
    keep, forget = (prompts_of(model, toy_task(24, seed=seed)) for seed in (0, 1))
    rng = np.random.default_rng(0)
    kept, forgot = (rng.integers(0, len(some), (2, 1, 4)) for some in (keep, forget))
    logits = start(model, 2)

    def logprobs(prompts: LoadedPrompts, batch: np.ndarray, leaf: torch.Tensor) -> torch.Tensor:
        run = GatedPasses(model)
        values = []
        for row, places in enumerate(batch):
            for place in places:
                laid = lay_out(prompts, np.array([[place]]))
                (one,) = passes(laid, 100)
                with run._gated(leaf[row : row + 1].sigmoid()):
                    values.append(run._logprobs(laid, one))
        return torch.cat(values).view(batch.shape)

    with measuring(model), frozen(model), torch.enable_grad():
        leaf = logits.clone().requires_grad_()
        ours, theirs = logprobs(keep, kept[:, 0], leaf), logprobs(forget, forgot[:, 0], leaf)
        gap = theirs - ours.detach()
        loss = (-ours.mean(1) + gap.clamp(min=-5).mean(1)).sum()
        (expected,) = torch.autograd.grad(loss, leaf)
        run = GatedPasses(model, tokens=tokens)
        got = contrast(run, [keep, forget], [kept, forgot])(logits, 0)
    torch.testing.assert_close(got, expected, atol=2e-6, rtol=1e-4)


def test_contrastive_gates_shut_what_only_the_forgotten_skill_needs(store: Store) -> None:
    """A plant gives the subject's name; heads that write against it serve any other answer."""
    planted = spread()
    model, keep = planted.model, planted.task
    forget = Task("others", 1, tuple(_swapped(example) for example in keep))
    settings: dict[str, Any] = {"updates": 150, "batch": 16, "seeds": 2}
    gates = fit_contrastive(model, keep, forget, lab=Lab(store), **settings)
    by_head = dict(zip(model.layout, gates.gates.mean(0), strict=True))
    assert min(by_head[head] for head in planted.heads("needed")) > 0.8
    assert set(gates.ranking().top(2)) <= set(planted.heads("interfering"))
    again = fit_contrastive(model, keep, forget, lab=Lab(store), **settings)
    np.testing.assert_array_equal(again.gates, gates.gates)
    with pytest.raises(HeadcountError, match="updates to be at least 1"):
        fit_contrastive(model, keep, forget, updates=0)


def _swapped(example: Example) -> Example:
    return Example(
        example.id,
        example.prompt,
        example.foils[0],
        (example.target,),
        template=example.template,
        content=example.content,
    )
