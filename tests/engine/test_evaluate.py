"""evaluate against a slow loop, and what it promises about stores and interruptions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from slow import PROJECTIONS, SlowLoop, projections
from tiny import tiny_model
from toy import WORDS, toy_task, toy_tokenizer

from headcount import HeadcountError, Store, evaluate, wrap
from headcount.engine.measure.plan import PLAIN, Plan, best_plan
from headcount.lab import Lab
from headcount.metrics import METRICS, Metric, logit_metrics
from headcount.models.model import Model
from headcount.tasks import Example, Task, encode

MODELS = tuple(PROJECTIONS)
FEW = ("llama", "gpt2", "bloom")


@cache
def built(model_type: str) -> tuple[Model, SlowLoop]:
    module = tiny_model(model_type)
    model = wrap(module, toy_tokenizer(), name=model_type)
    (heads,) = set(model.layout.counts)
    return model, SlowLoop(module, projections(module, model_type), heads)


@pytest.fixture
def llama() -> Model:
    return built("llama")[0]


@pytest.fixture
def task() -> Task:
    return toy_task(12)


def soft_gates(model: Model, sets: int = 2, seed: int = 0) -> np.ndarray:
    """Random numbers, some of them below 0 or above 1, some exactly 0 or 1."""
    rng = np.random.default_rng(seed)
    gates = rng.uniform(-0.5, 1.5, (sets, model.layout.total)).astype(np.float32)
    gates[:, ::3] = gates[:, ::3].round()
    return gates


@contextmanager
def counted(model: Model) -> Iterator[list[int]]:
    """The tokens of every forward pass of the model, appended as it happens."""
    model.fast_paths  # which are proven once, by passes of their own
    tokens: list[int] = []

    def count(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
        tokens.append(kwargs["input_ids"].numel())

    handle = model.module.register_forward_pre_hook(count, with_kwargs=True)
    try:
        yield tokens
    finally:
        handle.remove()


# Equal to the plain loop


@pytest.mark.parametrize("model_type", MODELS)
def test_equals_the_slow_loop(model_type: str, task: Task) -> None:
    model, slow = built(model_type)
    gates = np.concatenate(
        [soft_gates(model), np.ones((1, model.layout.total)), np.zeros((1, model.layout.total))]
    )
    examples = encode(task.split("test"), model.tokenizer)
    assert len({len(one.prompt) for one in examples}) > 1
    assert {len(one.target) for one in examples} == {1, 2}
    expected = [[slow.metrics(one, row, slow.nothing()) for one in examples] for row in gates]
    for whole, row in zip(expected, gates, strict=True):
        for cell, one in zip(whole, examples, strict=True):
            cell |= slow.whole_answers(one, row, slow.nothing())
    every = [metric.key for metric in logit_metrics() if metric.answers != "one-token"]
    for metric in every if model_type in FEW else ["logprob", "choice", "logprob_difference"]:
        values = evaluate(model, task, gates, metric=metric)
        assert values.examples == tuple(one.example.id for one in examples)
        np.testing.assert_allclose(
            values.values, [[cell[metric] for cell in row] for row in expected], atol=1e-4
        )


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "deepseek_v3", "qwen3_next"])
@pytest.mark.parametrize("ablation", ["corrupted", "mean", "mean over all"])
def test_equals_the_slow_loop_with_ablations(model_type: str, ablation: str) -> None:
    model, slow = built(model_type)
    task = toy_task(24, templates=ablation != "mean over all")
    gates = soft_gates(model, sets=2)
    ranking = encode(task.split("ranking"), model.tokenizer)
    examples = encode(task.split("test"), model.tokenizer)
    expected = []
    for one in examples:
        if ablation == "corrupted":
            z0 = slow.corrupted(one)
        else:
            z0 = slow.mean(ranking, one, by_position=ablation == "mean")
        expected.append([slow.metrics(one, row, z0)["logprob"] for row in gates])
    values = evaluate(model, task, gates, ablation=ablation.split()[0], metric="logprob")
    where = {
        "mean": "per position",
        "mean over all": "over all positions",
        "corrupted": "corrupted prompt",
    }
    assert where[ablation] in values.ablation
    np.testing.assert_allclose(values.values.T, expected, atol=1e-4)


def test_several_foils_count_by_the_strongest(llama: Model) -> None:
    task = toy_task(8, foils=3)
    slow = built("llama")[1]
    gates = soft_gates(llama, sets=1)
    examples = encode(task, llama.tokenizer)
    expected = [slow.metrics(one, gates[0], slow.nothing()) for one in examples]
    for metric in ("first_token_logit_difference", "first_token_choice"):
        values = evaluate(llama, task, gates, metric=metric, split="all")
        np.testing.assert_allclose(values.values[0], [e[metric] for e in expected], atol=1e-4)


def staircase(model: Model) -> np.ndarray:
    """Head sets that begin at every layer in turn, with one head, with many, and with soft gates.

    The engine runs nothing anew before the first gated head, so each start is a case of its own.
    """
    layout = model.layout
    soft = soft_gates(model, sets=1)[0]
    rows = [np.ones(layout.total), np.zeros(layout.total)]
    for start in layout.starts:
        rows += [np.ones(layout.total) for _ in range(3)]
        rows[-3][start] = 0
        rows[-2][start + 1 :] = 0
        rows[-1][start:] = soft[start:]
    return np.stack(rows)


@pytest.mark.parametrize(
    ("model_type", "shared", "ablation"),
    [
        *(("llama", shared, name) for shared in (0, 12) for name in ("zero", "mean", "corrupted")),
        *((name, 0, "zero") for name in ("gpt2", "bloom", "mistral", "gpt_neox")),
        *((name, 12, "corrupted") for name in ("gpt2", "bloom", "mistral", "gpt_neox")),
    ],
)
def test_no_plan_changes_a_value(model_type: str, shared: int, ablation: str) -> None:
    """Whatever prompts share at their start, and wherever a head set begins."""
    model = deeper(model_type)
    task = with_prefix(toy_task(16, targets=[1, 1, 1, 2], lengths=[5, 8]), shared)
    gates = staircase(model)
    plans = [best_plan(model, tokens=60), None, Plan(tokens=100, fast_paths=PLAIN)]
    *found, plain = (
        evaluate(model, task, gates, ablation=ablation, lab=Lab(plan=plan), metric="logprob").values
        for plan in plans
    )
    for values, plan in zip(found, plans[:-1], strict=True):
        np.testing.assert_allclose(values, plain, atol=1e-4, err_msg=str(plan))


@cache
def deeper(model_type: str) -> Model:
    """Three layers: a first, a last, and one between."""
    depth = "n_layer" if model_type in ("gpt2", "bloom") else "num_hidden_layers"
    return wrap(tiny_model(model_type, **{depth: 3}), toy_tokenizer())


def with_prefix(task: Task, words: int) -> Task:
    """The task with an instruction of so many words in front of every prompt."""
    prefix = "".join(f"{word} " for word in WORDS[:words])
    return replace(
        task,
        examples=tuple(
            replace(e, prompt=prefix + e.prompt, corrupted=f"{prefix}{e.corrupted}")
            for e in task.examples
        ),
    )


def test_parts_are_parts_of_the_whole(llama: Model, task: Task) -> None:
    gates = soft_gates(llama, sets=1)
    parts: dict[Any, dict[str, float]] = {}
    for part in ("ranking", "test", "all"):
        values = evaluate(llama, task, gates, split=part, metric="logprob")
        parts[part] = dict(zip(values.examples, values.values[0].round(4), strict=True))
    assert parts["ranking"] | parts["test"] == parts["all"]
    assert len(parts["ranking"]) + len(parts["test"]) == len(task)


def test_clusters_come_with_the_values(llama: Model, task: Task) -> None:
    values = evaluate(llama, task, soft_gates(llama), metric="logprob")
    np.testing.assert_array_equal(values.clusters, task.split("test").clusters)
    np.testing.assert_allclose(values.mean(), values.values.mean(axis=1))


# The same answer, and a clean model


@pytest.mark.parametrize("model_type", FEW)
@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_the_same_bits_twice(model_type: str, ablation: str, task: Task) -> None:
    model, _ = built(model_type)
    gates = soft_gates(model)
    first, second = (
        evaluate(model, task, gates, ablation=ablation, metric="logprob").values for _ in range(2)
    )
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind(task: Task, fails: bool) -> None:
    module = tiny_model("llama", attention_dropout=0.5)
    model = wrap(module, toy_tokenizer())
    before = {name: value.clone() for name, value in module.state_dict().items()}
    expected = evaluate(model, task, soft_gates(model), metric="logprob").values
    module.train()
    module.model.layers[0].eval()
    modes = [part.training for part in module.modules()]
    precision = torch.get_float32_matmul_precision()

    def metric(scored: Any) -> torch.Tensor:
        assert torch.get_float32_matmul_precision() == "highest"
        if fails:
            raise RuntimeError("in the middle")
        return METRICS["logprob"].function(scored)

    try:
        torch.set_float32_matmul_precision("medium")
        seen = Metric("seen", "Seen", metric)
        if fails:
            with pytest.raises(RuntimeError, match="in the middle"):
                evaluate(model, task, soft_gates(model), metric=seen)
        else:
            values = evaluate(model, task, soft_gates(model), metric=seen).values
            # Dropout would have changed them.
            np.testing.assert_allclose(values, expected, atol=1e-5)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(precision)
    assert [part.training for part in module.modules()] == modes
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not any(part._forward_pre_hooks or part._forward_hooks for part in module.modules())
    assert all(p.requires_grad and p.grad is None for p in module.parameters())


def test_randomness_elsewhere_is_not_disturbed(llama: Model, task: Task) -> None:
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].tobytes()
    evaluate(llama, task, soft_gates(llama), ablation="mean", metric="logprob")
    assert torch.equal(state, torch.get_rng_state())
    assert np.random.get_state()[1].tobytes() == numpy_state


# Refusals


def test_logits_that_are_not_numbers_are_refused(task: Task) -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer(), name="broken")
    with torch.no_grad():
        module.model.norm.weight.fill_(torch.nan)
    short = toy_task(6, targets=[1])
    for metric in logit_metrics():
        some = short if metric.answers == "one-token" else task
        with pytest.raises(HeadcountError, match=r"broken gave logits .* not finite"):
            evaluate(model, some, soft_gates(model), metric=metric)


def test_nothing_of_a_broken_model_is_stored(task: Task, tmp_path: Path) -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer())
    with torch.no_grad():
        module.model.norm.weight.fill_(torch.inf)
    with Store(tmp_path / "store.sqlite") as store:
        with pytest.raises(HeadcountError):
            evaluate(model, task, soft_gates(model), lab=Lab(store), metric="logprob")
        assert sum(row.values for row in store.summary()) == 0


@pytest.mark.parametrize(
    "shape", [(7,), (2, 7), (9,), (1, 9), (0,), (), (2, 3, 8), (8, 1), (1, 1, 8)]
)
def test_gates_of_the_wrong_shape_are_refused(
    llama: Model, task: Task, shape: tuple[int, ...]
) -> None:
    with pytest.raises(HeadcountError) as caught:
        evaluate(llama, task, np.ones(shape), metric="logprob")
    assert "(head sets, 8)" in str(caught.value)
    assert str(shape) in str(caught.value)


def test_gates_may_be_lists_and_tensors(llama: Model, task: Task) -> None:
    gates = soft_gates(llama, sets=1)
    expected = evaluate(llama, task, gates, metric="logprob").values
    for same in (gates[0], gates.tolist(), gates[0].tolist(), torch.from_numpy(gates)):
        values = evaluate(llama, task, same, metric="logprob").values
        np.testing.assert_array_equal(values, expected)


def test_names_that_are_nearly_right(llama: Model, task: Task) -> None:
    gates = soft_gates(llama)
    with pytest.raises(HeadcountError, match=r'no metric "acuracy".*Did you mean "accuracy"\?'):
        evaluate(llama, task, gates, metric="acuracy")
    with pytest.raises(HeadcountError, match=r'no ablation "mena".*Did you mean "mean"\?'):
        evaluate(llama, task, gates, ablation="mena", metric="logprob")
    with pytest.raises(HeadcountError, match=r'no split "tst".*Did you mean "test"\?'):
        evaluate(llama, task, gates, split="tst", metric="logprob")  # type: ignore[arg-type]


def test_metrics_against_foils_need_them(llama: Model) -> None:
    task = toy_task(8, foils=0, targets=[1])
    for metric in ("logit_difference", "choice"):
        with pytest.raises(HeadcountError, match=f"no foil, and the metric {metric} needs one"):
            evaluate(llama, task, soft_gates(llama), metric=metric)
    assert evaluate(llama, task, soft_gates(llama), metric="logprob").values.shape[0] == 2


# The store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_the_second_time_nothing_is_computed(
    llama: Model, task: Task, store: Store, ablation: str
) -> None:
    gates = soft_gates(llama, sets=3)
    first = evaluate(llama, task, gates, ablation=ablation, lab=Lab(store), metric="logprob")
    with counted(llama) as passes:
        again = evaluate(llama, task, gates, ablation=ablation, lab=Lab(store), metric="logprob")
    assert passes == []
    assert again.values.tobytes() == first.values.tobytes()
    assert (again.examples, again.ablation) == (first.examples, first.ablation)


def test_only_new_head_sets_are_computed(llama: Model, task: Task, store: Store) -> None:
    gates = soft_gates(llama, sets=4)
    expected = evaluate(llama, task, gates, metric="logprob").values
    evaluate(llama, task, gates[[0, 2]], lab=Lab(store), metric="logprob")
    with counted(llama) as alone:
        evaluate(llama, task, gates[[1, 3]], metric="logprob")
    with counted(llama) as rest:
        values = evaluate(llama, task, gates, lab=Lab(store), metric="logprob").values
    assert sum(rest) <= sum(alone)
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_only_new_examples_are_computed(llama: Model, store: Store) -> None:
    task = toy_task(12, lengths=[6], targets=[1])
    gates = soft_gates(llama, sets=2)
    some = replace(task, examples=task.examples[:7])
    others = replace(task, examples=task.examples[7:])
    expected = evaluate(llama, task, gates, split="all", metric="logprob").values
    evaluate(llama, some, gates, split="all", lab=Lab(store), metric="logprob")
    with counted(llama) as alone:
        evaluate(llama, others, gates, split="all", metric="logprob")
    with counted(llama) as rest:
        values = evaluate(llama, task, gates, split="all", lab=Lab(store), metric="logprob").values
    assert sum(rest) <= sum(alone)
    np.testing.assert_allclose(values, expected, atol=1e-5)


def test_a_head_set_that_comes_twice_is_computed_once(
    llama: Model, task: Task, store: Store
) -> None:
    gates = soft_gates(llama, sets=1)
    with counted(llama) as once:
        expected = evaluate(llama, task, gates, metric="logprob").values
    twice = np.concatenate([gates, gates])
    with counted(llama) as passes:
        values = evaluate(llama, task, twice, lab=Lab(store), metric="logprob").values
    np.testing.assert_allclose(values, np.concatenate([expected, expected]), atol=1e-5)
    assert sum(passes) <= sum(once)


def test_what_differs_in_anything_does_not_collide(store: Store) -> None:
    """Weights, metric, ablation, foils and the prompts behind a mean: each has its own values."""
    task = toy_task(6, lengths=[6], targets=[1])
    gates = np.zeros((1, 8))
    other_corrupted = replace(
        task,
        examples=tuple(
            replace(e, corrupted=" ".join(reversed(e.prompt.split()))) for e in task.examples
        ),
    )
    other_foils = replace(task, examples=tuple(replace(e, foils=(" ba",)) for e in task.examples))
    cases: list[tuple[int, Task, dict[str, str]]] = [
        (seed, task, {"metric": metric, "ablation": ablation})
        for seed in (0, 1)
        for metric in ("logprob", "logit_difference")
        for ablation in ("zero", "mean", "corrupted")
    ]
    cases += [
        (0, other_corrupted, {"ablation": name, "metric": "logprob"})
        for name in ("mean", "corrupted")
    ]
    cases += [(0, other_foils, {"metric": "logit_difference"})]
    models = [wrap(tiny_model("llama", seed=seed), toy_tokenizer(), name="m") for seed in (0, 1)]
    plain = [evaluate(models[s], t, gates, **o).values for s, t, o in cases]
    for _ in range(2):  # the second time everything comes from the store
        for (seed, one, options), expected in zip(cases, plain, strict=True):
            stored = evaluate(models[seed], one, gates, **options, lab=Lab(store))
            np.testing.assert_allclose(stored.values, expected, atol=1e-5)
    assert len({values.tobytes() for values in plain}) == len(plain)


def test_templates_are_part_of_what_a_mean_depends_on(llama: Model, store: Store) -> None:
    """The same prompts, grouped otherwise, have other means by position."""
    task = toy_task(24, lengths=[6], targets=[1])
    halves = replace(
        task,
        examples=tuple(replace(e, template=f"t{i % 2}") for i, e in enumerate(task.examples)),
    )
    gates = np.zeros((1, 8))
    whole, split = (
        evaluate(llama, t, gates, ablation="mean", metric="logprob") for t in (task, halves)
    )
    assert whole.ablation == split.ablation
    assert "per position" in whole.ablation
    assert not np.allclose(whole.values, split.values, atol=1e-3)
    for one, expected in ((task, whole), (halves, split)):
        stored = evaluate(llama, one, gates, ablation="mean", lab=Lab(store), metric="logprob")
        np.testing.assert_allclose(stored.values, expected.values, atol=1e-5)


def test_an_interrupted_run_goes_on_where_it_was(llama: Model, task: Task, store: Store) -> None:
    gates = soft_gates(llama, sets=3)
    expected = evaluate(llama, task, gates, metric="logprob").values
    calls = 0

    def interrupted(scored: Any) -> torch.Tensor:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise KeyboardInterrupt
        return METRICS["logprob"].function(scored)

    metric = Metric("logprob", "Interrupted", interrupted)
    plan = best_plan(llama, tokens=16)
    with pytest.raises(KeyboardInterrupt):
        evaluate(llama, task, gates, metric=metric, lab=Lab(store, plan=plan))
    kept = sum(row.values for row in store.summary())
    assert 3 <= kept < expected.size
    with counted(llama) as whole:
        evaluate(llama, task, gates, lab=Lab(plan=plan), metric="logprob")
    with counted(llama) as rest:
        values = evaluate(llama, task, gates, lab=Lab(store, plan=plan), metric=metric).values
    np.testing.assert_allclose(values, expected, atol=1e-5)
    assert 0 < sum(rest) < sum(whole)


def test_examples_with_equal_tokens_share_a_measurement(llama: Model, store: Store) -> None:
    example = toy_task(1).examples[0]
    other = replace(example, id="other name", prompt=f"{example.prompt} ")
    assert isinstance(other, Example)
    task = Task("doubled", 1, (example, other))
    values = evaluate(llama, task, np.ones(8), split="all", lab=Lab(store), metric="logprob")
    np.testing.assert_allclose(values.values[0, 0], values.values[0, 1], atol=1e-5)
    assert sum(row.values for row in store.summary()) == 1
