"""Recordings of the ungated pass: no larger than needed, and none where it saves nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_plans import made_task, model_of, passes, some_gates
from tiny import tiny_model
from toy import toy_tokenizer

from headcount import Lab, evaluate, wrap
from headcount.engine.measure import recorded
from headcount.engine.measure.batch import LONG, make_batches
from headcount.engine.measure.plan import PLAIN, Plan, best_plan
from headcount.engine.measure.recorded import stretches
from headcount.engine.measure.runner import Runner
from headcount.models.fast_paths import Trunk
from headcount.models.model import Model
from headcount.tasks import Encoded, Example

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def deep() -> Model:
    return wrap(tiny_model("llama", num_hidden_layers=6), toy_tokenizer())


def measured(model: Model, gates: np.ndarray, plan: Plan, **options: Any) -> np.ndarray:
    lab = Lab(store=None, plan=plan)
    task = made_task([7, 9], n=6)
    return evaluate(model, task, gates, metric="logprob", split="all", lab=lab, **options).values


@pytest.mark.parametrize("kinds", [["late"] * 9, ["one off"] * 7 + ["ones"], ["soft", "last"]])
@pytest.mark.parametrize("model_type", ["llama", "gpt_neox", "bloom", "bert", "longcat_flash"])
def test_a_recording_in_many_stretches_changes_nothing(
    model_type: str, kinds: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(model_type)
    gates = some_gates(model, kinds, 5)
    plain = measured(model, gates, Plan(99, PLAIN))
    monkeypatch.setattr(recorded, "SMALL", 1)
    monkeypatch.setattr(recorded, "SHARE", 0)
    values = measured(model, gates, best_plan(model, tokens=60))
    np.testing.assert_allclose(values, plain, atol=1e-4)


@pytest.mark.parametrize("whole", [False, True])
def test_all_stretches_together_cost_one_pass(
    deep: Model, whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what runs with all heads, each block runs once; of what is kept, little at a time."""
    monkeypatch.setattr(recorded, "SMALL", 1)
    monkeypatch.setattr(recorded, "SHARE", 0)
    ran: list[int] = []
    kept: list[int] = []
    usual = Runner.whole

    def noting(self: Runner, *how: Any) -> Any:
        handles = [
            layer.mlp.register_forward_pre_hook(lambda *_, number=number: ran.append(number))
            for number, layer in enumerate(deep.module.model.layers)
        ]
        try:
            return usual(self, *how)
        finally:
            for handle in handles:
                handle.remove()
            assert self.rest.recording is not None
            kept.append(len(self.rest.recording.blocks) + len(self.rest.recording.inputs))

    _ = deep.fast_paths
    monkeypatch.setattr(Runner, "whole", noting)
    gates = np.ones((13, deep.layout.total))
    for layer in range(6):
        gates[2 * layer : 2 * layer + 2, deep.layout.starts[layer]] = [0, 0.5]
    gates = gates if whole else gates[:12]
    measured(deep, gates, Plan(20, deep.fast_paths))
    batches = 4  # of one or two rows of 7 or 9 tokens
    assert ran == list(range(6)) * batches
    assert len(kept) == 6 * batches
    assert max(kept) <= 3  # a block's input, the heads' outputs, and where the pass goes on


def test_nothing_is_recorded_where_all_head_sets_start_in_the_first_layer(deep: Model) -> None:
    gates = np.ones((3, deep.layout.total))
    gates[:, 0], gates[:, -3:] = 0, np.eye(3)
    _ = deep.fast_paths
    for sets, shapes_of_batch in ((gates, 1), (np.concatenate([gates, gates[:1] * 0 + 1]), 2)):
        with passes(deep) as shapes:
            measured(deep, sets, best_plan(deep, tokens=4000))
        assert len(shapes) == 2 * shapes_of_batch  # two lengths


@given(
    starts=st.lists(st.integers(0, 5), max_size=8),
    whole=st.booleans(),
    attention=st.booleans(),
    most=st.integers(1, 4),
)
def test_stretches_hold_each_pass_once_and_in_order(
    starts: list[int], whole: bool, attention: bool, most: int
) -> None:
    trunk = Trunk(tuple("abcd"), (0, 0, 1, 2, 2, 3), ())
    asked = [([place], start) for place, start in enumerate(starts)]
    found = list(stretches(asked, trunk, attention, whole, most))
    given_back = [one for stretch in found for one in stretch.passes]
    assert sorted(rows for rows, _ in given_back) == [rows for rows, _ in asked]
    assert all(start <= starts[place] for (place,), start in given_back)
    assert (found[-1].last is None and found[-1].runs) == whole
    reached = -1
    for stretch in found:
        assert {start for _, start in stretch.passes} <= {0, *stretch.starts}
        assert all(trunk.block_of[start] > reached for start in stretch.starts)
        reached = len(trunk.blocks) if stretch.last is None else stretch.last
        assert len({trunk.block_of[start] for start in stretch.starts}) <= most


def test_long_texts_run_by_themselves_where_that_keeps_a_gpu_busy() -> None:
    text = Example("0", "made", " up")
    long, short = (Encoded(text, (5,) * length, (1,), (), None) for length in (LONG, 10))
    examples = [long] * 4 + [short] * 40
    rows = [batch.rows for batch in make_batches(examples, tokens=1 << 15, long_tokens=600)]
    assert rows == [1, 1, 1, 1, 40]
    plan = Plan(1 << 15, fold=True, long_tokens=600)
    assert [plan.tokens_at_once(length, 1 << 15) for length in (LONG, 10)] == [600, 1 << 15]


def test_where_a_pass_may_stop(deep: Model) -> None:
    """Blocks after the last one do not run, and the recording goes on where it stopped."""
    paths = deep.fast_paths
    (batch,) = make_batches(
        [Encoded(Example("0", "made", " up"), (5, 6, 7), (1,), (), None)], tokens=99
    )
    runner = Runner(deep, batch, Plan(99, paths), None)
    with torch.no_grad():
        expected = Runner(deep, batch, Plan(99, PLAIN), None).whole([]).logits
        runner.whole([1], 2)
        assert runner.rest.recording is not None
        assert sorted(runner.rest.recording.blocks) == [0, 2]
        got = runner.whole([4]).logits
        assert sorted(runner.rest.recording.blocks) == [3]
    torch.testing.assert_close(got, expected)
