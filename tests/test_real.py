"""The bundled model: a real language model, whose heads matter as the literature says."""

from __future__ import annotations

import numpy as np
import pytest
from real import bundled

from headcount import evaluate, make_task, rank
from headcount.engine.write.steps import ignores_gaps
from headcount.rankings.random_draws import draw_random

pytestmark = pytest.mark.real


def test_a_few_heads_carry_indirect_object_identification() -> None:
    model = bundled()
    layout = model.layout
    assert layout.counts == (9,) * 30  # 270 heads
    task = make_task("ioi", model.tokenizer, n=32)
    test = task.split("test")
    assert len(test) >= 12

    scores = rank(model, task, "attribution", metric="logit_difference")
    top = [layout.number(head) for head in scores.top(8)]
    random = [draw_random(layout, 8, outside=top, seed=seed).tolist() for seed in range(3)]
    gates = np.ones((5, layout.total))
    for row, heads in zip(gates[1:], [top, *random], strict=True):
        row[heads] = 0
    choice = evaluate(model, task, gates, metric="choice").mean()
    whole, without_top, *without_random = choice
    assert whole > 0.8
    # The giver is named twice: without the heads that look for the other one, it is the answer.
    assert without_top < 0.5
    assert np.mean(without_random) > 0.8


def test_every_fast_path_is_proven() -> None:
    """On a real model, whose rounding is blown up where tiny random ones have none to show."""
    paths = bundled().fast_paths
    assert paths.head
    assert paths.trunk is not None
    assert paths.attention
    assert paths.scored
    assert paths.cache
    assert ignores_gaps(bundled())
