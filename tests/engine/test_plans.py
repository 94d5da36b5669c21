"""Plans: whichever is picked, and whatever happens on the way, the values are the plain loop's."""

from __future__ import annotations

import logging
import random
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fast_paths_of_model import left_behind
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import NO_SOFTMAX_ATTENTION, NOT_CAUSAL, NOT_DECODER_ONLY_TEXT, model_types, tiny_model
from torch._dynamo.testing import CompileCounter
from toy import WORDS, toy_tokenizer

from headcount import Example, HeadcountError, Store, Task, evaluate, wrap
from headcount.engine.measure import compiled
from headcount.engine.measure.batch import make_batches
from headcount.engine.measure.plan import PLAIN, Plan, best_plan
from headcount.engine.measure.runner import Runner, chunks
from headcount.lab import Lab
from headcount.models.model import Model
from headcount.tasks import encode

# The slow paths of transformers warn about kernels that are not installed.
pytestmark = pytest.mark.filterwarnings("ignore")

ARCHITECTURES = {
    "llama": {"num_hidden_layers": 3},  # grouped heads
    "gpt2": {"n_layer": 3},  # learned positions
    "gpt_neox": {"num_hidden_layers": 3},  # attention and MLP side by side
    "bloom": {},  # starts at the block, not at the projection
    "opt": {},  # the last block runs whole
    "bert": {},  # attention and projection in different modules
    "mixtral": {},  # experts, and a window of 8 tokens
    "gemma2": {},  # norms after the projection, windows
    "deepseek_v3": {},  # values narrower than queries; experts
    "gpt_oss": {},  # sinks
    "longcat_flash": {},  # two attentions to a block
    "qwen3_next": {},  # linear attention in most layers: no cache to split
    "gemma3n_text": {},  # every block runs
    "hrm_text": {},  # blocks run several times
}


@cache
def model_of(model_type: str) -> Model:
    return wrap(tiny_model(model_type, **ARCHITECTURES[model_type]), toy_tokenizer())


@pytest.fixture
def llama() -> Model:
    return model_of("llama")


def made_task(
    lengths: Sequence[int],
    targets: Sequence[int] = (1,),
    *,
    prefix: int = 0,
    corrupted: str = "same",
    templates: bool = True,
    n: int = 8,
    seed: int = 0,
) -> Task:
    """Random sentences behind an instruction of `prefix` words that all share.

    The corrupted prompts have the same in front of them, all another one, or each its own.
    """
    rng = random.Random(seed)

    def words(count: int) -> list[str]:
        return [rng.choice(WORDS) for _ in range(count)]

    mine, other = words(prefix), words(prefix)
    examples = []
    for number in range(n):
        length = lengths[number % len(lengths)]
        *answer, foil, foil_2 = rng.sample(WORDS, targets[number % len(targets)] + 2)
        before = {"same": mine, "another": other, "own": words(prefix)}[corrupted]
        last, other_last = rng.sample(WORDS, 2)
        examples.append(
            Example(
                id=f"e{number}",
                prompt=" ".join([*mine, *words(length - 1), last]),
                target="".join(f" {word}" for word in answer),
                foils=(f" {foil}", f" {foil_2}"),
                corrupted=" ".join([*before, *words(length - 1), other_last]),
                template=f"t{length}" if templates else "",
                content=f"c{number // 2}",
            )
        )
    return Task(f"made-{seed}", 1, tuple(examples))


def some_gates(model: Model, kinds: list[str], seed: int) -> np.ndarray:
    """One head set of each kind."""
    rng = np.random.default_rng(seed)
    layout = model.layout
    rows = []
    for kind in kinds:
        row = np.ones(layout.total)
        if kind == "hard":
            row = rng.integers(0, 2, layout.total).astype(float)
        elif kind == "soft":
            row = rng.uniform(-0.5, 1.5, layout.total)
        elif kind == "late":
            start = rng.integers(0, layout.total)
            row[start:] = rng.uniform(-0.5, 1.5, layout.total - start)
        elif kind == "one off":
            row[rng.integers(0, layout.total)] = 0
        elif kind == "last":
            row[layout.starts[-1] :] = 0
        rows.append(row)
    return np.stack(rows)


@dataclass(frozen=True)
class Case:
    """All that the values of one call depend on, and the plan that they must not depend on."""

    model_type: str
    kinds: list[str]
    lengths: list[int]
    targets: list[int]
    prefix: int
    corrupted: str
    ablation: str
    tokens: int
    fold: bool
    metric: str
    seed: int

    def values(self, plan: Plan) -> np.ndarray:
        model = model_of(self.model_type)
        task = made_task(
            self.lengths,
            self.targets,
            prefix=self.prefix,
            corrupted=self.corrupted,
            seed=self.seed,
        )
        return evaluate(
            model,
            task,
            some_gates(model, self.kinds, self.seed),
            metric=self.metric,
            ablation=self.ablation,
            split="all",
            lab=Lab(plan=plan),
        ).values


KINDS = ["ones", "hard", "soft", "late", "one off", "last"]

CASES = st.builds(
    Case,
    model_type=st.sampled_from(list(ARCHITECTURES)),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=5),
    lengths=st.lists(st.integers(1, 11), min_size=1, max_size=3),
    targets=st.lists(st.integers(1, 3), min_size=1, max_size=2),
    prefix=st.sampled_from([0, 3, 8, 13]),
    corrupted=st.sampled_from(["same", "another", "own"]),
    ablation=st.sampled_from(["zero", "mean", "corrupted"]),
    tokens=st.sampled_from([1, 30, 100, 400, 5000]),
    fold=st.booleans(),
    metric=st.sampled_from(["logprob", "logprob_difference"]),
    seed=st.integers(0, 99),
)


def assert_the_same_values(case: Case) -> None:
    model = model_of(case.model_type)
    plan = Plan(case.tokens, model.fast_paths, fold=case.fold)
    values = case.values(plan)
    np.testing.assert_allclose(values, case.values(Plan(100, PLAIN)), atol=1e-4)
    assert values.tobytes() == case.values(plan).tobytes()


@given(case=CASES)
@settings(max_examples=60)
def test_no_plan_changes_a_value(case: Case) -> None:
    assert_the_same_values(case)


REFUSED = {"blt", "jetmoe", "prophetnet", "reformer", "xlnet"}  # see test_architectures
LEFT_OUT = REFUSED | set(NOT_CAUSAL) | set(NO_SOFTMAX_ATTENTION) | set(NOT_DECODER_ONLY_TEXT)


@pytest.mark.parametrize("model_type", sorted(set(model_types()) - LEFT_OUT))
def test_every_architecture_by_its_best_plan(model_type: str) -> None:
    """With a prefix in front, where caches can be split, and starts at every site."""
    model = wrap(tiny_model(model_type), toy_tokenizer())
    if not model.fast_paths.cache:  # replays alone: see test_replay
        return
    task = made_task([4], prefix=9, n=4)
    gates = np.ones((len(model.sites), model.layout.total))
    for start, row in zip(model.layout.starts, gates, strict=True):
        row[start:] = np.random.default_rng(start).uniform(-0.5, 1.5, model.layout.total - start)
    plain, best = (
        evaluate(model, task, gates, split="all", lab=Lab(plan=plan), metric="logprob").values
        for plan in (Plan(500, PLAIN), Plan(60, model.fast_paths, fold=True))
    )
    np.testing.assert_allclose(best, plain, atol=1e-4)
    assert left_behind(model.module) == []


# How the work is cut


@given(
    starts=st.lists(st.integers(0, 5), max_size=12),
    most=st.integers(1, 5),
)
def test_chunks_hold_each_set_once_and_start_no_later_than_it(starts: list[int], most: int) -> None:
    found = list(chunks(starts, most, sites=6))
    assert sorted(place for places, _ in found for place in places) == list(range(len(starts)))
    for places, start in found:
        assert 1 <= len(places) <= most
        assert start == min(starts[place] for place in places)
    # Sets that start late are not made to start early by a neighbour that could be elsewhere.
    earliest = [start for _, start in found]
    assert earliest == sorted(earliest)


@contextmanager
def passes(model: Model) -> Iterator[list[tuple[int, int]]]:
    """Rows and tokens of every forward pass, appended as it happens."""
    model.fast_paths  # which are proven once, by passes of their own
    shapes: list[tuple[int, int]] = []

    def note(_: Any, args: Any, kwargs: dict[str, Any]) -> None:
        shapes.append(tuple(kwargs["input_ids"].shape))

    handle = model.module.register_forward_pre_hook(note, with_kwargs=True)
    try:
        yield shapes
    finally:
        handle.remove()


def test_passes_hold_as_many_tokens_as_the_plan_says(llama: Model) -> None:
    task = made_task([10], n=6)
    gates = some_gates(llama, ["soft"] * 7, 0)
    for tokens, widest in ((1, 10), (20, 20), (65, 60), (130, 120), (10_000, 420)):
        with passes(llama) as shapes:
            evaluate(
                llama,
                task,
                gates,
                split="all",
                lab=Lab(plan=Plan(tokens, llama.fast_paths, fold=True)),
                metric="logprob",
            )
        assert max(rows * length for rows, length in shapes) == widest


def test_the_shared_prefix_runs_once_per_head_set(llama: Model) -> None:
    task = made_task([5], prefix=12, n=6)
    gates = some_gates(llama, ["soft", "soft"], 0)
    with passes(llama) as shapes:
        evaluate(
            llama,
            task,
            gates,
            split="all",
            lab=Lab(plan=Plan(500, llama.fast_paths, fold=True)),
            metric="logprob",
        )
    assert shapes == [(1, 12), (6, 5), (2, 12), (12, 5)]


@pytest.mark.parametrize(("corrupted", "shared"), [("same", 12), ("another", 12), ("own", 0)])
def test_ablations_must_be_shared_too(llama: Model, corrupted: str, shared: int) -> None:
    task = made_task([5], prefix=12, n=6, corrupted=corrupted)
    with passes(llama) as shapes:
        evaluate(
            llama,
            task,
            some_gates(llama, ["soft"], 0),
            ablation="corrupted",
            split="all",
            lab=Lab(plan=Plan(500, llama.fast_paths)),
            metric="logprob",
        )
    assert ((1, 12) in shapes) == bool(shared)


def test_a_late_set_runs_few_blocks(llama: Model) -> None:
    """Of three blocks, only what follows the last output projection."""
    ran: list[int] = []
    handles = [
        layer.mlp.register_forward_pre_hook(lambda *_, number=number: ran.append(number))
        for number, layer in enumerate(llama.module.model.layers)
    ]
    gates = some_gates(llama, ["last", "last"], 0)
    gates[1, -1] = 0.5
    llama.fast_paths
    ran.clear()
    lab = Lab(plan=best_plan(llama))
    evaluate(llama, made_task([7], n=4), gates, split="all", metric="logprob", lab=lab)
    for handle in handles:
        handle.remove()
    assert ran == [0, 1, 2, 2]


# Memory


@contextmanager
def memory_for(model: Model, tokens: int) -> Iterator[list[int]]:
    """A device that holds no more than so many tokens at once, noticed late in a pass."""
    model.fast_paths
    tried: list[int] = []

    def allocate(_: Any, args: Any) -> None:
        tried.append(args[0].shape[0] * args[0].shape[1])
        if tried[-1] > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")

    handle = model.module.model.norm.register_forward_pre_hook(allocate)
    try:
        yield tried
    finally:
        handle.remove()


@pytest.mark.parametrize("prefix", [0, 12])
@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
@pytest.mark.parametrize("fits", [25, 60, 100])
def test_out_of_memory_halves_and_goes_on(
    llama: Model, fits: int, ablation: str, prefix: int
) -> None:
    task = made_task([4, 7, 9], prefix=prefix, n=18)
    gates = some_gates(llama, ["soft", "late", "ones", "soft", "last"], 1)
    options: dict[str, Any] = {"ablation": ablation, "split": "all", "metric": "logprob"}
    expected = evaluate(llama, task, gates, **options, lab=Lab(plan=Plan(500, PLAIN))).values
    with memory_for(llama, fits) as tried:
        values = evaluate(
            llama, task, gates, **options, lab=Lab(plan=best_plan(llama, tokens=400))
        ).values
    np.testing.assert_allclose(values, expected, atol=1e-4)
    assert max(tried) > fits
    # What did not fit once is not tried again and again.
    assert sum(one > fits for one in tried) < 12


def test_a_batch_after_the_first_that_did_not_fit_is_cut_before_it_runs(llama: Model) -> None:
    task = made_task([10], n=24)
    with memory_for(llama, 40) as tried:
        evaluate(
            llama,
            task,
            some_gates(llama, ["soft"], 0),
            split="all",
            lab=Lab(plan=Plan(80, llama.fast_paths)),
            metric="logprob",
        )
    assert sum(one > 40 for one in tried) == 1


def test_one_example_that_does_not_fit_is_a_sentence(llama: Model) -> None:
    task = made_task([4, 9], n=8)
    gates = some_gates(llama, ["soft"], 0)
    for ablation in ("zero", "mean", "corrupted"):
        with (
            memory_for(llama, 8),
            pytest.raises(HeadcountError, match=r"not enough memory .* single example of 9 tokens"),
        ):
            evaluate(llama, task, gates, ablation=ablation, split="all", metric="logprob")
    assert left_behind(llama.module) == []


def test_other_errors_are_not_taken_for_a_lack_of_memory(llama: Model) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    llama.fast_paths
    handle = llama.module.model.norm.register_forward_pre_hook(broken)
    try:
        with pytest.raises(RuntimeError, match="mat1 and mat2"):
            evaluate(llama, made_task([4]), some_gates(llama, ["soft"], 0), metric="logprob")
    finally:
        handle.remove()
    assert left_behind(llama.module) == []


def test_memory_is_free_again_before_the_next_try(
    llama: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error that is being handled holds on to all tensors of the pass that failed."""
    made: list[weakref.ref[Runner]] = []

    class Watched(Runner):
        def __init__(self, *args: Any) -> None:
            assert all(ref() is None for ref in made)
            super().__init__(*args)
            made.append(weakref.ref(self))

    monkeypatch.setattr("headcount.engine.measure.measuring.Runner", Watched)
    with memory_for(llama, 30):
        evaluate(
            llama,
            made_task([10], n=8),
            some_gates(llama, ["soft"], 0),
            split="all",
            lab=Lab(plan=Plan(80, llama.fast_paths)),
            metric="logprob",
        )
    assert len(made) > 4


# The store


@pytest.mark.parametrize("prefix", [0, 12])
@pytest.mark.parametrize("stops", [1, 2, 4])
def test_what_was_finished_is_kept(llama: Model, tmp_path: Path, prefix: int, stops: int) -> None:
    """Killed at any chunk; what had been finished by then is not measured again."""
    task = made_task([4, 7], prefix=prefix, n=8)
    gates = some_gates(llama, ["soft"] * 6, 2)
    plan = Plan(60, llama.fast_paths, fold=True)
    options: dict[str, Any] = {"split": "all", "metric": "logprob"}
    expected = evaluate(llama, task, gates, **options, lab=Lab(plan=plan)).values
    left = [stops]

    def stop(*_: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt

    with Store(tmp_path / "store.sqlite") as store:
        handle = llama.module.register_forward_pre_hook(stop)
        try:
            with pytest.raises(KeyboardInterrupt):
                evaluate(llama, task, gates, **options, lab=Lab(store, plan=plan))
        finally:
            handle.remove()
        kept = sum(row.values for row in store.summary())
        assert kept < expected.size
        with passes(llama) as whole:
            evaluate(llama, task, gates, **options, lab=Lab(plan=plan))
        with passes(llama) as rest:
            values = evaluate(llama, task, gates, **options, lab=Lab(store, plan=plan)).values
        assert (len(rest) < len(whole)) == (kept > 0)
        assert sum(row.values for row in store.summary()) == expected.size
    np.testing.assert_allclose(values, expected, atol=1e-5)
    assert left_behind(llama.module) == []


# In words


def test_a_plan_in_words(llama: Model) -> None:
    encoded = encode(made_task([4, 6], prefix=10, n=6), llama.tokenizer)
    batches = make_batches(encoded, tokens=200)
    best = best_plan(llama, tokens=200).explain(batches, 3, known=4)
    assert best.splitlines() == [
        "  3 head sets × 6 examples of 14 to 16 tokens; 4 values known already",
        "  passes start at the first gated head, at its output projection",
        "  only at the last positions of each pass: logits and the last block's MLP",
        "  the first 10 tokens, where a batch (and its ablations) shares them, once per head set",
        "  up to 200 tokens at once, head sets side by side",
    ]
    plain = Plan(64).explain(batches[:1], 1)
    assert plain.splitlines() == [
        "  1 head set × 3 examples of 14 tokens",
        "  every pass runs all blocks",
        "  logits at all positions",
        "  no tokens that a batch shares at its start",
        "  up to 64 tokens at once, one head set after the other",
    ]
    block = replace(llama.fast_paths, attention=False, scored=False)
    assert "at its block" in Plan(64, block).explain(batches, 1)
    assert "last block" not in Plan(64, block).explain(batches, 1)
    assert "compiled" in Plan(64, block, compile=True).explain(batches, 1)


def test_the_plan_is_told_before_it_is_carried_out(
    llama: Model, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    task, gates = made_task([4]), some_gates(llama, ["soft", "soft"], 0)
    with Store(tmp_path / "store.sqlite") as store:
        for expected in ("2 head sets × 4 examples", "nothing to do: all 8 values are known"):
            caplog.clear()
            with caplog.at_level(logging.INFO, logger="headcount.plan"):
                evaluate(llama, task, gates, lab=Lab(store), metric="logprob")
            assert expected in caplog.text
    caplog.clear()
    evaluate(llama, task, gates, metric="logprob")
    assert caplog.text == ""


# Compiled


@pytest.fixture
def counter(monkeypatch: pytest.MonkeyPatch) -> Iterator[CompileCounter]:
    """Compiles for real, but runs what was compiled as it is, and counts the graphs."""
    counter = CompileCounter()
    monkeypatch.setattr(
        compiled, "_compiled", cache(lambda forward: torch.compile(forward, backend=counter))
    )
    torch._dynamo.reset()
    yield counter
    torch._dynamo.reset()


@pytest.mark.parametrize("ablation", ["zero", "mean", "corrupted"])
def test_compiled_blocks_give_the_same(counter: CompileCounter, ablation: str) -> None:
    model = wrap(tiny_model("llama", num_hidden_layers=6), toy_tokenizer())
    task = made_task([6], n=4)
    gates = some_gates(model, ["soft"] * 4 + ["late"] * 3 + ["ones", "last"], 0)
    options: dict[str, Any] = {"ablation": ablation, "split": "all", "metric": "logprob"}
    plain = evaluate(model, task, gates, **options, lab=Lab(plan=Plan(500, PLAIN))).values
    assert counter.frame_count == 0
    plan = Plan(48, model.fast_paths, fold=True, compile=True)
    values = evaluate(model, task, gates, **options, lab=Lab(plan=plan)).values
    np.testing.assert_allclose(values, plain, atol=1e-4)
    # One graph for all blocks; another where the last chunk has fewer rows.
    assert 1 <= counter.frame_count <= 2
    assert left_behind(model.module) == []


def test_what_cannot_be_compiled_is_run_as_it_is(counter: CompileCounter) -> None:
    """Heads that are only a part of what the projection takes, and prefixes."""
    llama, beside = model_of("llama"), model_of("hrm_text")
    gates = {model: some_gates(model, ["soft", "soft"], 0) for model in (llama, beside)}
    for model, prefix in ((beside, 0), (llama, 12)):
        values, expected = (
            evaluate(
                model,
                made_task([4, 6], prefix=prefix),
                gates[model],
                lab=Lab(plan=plan),
                metric="logprob",
            ).values
            for plan in (
                Plan(100, model.fast_paths, fold=True, compile=True),
                Plan(100, PLAIN),
            )
        )
        np.testing.assert_allclose(values, expected, atol=1e-4)
    assert counter.frame_count == 0


def test_a_model_that_its_user_compiled(task_of_fours: Task) -> None:
    """Its graphs do not see hooks that came after them, so they are not used."""
    torch._dynamo.reset()
    counter = CompileCounter()
    module = tiny_model("llama")
    plain = wrap(module, toy_tokenizer())
    model = wrap(torch.compile(module, backend=counter), toy_tokenizer())
    batch = make_batches(encode(task_of_fours, model.tokenizer), tokens=500)[0]
    with torch.no_grad():
        model.module(input_ids=batch.ids, use_cache=False)  # a graph of this shape is ready
    graphs = counter.frame_count
    assert graphs
    gates = some_gates(model, ["soft", "late", "ones"], 0)
    for ablation in ("zero", "mean", "corrupted"):
        options: dict[str, Any] = {"ablation": ablation, "split": "all", "metric": "logprob"}
        values = evaluate(model, task_of_fours, gates, **options).values
        expected = evaluate(
            plain, task_of_fours, gates, **options, lab=Lab(plan=Plan(500, PLAIN))
        ).values
        np.testing.assert_allclose(values, expected, atol=1e-4)
    assert model.fast_paths == plain.fast_paths
    assert counter.frame_count == graphs
    torch._dynamo.reset()


@pytest.fixture
def task_of_fours() -> Task:
    return made_task([4])
