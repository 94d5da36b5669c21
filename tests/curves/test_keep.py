"""Requests that keep the best heads: which head sets they ask for, before and after ranking."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from planted import plant

from headcount import HeadcountError, HeadScores, Lab
from headcount.curves.keep import KeepRequest
from headcount.engine.measure.head_sets import Pending
from headcount.metrics import get_logit_metric
from headcount.rankings import Ranking


@pytest.fixture(scope="module")
def keeping() -> KeepRequest:
    planted = plant(["0.1", "1.0"], layers=2, heads=3, n=24)
    ranking = Ranking.of(planted.model, planted.task, "attribution", metric="logit_difference")
    return KeepRequest(
        planted.model,
        planted.task,
        {"attribution": ranking},
        get_logit_metric("logit_difference"),
        counts=[1, 2],
        seeds=2,
        ablations=("mean", "zero"),
    )


def test_only_what_depends_on_the_ranking_is_pending(keeping: KeepRequest) -> None:
    entries = list(keeping.entries("mean", {}))
    assert [entry.label for entry in entries if isinstance(entry.gates, Pending)] == [
        ("attribution", 1),
        ("attribution", 2),
    ]
    known = {e.label: e.gates.sum() for e in entries if not isinstance(e.gates, Pending)}
    assert all(kept == count for (_, count), kept in known.items())
    assert [count for _, count in known] == [0, 6, 0, 1, 2, 6]


def test_other_ablations_are_of_the_first_order(keeping: KeepRequest) -> None:
    assert keeping.orders("mean") == ["attribution", "random"]
    assert keeping.orders("zero") == ["attribution"]
    kept = keeping.result(Lab(progress=False))
    assert kept.values["mean"].of(("random", 2)).shape == (2, keeping.prompts)
    whole, two = (kept.values["zero"].of(("attribution", count)).mean() for count in (6, 2))
    assert two == pytest.approx(whole, abs=1e-4)


def test_absolute_scores_make_an_order_of_their_own(keeping: KeepRequest) -> None:
    both = replace(keeping, absolute=True, seeds=0)
    assert both.orders("mean") == ["attribution", "attribution, absolute"]
    values = np.array([0.1, -0.9, 0.2, 0.0, 0.3, 0.05])
    scores = {"attribution": HeadScores(keeping.model.layout, values, "attribution")}
    first = {
        entry.label[0]: int(np.argmax(entry.gates))
        for entry in both.entries("mean", scores)
        if entry.label[1] == 1
    }
    assert first == {"attribution": 4, "attribution, absolute": 1}


def test_each_prompt_has_its_own_head_sets(keeping: KeepRequest) -> None:
    own = replace(keeping, per_prompt=True, seeds=0)
    pending = [entry for entry in own.entries("mean", {}) if isinstance(entry.gates, Pending)]
    assert len(pending) == len({entry.gates for entry in pending}) == 2 * own.prompts
    samples = np.random.default_rng(0).normal(size=(own.prompts, 6))
    scores = HeadScores(own.model.layout, samples.mean(0), "attribution", samples=samples)
    for entry in own.entries("mean", {"attribution": scores}):
        assert entry.example is not None
        if entry.label == ("attribution", 1):
            assert np.argmax(entry.gates) == samples[entry.example].argmax()
    with pytest.raises(HeadcountError, match="no scores by prompt"):
        list(own.entries("mean", {"attribution": replace(scores, samples=samples[:1])}))
