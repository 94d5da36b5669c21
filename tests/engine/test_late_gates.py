"""Gates that act at some positions only: equal to the plain loop, and cheap where they act late."""

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
from slow import SlowLoop, projections
from test_plans import made_task, memory_for, passes, some_gates
from tiny import tiny_model
from torch import nn
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, Lab, Store, curve, evaluate, generate, wrap
from headcount.engine.measure import plan as planning
from headcount.engine.measure import runner
from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.cost import Counter
from headcount.engine.measure.head_sets import HeadSets
from headcount.engine.measure.plan import PLAIN, Plan, best_plan
from headcount.engine.measure.positions import acting, read_positions
from headcount.engine.measure.rates import Speed
from headcount.engine.measure.sweep import Sweep
from headcount.engine.write.continuous import decodes_in_slots
from headcount.metrics import get_metric
from headcount.models.model import Model
from headcount.tasks import encode

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore")

LATE = ["llama", "gpt2", "opt", "gpt_neox", "deepseek_v3"]
# Windows, positions that the model makes from distances, linear attention: whole passes.
WHOLE = ["mistral", "gemma3_text", "bloom", "mpt", "qwen3_next"]
WHERE = ["last", "answer", "-4:", "-6:-2", ":3"]


@cache
def built(model_type: str) -> tuple[Model, SlowLoop]:
    module = tiny_model(model_type)
    model = wrap(module, toy_tokenizer())
    return model, SlowLoop(module, projections(module, model_type), model.layout.counts[0])


@pytest.fixture
def llama() -> Model:
    return built("llama")[0]


def measured(model: Model, task: Any, gates: np.ndarray, **options: Any) -> np.ndarray:
    chosen = {"metric": "logprob", "split": "all", "lab": Lab(store=None)} | options
    return evaluate(model, task, gates, **chosen).values


# Equal to the plain loop


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_mlps_that_run_in_pieces_change_no_value(
    model_type: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long texts run their MLPs on a few tokens at a time, which saves memory."""
    model, _ = built(model_type)
    task, gates = toy_task(6, lengths=[40], targets=[2]), some_gates(model, ["soft", "hard"], 1)
    how = {"positions": "answer", "lab": Lab(store=None, plan=best_plan(model, tokens=100))}
    expected = measured(model, task, gates, **how)
    longest: list[int] = []
    mlp = next(part for name, part in model.module.named_modules() if name.endswith("mlp"))
    forward = type(mlp).forward

    def noting(self: Any, x: torch.Tensor, *args: Any) -> Any:
        longest.append(x.shape[1])
        return forward(self, x, *args)

    monkeypatch.setattr(type(mlp), "forward", noting)
    monkeypatch.setattr(runner, "PIECE", 7)
    np.testing.assert_allclose(measured(model, task, gates, **how), expected, atol=2e-6)
    assert longest.count(7) >= 5
    assert left_behind(model.module) == []


@pytest.mark.parametrize("positions", WHERE)
@pytest.mark.parametrize("model_type", [*LATE, *WHOLE])
def test_equals_the_slow_loop(model_type: str, positions: str) -> None:
    """One example, one head set, one pass at a time, by hooks of its own."""
    model, slow = built(model_type)
    assert model.late == (model_type in LATE)
    task = toy_task(8, lengths=[12, 15], targets=[1, 3])
    gates = some_gates(model, ["soft", "ones", "late", "hard", "last"], 1)
    examples = encode(task, model.tokenizer)
    for ablation in ("zero", "corrupted"):
        expected = []
        for one in examples:
            prompt, count = len(one.prompt), len(one.target)
            last = prompt - 1
            at = {
                "last": [last],
                "answer": range(last, last + count),
                "-4:": range(prompt - 4, prompt),
                "-6:-2": range(prompt - 6, prompt - 2),
                ":3": range(3),
            }[positions]
            z0 = slow.nothing() if ablation == "zero" else slow.corrupted(one)
            expected.append([slow.metrics(one, row, z0, at)["logprob"] for row in gates])
        values = measured(model, task, gates, ablation=ablation, positions=positions)
        np.testing.assert_allclose(values.T, expected, atol=1e-4)
    assert left_behind(model.module) == []


@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
@pytest.mark.parametrize("prefix", [0, 12])
@pytest.mark.parametrize("tokens", [1, 40, 5000])
def test_no_plan_changes_a_value(llama: Model, tokens: int, prefix: int, ablation: str) -> None:
    task = made_task([9, 11], [1, 2], prefix=prefix, n=12)
    gates = some_gates(llama, ["soft", "late", "ones", "hard", "last", "soft"], 3)
    options: dict[str, Any] = {"ablation": ablation, "positions": "answer"}
    plain = measured(llama, task, gates, **options, lab=Lab(store=None, plan=Plan(99, PLAIN)))
    everywhere = measured(llama, task, gates, ablation=ablation)
    assert np.abs(plain - everywhere).max() > 0.01
    for plan in (best_plan(llama, tokens=tokens), Plan(tokens, llama.fast_paths)):
        values = measured(llama, task, gates, **options, lab=Lab(store=None, plan=plan))
        np.testing.assert_allclose(values, plain, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_proven_too(dtype: torch.dtype) -> None:
    """Rounding is not mistaken for a fault, nor a fault for rounding."""
    for model_type in ("llama", "gpt2", "opt", "gpt_neox", "mpt"):
        model = wrap(tiny_model(model_type).to(dtype), toy_tokenizer())
        assert model.late == (model_type in LATE)


def test_a_slice_of_all_tokens_is_everything(llama: Model) -> None:
    task, gates = made_task([9], n=4), some_gates(llama, ["soft"], 0)
    sliced = measured(llama, task, gates, positions=slice(None))
    np.testing.assert_allclose(sliced, measured(llama, task, gates), atol=1e-5)


# What runs


def test_earlier_tokens_run_once_for_all_head_sets(llama: Model) -> None:
    task = made_task([20], n=3)
    gates = some_gates(llama, ["soft"] * 10, 0)
    _ = llama.late
    lab = Lab(store=None, plan=best_plan(llama, tokens=100))
    with passes(llama) as shapes:
        measured(llama, task, gates, positions="-4:", lab=lab)
    # Twelve late tokens for each head set: eight head sets in a pass, then two.
    assert shapes == [(3, 16), (3, 4), (3, 32), (3, 8)]


def test_late_passes_start_at_the_first_gated_head(llama: Model) -> None:
    gates = some_gates(llama, ["last", "last"], 0)
    gates[1, -1] = 0.5
    _ = llama.late
    ran: list[int] = []
    handles = [
        layer.mlp.register_forward_pre_hook(lambda *_, number=number: ran.append(number))
        for number, layer in enumerate(llama.module.model.layers)
    ]
    try:
        measured(llama, made_task([20], n=2), gates, positions="last")
    finally:
        for handle in handles:
            handle.remove()
    assert ran == [0, 1, 0, 1, 1]  # the earlier tokens, the late ones, and those under head sets


def test_windows_in_a_mask_of_the_models_own_are_seen() -> None:
    """A window of 256 tokens does not show in the proof's short prompt."""
    assert not wrap(tiny_model("gpt_neo"), toy_tokenizer()).late


class Dynamic(nn.Module):
    rope_type = "dynamic"


def test_rotations_that_depend_on_the_length_are_seen() -> None:
    module = tiny_model("llama")
    module.model.further = Dynamic()
    assert not wrap(module, toy_tokenizer()).late


@contextmanager
def broken(module: nn.Module) -> Iterator[None]:
    """A model that ignores the positions that it is given."""
    usual = module.model.rotary_emb.forward

    def forward(x: torch.Tensor, position_ids: torch.Tensor) -> Any:
        return usual(x, position_ids - position_ids[:, :1] + torch.arange(x.shape[1]) // 6)

    module.model.rotary_emb.forward = forward
    try:
        yield
    finally:
        del module.model.rotary_emb.forward


def test_a_model_that_fails_the_proof_runs_whole_passes() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    with broken(model.module):
        assert not model.late


@pytest.mark.parametrize("fits", [25, 60])
def test_out_of_memory_halves_and_goes_on(llama: Model, fits: int) -> None:
    task, gates = made_task([20], n=6), some_gates(llama, ["soft", "late", "ones", "soft"], 1)
    expected = measured(llama, task, gates, positions="-4:")
    _ = llama.late
    with memory_for(llama, fits):
        lab = Lab(store=None, plan=best_plan(llama, tokens=200))
        values = measured(llama, task, gates, positions="-4:", lab=lab)
    np.testing.assert_allclose(values, expected, atol=1e-4)


# The store, the cost, and words


def test_positions_are_part_of_the_key(llama: Model, tmp_path: Path) -> None:
    task, gates = made_task([20], [2], n=4), some_gates(llama, ["soft"], 0)
    with Store(tmp_path / "store.sqlite") as store:
        lab = Lab(store)
        found = {
            where: measured(llama, task, gates, positions=where, lab=lab)
            for where in ("all", *WHERE)
        }
        assert lab.measured["value"] == 4 * 6
        again = measured(llama, task, gates, positions=slice(-4, None), lab=lab)
        assert lab.measured["value"] == 4 * 6
    assert again.tobytes() == found["-4:"].tobytes()
    assert len({values.tobytes() for values in found.values()}) == 6


def sweep_at(model: Model, positions: str, metric: str = "logprob") -> Sweep:
    table = HeadSets.of(some_gates(model, ["soft"] * 5, 0), model.layout)
    task = made_task([20], n=4)
    return Sweep(model, task, get_metric(metric), table, positions=positions)


def test_the_key_of_gates_that_act_everywhere_has_no_positions(llama: Model) -> None:
    assert "positions" not in sweep_at(llama, "all").context("zero")
    assert sweep_at(llama, "last").context("zero")["positions"] == "last"


def test_only_late_tokens_are_counted_for_each_head_set(llama: Model) -> None:
    counter = Counter()
    counter.sweep(sweep_at(llama, "-3:"))
    prompts = len(sweep_at(llama, "all").examples)
    assert counter.cost.tokens == prompts * (20 + 5 * 3)


def test_the_first_call_runs_late_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work that late gates save decides whether fast paths are proven."""
    small = {"hidden_size": 128, "num_hidden_layers": 4, "max_position_embeddings": 1024}
    model = wrap(tiny_model("llama", **small), toy_tokenizer())
    task, gates = made_task([600], n=2), some_gates(model, ["soft"] * 40, 1)
    lengths: list[int] = []
    known = Speed(token=1e-4, compiled_token=1e-4, launch=0.0, prove=0.5, compile=30.0)
    monkeypatch.setattr(planning, "speed_of", lambda _: known)

    def note(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
        lengths.append(kwargs["input_ids"].shape[1])

    with model.module.register_forward_pre_hook(note, with_kwargs=True):
        measured(model, task, gates, positions="last")
    assert "late" in vars(model)
    assert sum(length >= 599 for length in lengths) <= 2


def test_late_tokens_do_not_spoil_the_remembered_rate(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []
    assert llama.fast_paths.cache  # proven before: so little work would not pay for the proof
    assert llama.late
    monkeypatch.setattr(Lab, "run", lambda *_, tokens, **__: timed.append(tokens))
    for positions in ("all", "-3:"):
        with pytest.raises(HeadcountError, match="did not return"):
            measured(
                llama, made_task([20], n=4), some_gates(llama, ["soft"] * 5, 1), positions=positions
            )
    assert timed == [4 * 5 * 20, 4 * (17 + 5 * 3)]


def test_rotations_that_change_with_the_length_allow_no_cache() -> None:
    """Keys of a short pass are no keys of a long one; prompts of other lengths stay apart."""
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0}
    rope |= {"short_factor": [1.0] * 8, "long_factor": [3.0] * 8}
    rope |= {"original_max_position_embeddings": 16}
    module = tiny_model("llama", max_position_embeddings=64, rope_parameters=rope)
    model = wrap(module, toy_tokenizer())
    assert not model.fast_paths.cache
    assert not decodes_in_slots(model, gated=False)
    task = made_task([9], [1], prefix=12, n=8)
    gates = some_gates(model, ["soft", "late", "ones", "hard"], 1)
    fast, one_by_one = (
        measured(model, task, gates, lab=Lab(store=None, plan=plan))
        for plan in (best_plan(model), Plan(1, PLAIN))
    )
    np.testing.assert_allclose(fast, one_by_one, atol=1e-5)
    prompts = [tuple(range(3, 3 + n)) for n in (20, 5, 6, 4)]
    together = generate(model, prompts, max_new_tokens=7, progress=False)
    alone = [generate(model, [p], max_new_tokens=7, progress=False)[0] for p in prompts]
    assert together == alone


def test_values_and_plans_say_where(llama: Model) -> None:
    task, gates = made_task([20], n=4), some_gates(llama, ["soft"], 0)
    values = evaluate(llama, task, gates, metric="logprob", positions="last")
    assert values.ablation == "zero, only at the positions last"
    found_plan = best_plan(llama).at_positions(llama)
    (batch,) = make_batches(encode(task, llama.tokenizer), tokens=500)
    assert "tokens before all positions where gates act" in found_plan.explain([batch], 1)
    assert (found_plan.late, found_plan.compile) == (True, False)
    assert not found_plan.fast_paths.cache
    found = curve(
        llama, task, "random", metric="logprob", counts=[0, 2], series=["top"], positions="answer"
    )
    assert "positions answer" in found.ablation


def test_positions_by_name_and_by_slice() -> None:
    assert read_positions(slice(2, -1)) == read_positions(" 2 : -1 ") == "2:-1"
    assert acting("2:-1", prompt=10, target=2) == range(2, 9)
    assert acting("all", prompt=10, target=2) == range(11)
    for wrong in ("first", "1", "1:2:3", "a:b", slice(0, 4, 2), slice(0.5, None), 3, None):
        with pytest.raises(HeadcountError, match=r"Cannot gate at the positions .* such as -8:"):
            read_positions(wrong)


def test_what_cannot_be_gated_there_is_refused(llama: Model) -> None:
    task, gates = made_task([4, 20], n=4), some_gates(llama, ["soft"], 0)
    with pytest.raises(HeadcountError, match=r'"e0" has 4 tokens, and none of them is in .* 9:12'):
        evaluate(llama, task, gates, positions="9:12")
    with pytest.raises(HeadcountError, match="exact_match lets the model write: leave the pos"):
        evaluate(llama, task, gates, metric="exact_match", positions="last")
