"""Rankings by intervention: equal to what was planted, and to a plain loop over heads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from planted import Plant, plant
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Store, Task, evaluate, rank, wrap
from headcount.lab import Lab
from headcount.models.model import Model


@cache
def built(model_type: str = "llama") -> Model:
    return wrap(tiny_model(model_type), toy_tokenizer())


@cache
def spread() -> Plant:
    return plant(needed=["0.1", "1.3", "2.0"], interfering=["0.2", "2.1"], seed=3)


def without_corrupted(task: Task) -> Task:
    return replace(task, examples=tuple(replace(e, corrupted=None) for e in task))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("ranking", ["ablation", "patching"])
@pytest.mark.parametrize("seed", [0, 3])
def test_planted_effects_come_back_exactly(ranking: str, seed: int) -> None:
    """Also when patching: a corrupted prompt has other names, which are neither target nor foil."""
    planted = plant(needed=["0.1", "1.3", "2.0"], interfering=["0.2", "2.1"], seed=seed)
    scores = rank(planted.model, planted.task, ranking, metric="logit_difference")
    effects = [planted.effects[head] for head in planted.model.layout]
    np.testing.assert_allclose(scores.values, effects, atol=1e-4)
    assert scores.samples is not None
    np.testing.assert_allclose(
        scores.samples, np.tile(effects, (len(scores.samples), 1)), atol=1e-4
    )


@pytest.mark.parametrize("metric", ["logprob", "logit_difference"])
def test_the_sign_tells_the_role(metric: str) -> None:
    planted = spread()
    scores = rank(planted.model, planted.task, "ablation", metric=metric)
    by_head = dict(zip(planted.model.layout, scores.values, strict=True))
    assert min(by_head[head] for head in planted.heads("needed")) > 0.1
    assert max(by_head[head] for head in planted.heads("interfering")) < -0.01
    assert max(abs(by_head[head]) for head in planted.heads("irrelevant")) < 1e-5
    assert set(scores.top(3)) == set(planted.heads("needed"))


def test_accuracy_falls_with_every_needed_head_and_no_other() -> None:
    """Unless one is spare: then no single head is missed, which a ranking by effect cannot see."""
    planted = spread()
    scores = rank(planted.model, planted.task, "ablation", metric="accuracy")
    needed = [planted.roles[head] == "needed" for head in planted.model.layout]
    np.testing.assert_array_equal(scores.values, np.array(needed, dtype=float))
    spare = plant(needed=["0.1", "1.3", "2.0"], spare=1, seed=3)
    scores = rank(spare.model, spare.task, "ablation", metric="accuracy")
    np.testing.assert_array_equal(scores.values, 0)


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_one_head_at_a_time(model_type: str, ablation: str) -> None:
    model, task = built(model_type), toy_task(12)
    scores = rank(model, task, "ablation", ablation=ablation)
    whole, *rest = (
        evaluate(model, task, gates, ablation=ablation, split="ranking", metric="logprob").values[0]
        for gates in [
            model.layout.gates(off=[]),
            *(model.layout.gates(off=[head]) for head in model.layout),
        ]
    )
    assert scores.samples is not None
    assert scores.samples.shape == (len(task.split("ranking")), model.layout.total)
    expected = np.stack([whole - one for one in rest], axis=1)
    np.testing.assert_allclose(scores.samples, expected, atol=1e-4)
    np.testing.assert_allclose(scores.values, expected.mean(0), atol=1e-4)
    assert np.abs(expected).max() > 0.05
    assert scores.parameters["whole"] == pytest.approx(whole.mean(), abs=1e-4)


def test_patching_is_ablation_by_the_corrupted_prompt() -> None:
    model, task = built(), toy_task(12)
    patched = rank(model, task, "patching")
    same = rank(model, task, "ablation", ablation="corrupted")
    np.testing.assert_array_equal(patched.values, same.values)
    assert patched.ranking == "patching"
    assert patched.parameters["ablation"] == "corrupted"
    assert "corrupted prompt" in patched.parameters["ablation_used"]


def test_patching_without_corrupted_is_refused() -> None:
    with pytest.raises(
        HeadcountError, match="has no corrupted prompt: choose a task that has them"
    ):
        rank(built(), without_corrupted(toy_task()), "patching")


def test_measurements_go_into_the_store_and_come_out_again(store: Store) -> None:
    """Also those of a ranking that was cut short: the store has them head by head."""
    model, task = built(), toy_task(12)
    plain = rank(model, task, "ablation")
    one = model.layout.gates(off=[model.layout.head(0)])
    evaluate(model, task, one, split="ranking", lab=Lab(store), metric="logprob")
    stored = rank(model, task, "ablation", lab=Lab(store))
    np.testing.assert_allclose(stored.values, plain.values, atol=1e-5)
    assert "store" not in stored.parameters
    assert stored.to_json()["parameters"] == plain.to_json()["parameters"]
    seen: list[int] = []
    handle = model.module.register_forward_pre_hook(lambda *_: seen.append(1))
    try:  # the curve of the same heads needs no further pass
        evaluate(model, task, one, split="ranking", lab=Lab(store), metric="logprob")
        gates = 1 - np.eye(model.layout.total)
        evaluate(model, task, gates, split="ranking", lab=Lab(store), metric="logprob")
    finally:
        handle.remove()
    assert seen == []
