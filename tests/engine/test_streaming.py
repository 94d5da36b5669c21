"""Streaming attention as an ablation: equal to a plain loop, and to a masked model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fast_paths_of_model import left_behind
from test_plans import made_task
from tiny import tiny_model
from torch import Tensor, nn
from toy import toy_task, toy_tokenizer
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

from headcount import HeadcountError, Lab, Store, evaluate, rank, wrap
from headcount.engine.measure.ablations import check_ablation
from headcount.engine.measure.plan import PLAIN, Plan
from headcount.models import streaming as kernel
from headcount.models.gate import gating
from headcount.models.model import Model
from headcount.models.streaming import Streaming
from headcount.sparse.make_sparse import make_sparse
from headcount.system.transformers_compat import kernel_of, other_attention
from headcount.tasks import Task

pytestmark = pytest.mark.filterwarnings("ignore")  # transformers about kernels it has not got

SINK, WINDOW = 2, 3
NAME = f"streaming:{SINK}:{WINDOW}"
MASKED = ["llama", "gpt2", "mistral", "deepseek_v3", "gpt_neox", "qwen3"]


@cache
def model_of(model_type: str) -> Model:
    return wrap(tiny_model(model_type), toy_tokenizer())


def some_ids(tokens: int, rows: int = 2) -> Tensor:
    return torch.randint(3, 60, (rows, tokens), generator=torch.Generator().manual_seed(tokens))


@torch.no_grad()
def logits(model: Model, ids: Tensor, gates: Any = None, **how: Any) -> Tensor:
    if gates is None:
        return model.module(input_ids=ids, **how).logits
    table = torch.as_tensor(np.asarray(gates), dtype=torch.float32)
    table = table[None] if table.ndim == 1 else table
    with gating(model.module, model.sites, table, ablations=Streaming(SINK, WINDOW)):
        return model.module(input_ids=ids, use_cache=False).logits


def seen(tokens: int, own_window: int = 999) -> Tensor:
    """Which keys (columns) a streaming query (row) sees, by the definition."""
    table = [
        [j <= i and i - j < own_window and (j < SINK or i - j < WINDOW) for j in range(tokens)]
        for i in range(tokens)
    ]
    return torch.tensor(table)


@pytest.mark.parametrize("at_once", [256, 4])
@pytest.mark.parametrize("model_type", MASKED)
def test_with_all_gates_shut_it_is_the_model_under_a_mask(
    model_type: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel, "AT_ONCE", at_once)
    model, ids = model_of(model_type), some_ids(23)
    own_window = 8 if model_type == "mistral" else 999  # the model's own window stays
    hidden = torch.zeros(23, 23).masked_fill(~seen(23, own_window), torch.finfo(torch.float32).min)
    expected = logits(model, ids, attention_mask=hidden.expand(2, 1, 23, 23))
    got = logits(model, ids, np.zeros(model.layout.total))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=0)
    assert (got - logits(model, ids)).abs().max() > 1e-2  # the mask hides something


@pytest.mark.parametrize("model_type", MASKED)
def test_a_window_as_long_as_the_prompt_changes_nothing(model_type: str) -> None:
    model, tokens = model_of(model_type), SINK + WINDOW
    gates = np.random.default_rng(0).uniform(0, 1, (1, model.layout.total))
    for length, same in ((tokens, True), (tokens + 1, False)):
        ids = some_ids(length)
        assert torch.equal(logits(model, ids, gates), logits(model, ids)) == same


@contextmanager
def plain_loop(model: Model, gates: np.ndarray) -> Iterator[None]:
    """Both attentions with all their scores, head by head, mixed by a gate for each query head."""
    layers = {id(layer.self_attn): n for n, layer in enumerate(model.module.model.layers)}

    def attention(
        module: nn.Module, query: Tensor, key: Tensor, value: Tensor, mask: Tensor, **how: Any
    ) -> tuple[Tensor, None]:
        rows = []
        each = query.shape[1] // key.shape[1]
        for row in range(len(query)):
            outputs = []
            for head in range(query.shape[1]):
                k, v = key[row, head // each], value[row, head // each]
                scores = query[row, head] @ k.T * how["scaling"] + mask[0, 0]
                hidden = scores.masked_fill(~seen(len(k)), -1e30)
                g = float(gates.reshape(len(layers), -1)[layers[id(module)], head])
                outputs.append(g * scores.softmax(-1) @ v + (1 - g) * hidden.softmax(-1) @ v)
            rows.append(torch.stack(outputs, 1))
        return torch.stack(rows), None

    AttentionInterface.register("plain-loop", attention)
    AttentionMaskInterface.register("plain-loop", eager_mask)
    with other_attention(model.module, lambda config, kernel: "plain-loop"):
        yield


@torch.no_grad()
def by_loop(model: Model, task: Task, gates: np.ndarray) -> np.ndarray:
    """log p of each target, one example and one head set at a time: (sets, examples)."""
    table = []
    for row in gates:
        values = []
        for one in model.encode(task.split("test")):
            ids = torch.tensor([[*one.prompt, *one.target[:-1]]])
            with plain_loop(model, row):
                found = model.module(input_ids=ids, use_cache=False).logits[0].double()
            found = found[len(one.prompt) - 1 :].log_softmax(-1)
            values.append(float(found[range(len(one.target)), list(one.target)].sum()))
        table.append(values)
    return np.array(table)


def mixed_gates(total: int) -> np.ndarray:
    rng = np.random.default_rng(3)
    late, one = np.ones((2, total))
    late[total // 2 :], one[total - 3] = rng.uniform(-0.5, 1.5, total - total // 2), 0
    hard, soft = rng.integers(0, 2, total), rng.uniform(-0.5, 1.5, total)
    return np.stack([np.ones(total), np.zeros(total), hard, soft, late, one])


PLANS = {
    "best": lambda model: None,
    "every fast path": lambda model: Plan(4096, model.fast_paths, fold=True),
    "narrow": lambda model: Plan(40, model.fast_paths, fold=True),
    "compiled": lambda model: Plan(4096, model.fast_paths, fold=True, compile=True),
    "plain": lambda model: Plan(64, PLAIN),
}


@pytest.mark.parametrize("prefix", [0, 9])
@pytest.mark.parametrize("plan", PLANS)
def test_every_plan_gives_the_values_of_a_plain_loop(plan: str, prefix: int) -> None:
    model = model_of("llama")
    task = made_task([7, 9, 12], [1, 2], prefix=prefix)
    gates = mixed_gates(model.layout.total)
    lab = Lab(store=None, progress=False, plan=PLANS[plan](model))
    values = evaluate(model, task, gates, metric="logprob", ablation=NAME, lab=lab)
    np.testing.assert_allclose(values.values, by_loop(model, task, gates), atol=1e-4)
    assert values.ablation == "attention to the first 2 and the last 3 tokens"
    assert not left_behind(model.module)


def test_key_value_heads_stream_with_all_of_their_query_heads() -> None:
    model = model_of("llama")
    grouped, task = model.by_key_value_heads(), made_task([9, 12])
    gates = mixed_gates(grouped.layout.total)
    values = evaluate(
        grouped, task, gates, metric="logprob", ablation=NAME, lab=Lab(store=None)
    ).values
    expected = by_loop(model, task, gates.repeat(2, axis=1))
    np.testing.assert_allclose(values, expected, atol=1e-4)


@pytest.mark.parametrize("where", ["last", "answer", "-6:-2"])
def test_at_some_positions_only_these_queries_stream(where: str) -> None:
    """Gates that act late: no late pass is run, and earlier queries keep their attention."""
    model, task = model_of("llama"), made_task([12], [2])
    gates = mixed_gates(model.layout.total)
    got = evaluate(
        model, task, gates, metric="logprob", ablation=NAME, positions=where, lab=Lab(store=None)
    ).values
    some = model.encode(task.split("test"))
    for row, g in zip(got, gates, strict=True):
        for value, one in zip(row, some, strict=True):
            ids = torch.tensor([[*one.prompt, *one.target[:-1]]])
            acting = {"last": range(11, 12), "answer": range(11, 13), "-6:-2": range(6, 10)}[where]
            by_token = torch.ones(1, len(g), 13)
            by_token[0, :, acting.start : acting.stop] = torch.tensor(g)[:, None]
            found = logits(model, ids, by_token)[0, 11:].double().log_softmax(-1)
            assert value == pytest.approx(float(found[[0, 1], list(one.target)].sum()), abs=1e-4)
    assert np.ptp(got, axis=0).max() > 1e-3


def test_attribution_is_the_slope_of_the_mixture() -> None:
    model, task = model_of("llama"), made_task([9, 12])
    scores = rank(model, task, "attribution", ablation=NAME, lab=Lab(store=None))
    step, total = 1e-2, model.layout.total
    gates = np.ones((2 * total, total))
    gates[:total][np.diag_indices(total)] += step
    gates[total:][np.diag_indices(total)] -= step
    up, down = np.split(
        evaluate(
            model,
            task,
            gates,
            metric="logprob",
            ablation=NAME,
            split="ranking",
            lab=Lab(store=None, plan=Plan(64, PLAIN)),
        ).values,
        2,
    )
    np.testing.assert_allclose(scores.samples, ((up - down) / (2 * step)).T, atol=2e-3)
    assert np.abs(scores.values).max() > 0.01
    short = rank(model, task, "attribution", ablation="streaming", lab=Lab(store=None))
    assert not short.values.any()  # the window holds all of these prompts
    assert short.parameters["ablation"] == "streaming:16:64"


def test_the_store_keeps_values_by_sink_and_window(tmp_path: Path) -> None:
    model, task = model_of("llama"), toy_task(8)
    examples = len(task.split("test"))
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store, progress=False)
        for name, new in ((NAME, 1), (NAME, 0), ("streaming:2:4", 1), ("streaming", 1)):
            before = lab.measured["value"]
            values = evaluate(model, task, ["0.1"], ablation=name, lab=lab)
            assert lab.measured["value"] - before == new * examples
        assert values.ablation == (
            "attention to the first 16 and the last 64 tokens, which are all that these prompts "
            "have"
        )
        before = lab.measured["value"]
        evaluate(model, task, ["0.1"], ablation="streaming:16:64", lab=lab)
        assert lab.measured["value"] == before


def test_sparse_models_stream_too() -> None:
    module = tiny_model("llama")
    make_sparse(module, bias=0.3)
    model, ids = wrap(module, toy_tokenizer()), some_ids(9)
    model.require_streaming()
    assert torch.equal(logits(model, ids, np.ones(8)), logits(model, ids))
    hidden = torch.zeros(9, 9).masked_fill(~seen(9), torch.finfo(torch.float32).min)
    expected = logits(model, ids, attention_mask=hidden.expand(2, 1, 9, 9))
    torch.testing.assert_close(logits(model, ids, np.zeros(8)), expected, atol=1e-4, rtol=0)


def test_nothing_is_left_on_the_model_also_after_an_exception() -> None:
    model, ids = model_of("llama"), some_ids(9)
    before, kernels = logits(model, ids), kernel_of(model.module.config)
    with pytest.raises(HeadcountError, match="Gates for 3 rows do not fit 2"):
        logits(model, ids, np.zeros((3, 8)))
    assert kernel_of(model.module.config) == kernels
    assert kernel._attending is None
    assert not left_behind(model.module)
    assert torch.equal(logits(model, ids), before)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("streaming:0:64", "at least 1 first and 1 recent token .* not 0 and 64"),
        ("streaming:4:-1", "at least 1 first and 1 recent token .* not 4 and -1"),
        ("streaming:4", '"streaming:4" is no streaming attention: write streaming, or streaming:S'),
        ("streaming:4:many", "two whole numbers"),
        ("streamin", 'Did you mean "streaming"'),
    ],
)
def test_a_wrong_window_is_refused(name: str, message: str) -> None:
    with pytest.raises(HeadcountError, match=message):
        check_ablation(name)


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("bloom", r"\(BloomAttention\) does not run through transformers' attention functions"),
        ("gemma2", r"Gemma2Attention changes its attention scores \(softcap\)"),
        ("gpt_oss", r"GptOssAttention changes its attention scores \(s_aux\)"),
        ("diffllama", "has 2 attention patterns for each head"),
        ("deepseek_v32", r"is not softmax\(q·k\) v alone"),
    ],
)
def test_models_that_cannot_stream_are_refused_by_name(model_type: str, message: str) -> None:
    model = wrap(tiny_model(model_type), toy_tokenizer())
    with pytest.raises(HeadcountError, match=message):
        evaluate(model, toy_task(6), ["0.0"], ablation="streaming", lab=Lab(store=None))
    assert not left_behind(model.module)


def test_written_texts_do_not_stream() -> None:
    with pytest.raises(HeadcountError, match="only with zero ablation"):
        evaluate(
            model_of("llama"),
            toy_task(6),
            ["0.0"],
            metric="exact_match",
            ablation=NAME,
            lab=Lab(store=None),
        )
