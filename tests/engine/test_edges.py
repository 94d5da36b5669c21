"""Single edges: against heads, where both say the same, and on circuits whose edges are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import plant
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, Store, Task, evaluate, rank, wrap
from headcount.curves.edges import EdgesRequest
from headcount.engine.edges import attention as kernel
from headcount.engine.edges.attention import EdgePass, attending, edges_of, register, sites_of
from headcount.engine.edges.job import EdgeJob, _Runner, order_of
from headcount.engine.measure.forward import frozen, measuring
from headcount.metrics import get_logit_metric
from headcount.models.model import Model
from headcount.sparse.make_sparse import make_sparse
from headcount.tasks import Encoded

LD = get_logit_metric("first_token_logit_difference")


def model_and_task(model_type: str = "llama", seed: int = 0) -> tuple[Model, Task]:
    model = wrap(tiny_model(model_type, seed=seed), toy_tokenizer())
    return model, toy_task(16, seed=seed)


def examples_of(model: Model, task: Task) -> list[Encoded]:
    """Test prompts of one length."""
    encoded = model.encode(task.split("test"))
    return [e for e in encoded if e.length == encoded[0].length]


def runner_of(model: Model, tokens: int = 4096) -> Any:
    register()
    return _Runner(model, LD, tokens)


def of_heads(heads: list[int], total: int, tokens: int) -> tuple[torch.Tensor, int]:
    """An order in which all edges of these heads come first, and how many these are."""
    scores = torch.zeros(total, tokens, tokens)
    scores[heads] = 1
    return order_of(scores), len(heads) * tokens * (tokens + 1) // 2


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "qwen2"])
@pytest.mark.parametrize("at_once", [None, 40])
def test_keeping_all_edges_of_some_heads_is_keeping_these_heads(
    model_type: str, at_once: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if at_once:
        monkeypatch.setitem(kernel.AT_ONCE, "cpu", at_once)  # a query or two at a time
    model, task = model_and_task(model_type)
    examples, total = examples_of(model, task), model.layout.total
    names = [e.example.id for e in examples]
    heads = [0, total - 1]
    order, edges = of_heads(heads, total, examples[0].length)
    with measuring(model), frozen(model):
        orders = order.expand(len(examples), -1, -1, -1)
        most = edges_of(total, [examples[0].length])
        got = runner_of(model).values(examples, orders, (0, edges, most))
    gates = {
        "none": np.zeros(total),
        "some": np.isin(np.arange(total), heads).astype(float),
        "all": np.ones(total),
    }
    values = evaluate(model, task, gates, metric=LD.key, ablation="corrupted", lab=Lab(store=None))
    columns = [values.examples.index(name) for name in names]
    for row, label in zip(got, gates, strict=True):
        np.testing.assert_allclose(row, values.of(label)[0][columns], atol=2e-5)
    assert np.abs(got[0] - got[2]).max() > 1e-3  # the corrupted prompts do change something


def test_the_scores_of_a_heads_edges_sum_to_the_heads_own() -> None:
    model, task = model_and_task()
    heads = rank(
        model,
        task,
        "attribution",
        metric=LD.key,
        ablation="corrupted",
        lab=Lab(store=None),
    )
    assert heads.samples is not None
    encoded = model.encode(task.split("ranking"))
    for place in (0, 3):
        with measuring(model), frozen(model):
            (scores,) = runner_of(model).scores([encoded[place]], 0)
        np.testing.assert_allclose(scores.sum((1, 2)), heads.samples[place], atol=1e-4)
        assert not scores.triu(1).any()


def test_along_the_path_scores_sum_to_the_whole_effect() -> None:
    model, task = model_and_task(seed=1)
    examples = examples_of(model, task)[:3]
    total, tokens = model.layout.total, examples[0].length
    with measuring(model), frozen(model):
        runner = runner_of(model, tokens=tokens)  # one prompt at a time
        scores = runner.scores(examples, 16)
        order = of_heads([], total, tokens)[0].expand(len(examples), -1, -1, -1)
        none, all_edges = runner.values(examples, order, (0, edges_of(total, [tokens])))
    np.testing.assert_allclose(scores.sum((1, 2, 3)), all_edges - none, atol=1e-3)


def request(planted: Any, **changes: Any) -> EdgesRequest:
    settings: dict[str, Any] = {
        "ranked_by": ("attribution",),
        "metric": LD,
        "counts": (1, 2, 3, 10),
        **changes,
    }
    return EdgesRequest(planted.model, planted.task, **settings)


@pytest.mark.parametrize("own", [True, False])
def test_the_edges_of_a_planted_circuit_are_found(own: bool) -> None:
    """Each needed head needs one edge: from the last token to the subject."""
    planted = plant(["0.1", "1.0", "2.2"], layers=3, heads=4, n=48)
    kept = request(planted, own=own, seeds=2).result(Lab(store=None, progress=False))
    (means,) = kept.values["attribution"].mean(-1)
    counts = kept.request.all_counts
    share = (means - means[0]) / (means[-1] - means[0])
    at = dict(zip(counts, share.tolist(), strict=True))
    assert counts[-1] == kept.request.total
    assert at[1] == pytest.approx(1 / 3, abs=0.1)
    assert at[2] == pytest.approx(2 / 3, abs=0.1)
    assert at[3] == pytest.approx(1, abs=1e-3)
    assert at[10] == pytest.approx(1, abs=1e-3)
    random = kept.values["random"].mean((0, 2))
    assert random[3] < means[0] + 0.5 * (means[-1] - means[0])
    assert random[[0, -1]].tolist() == pytest.approx(means[[0, -1]].tolist(), abs=1e-4)


def test_the_same_work_again_computes_nothing(tmp_path: Path) -> None:
    planted = plant(["0.1"], layers=2, heads=2, n=24)
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        first = request(planted).result(lab)
        measured = dict(lab.measured)
        again = request(planted).result(lab)
        assert lab.measured == measured
        np.testing.assert_array_equal(first.values["attribution"], again.values["attribution"])
        request(planted, counts=(1, 4)).result(lab)
        assert lab.measured != measured


def test_how_much_runs_at_once_changes_nothing() -> None:
    planted = plant(["0.1", "1.0"], layers=2, heads=2, n=32)
    encoded = planted.model.encode(planted.task.split("test"))
    same = [i for i, e in enumerate(encoded) if e.length == encoded[0].length]
    tables = []
    for tokens in (1, 40, 100_000):
        job = EdgeJob(
            encoded, encoded, LD, ("integrated-gradients",), (0, 1, 5, 99), 1, True, tokens
        )
        emitted: list[Any] = []
        job.ready(planted.model)((tuple(same), ()), emitted.append)
        ((places, values),) = emitted
        assert places == tuple(same)
        tables.append(values)
    for table in tables[1:]:
        for name in ("integrated-gradients", "random"):
            np.testing.assert_allclose(table[name], tables[0][name], atol=1e-4)


def test_in_a_sparse_model_closed_edges_say_nothing() -> None:
    model, task = model_and_task(seed=3)
    make_sparse(model.module, bias=0.0)
    sparse = wrap(model.module, model.tokenizer)
    examples = examples_of(sparse, task)[:2]
    total, tokens = sparse.layout.total, examples[0].length
    order = of_heads([], total, tokens)[0].expand(len(examples), -1, -1, -1)
    with measuring(sparse), frozen(sparse):
        runner = runner_of(sparse)
        runner.prove(examples[:1])
        (kept,) = runner.values(examples, order, (edges_of(total, [tokens]),))
        (scores,) = runner.scores(examples[:1], 0)
    whole = evaluate(sparse, task, {"whole": []}, metric=LD.key, lab=Lab(store=None))
    columns = [whole.examples.index(e.example.id) for e in examples]
    np.testing.assert_allclose(kept, whole.of("whole")[0][columns], atol=1e-4)
    assert (scores == 0).float().mean() > 0.6  # pairs that are no edges, and closed ones


def test_what_has_no_edges_is_refused_in_a_sentence() -> None:
    planted = plant(["0.1"], layers=2, heads=2, n=24)
    lab = Lab(store=None, progress=False)
    bare = tuple(replace(example, corrupted=None) for example in planted.task)
    with pytest.raises(HeadcountError, match="corrupted prompt"):
        request(replace(planted, task=replace(planted.task, examples=bare))).result(lab)
    with pytest.raises(HeadcountError, match="several passes"):
        request(planted, metric=get_logit_metric("logprob_difference")).result(lab)
    gemma, task = model_and_task("gemma2")
    if getattr(gemma.module.config, "attn_logit_softcapping", None):
        with pytest.raises(HeadcountError, match="softcap"):
            EdgesRequest(gemma, task, ("attribution",), LD, (1,), own=True).result(lab)
    with pytest.raises(HeadcountError, match="inside headcount's own passes"):
        kernel.edge_attention(torch.nn.Identity(), *[torch.zeros(1, 1, 1, 1)] * 3, None)


def test_the_model_is_left_as_it_was() -> None:
    model, _ = model_and_task()
    kernels = [config._attn_implementation for config in [model.module.config]]
    with pytest.raises(ZeroDivisionError), attending(model, EdgePass(sites_of(model))):
        1 / 0
    assert [config._attn_implementation for config in [model.module.config]] == kernels
    assert kernel._pass is None
