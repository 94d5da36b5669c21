"""The retrieval score against full attention maps, and on planted copy heads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted_needle import plant_needle
from rankings.test_patterns import built, holding, kernels
from torch import Tensor

from headcount import HeadcountError, make_task, rank
from headcount.engine.read.attention import attend, attend_each
from headcount.engine.read.late import attend_late
from headcount.models.sites import HeadSite
from headcount.rankings.retrieval import UNIFORM

TEXTS = [[5, 6, 7, 8, 9, 5, 6, 12, 13, 14, 15, 16], [9, 8, 7, 9], [8, 7, 20, 3]]


@pytest.mark.parametrize("model_type", ["llama", "qwen2", "gemma3_text", "phi3", "gpt2"])
def test_late_weights_are_those_of_the_whole_maps(model_type: str) -> None:
    """Rotations, biases of queries, sliding windows, fused projections, learned positions."""
    model = built(model_type)
    for late in (1, 3):

        def last(site: HeadSite, weights: Tensor, places: object, late: int = late) -> Tensor:
            kept = weights[:, :, -late:].float()
            powers = torch.arange(1, kept.shape[-1] + 1)
            return (kept * powers).sum((-1, -2))

        whole = attend(model, TEXTS, last, progress=False)
        found = attend_late(model, TEXTS, [late] * 3, last, progress=False)
        np.testing.assert_allclose(found, whole, atol=1e-5)
    assert "headcount-late" not in kernels(model.module)


def test_only_late_queries_are_formed() -> None:
    shapes: set[tuple[int, ...]] = set()

    def note(site: HeadSite, weights: Tensor, places: object) -> Tensor:
        shapes.add(tuple(weights.shape[2:]))
        return weights[:, :, -1, 0]

    attend_late(built(), TEXTS, [2, 2, 2], note, progress=False)
    assert shapes == {(2, 12), (2, 4)}


def test_the_score_is_that_of_full_attention() -> None:
    model, task = built(), holding()
    scores = rank(model, task, "retrieval-score")
    assert scores.samples is not None
    for row, example in zip(scores.samples, model.encode(task.split("ranking")), strict=True):
        text = (*example.prompt, *example.target[:-1])
        (maps,) = attend_each(model, [text], lambda site, weights, _: weights, progress=False)
        expected = np.zeros(model.layout.total)
        for place, token in enumerate(example.target):
            query = len(example.prompt) - 1 + place
            most = maps[:, query].argmax(-1)  # (heads,)
            expected += [text[at] == token and at < len(example.prompt) for at in most]
        np.testing.assert_allclose(row, expected / len(example.target))
    assert 0 < scores.values.max() <= 1


def test_planted_copy_heads_are_found_at_every_length() -> None:
    planted = plant_needle(["0.3", "1.2", "2.0"])
    for length in (80, 400):
        task = make_task("needle", planted.model, length=length, n=12)
        scores = rank(planted.model, task, "retrieval-score")
        assert set(scores.top(3)) == planted.heads
        assert np.sort(scores.values)[-3:].tolist() == [1, 1, 1]
        assert np.sort(scores.values)[:-3].max() == 0
        uniform = scores.parameters[UNIFORM]
        assert uniform == pytest.approx(1 / (length + 0.5), rel=0.02)  # one position of all


def test_what_cannot_be_read_is_refused() -> None:
    with pytest.raises(HeadcountError, match=r"changes its attention scores \(softcap\)"):
        rank(built("gemma2"), holding(), "retrieval-score")
    with pytest.raises(HeadcountError, match="does not run one pattern for each head"):
        rank(built("diffllama"), holding(), "retrieval-score")
    spoilt = replace(holding(), examples=tuple(replace(e, target=" ta") for e in holding()))
    with pytest.raises(HeadcountError, match="hold their answer's tokens"):
        rank(built(), spoilt, "retrieval-score")
