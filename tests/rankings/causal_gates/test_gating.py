"""Causal gates: planted roles, rows that do not know of each other, resuming, and bad input."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import Plant, plant
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import Example, HeadcountError, HeadLayout, Lab, Task, evaluate, rank, wrap
from headcount.engine.measure.forward import frozen, measuring
from headcount.models.model import Model
from headcount.rankings.causal_gates import training as gating_train
from headcount.rankings.causal_gates.contrast import contrast, fit_contrastive
from headcount.rankings.causal_gates.fit import FitSettings, GateFit, RoleSettings, fit_gates
from headcount.rankings.causal_gates.passes import GatedPasses
from headcount.rankings.causal_gates.prompts import Prompts, lay_out, load_prompts, passes
from headcount.rankings.causal_gates.rankings import facilitation, interference, irrelevance
from headcount.rankings.causal_gates.result import ROLES, CausalGates
from headcount.rankings.causal_gates.schedule import Stage, batch_order, first_logits, make_schedule
from headcount.rankings.causal_gates.training import State, fidelity, push, train
from headcount.store import Store
from headcount.tasks import encode

PLANTS: dict[str, dict[str, Any]] = {
    "one layer": {"needed": ["0.2"], "interfering": ["0.0"], "layers": 1},
    "spread": {"needed": ["0.1", "1.3", "2.0"], "interfering": ["0.2", "2.1"]},
    "no interference": {"needed": ["0.0", "1.1"], "layers": 2, "heads": 2},
    "odd": {"needed": ["0.0", "1.2"], "interfering": ["1.1"], "layers": 2, "heads": 3},
    "deep": {
        "needed": ["0.0", "1.1", "2.2"],
        "interfering": ["1.5", "4.0"],
        "layers": 5,
        "heads": 6,
    },
}
ROLE = {"needed": "facilitation", "irrelevant": "irrelevance", "interfering": "interference"}
QUICK: dict[str, Any] = {"updates": 40, "batch": 16, "seeds": 2, "tokens": 1024}


@cache
def built(model_type: str = "llama") -> Model:
    return wrap(tiny_model(model_type), toy_tokenizer())


@cache
def spread() -> Plant:
    return plant(**PLANTS["spread"], n=64, seed=2)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


def prompts_of(model: Model, task: Task) -> Prompts:
    return load_prompts(model, encode(task.part("ranking"), model.tokenizer))


def start(model: Model, rows: int) -> torch.Tensor:
    return State.at(
        [first_logits(row, model.layout.total) for row in range(rows)], model.device
    ).logits


def gradient(
    model: Model, prompts: Prompts, batches: np.ndarray, *, tokens: int = 512, **how: Any
) -> np.ndarray:
    run = GatedPasses(model, tokens=tokens)
    for name, value in how.items():
        setattr(run, name, value)
    with measuring(model), frozen(model):
        return fidelity(run, prompts, batches[:, None])(start(model, len(batches)), 0).numpy()


# Roles


@pytest.mark.parametrize("name", PLANTS)
def test_the_role_of_every_planted_head_is_found(name: str) -> None:
    planted = plant(**PLANTS[name], n=64, seed=len(name))
    gates = fit_gates(planted.model, planted.task, **QUICK)
    truth = [ROLE[planted.roles[head]] for head in planted.model.layout]
    for seed in (0, 1, None):
        assert gates.labels(seed).tolist() == truth
    for role in ROLES:
        has = np.array([its == role for its in truth])
        assert (gates.has_role(role) == has).all()
        assert (gates.has_role_on_average(role) == has).all()


def test_the_released_schedule_finds_them_too() -> None:
    planted = spread()
    gates = fit_gates(planted.model, planted.task, variant="released", **QUICK)
    truth = [ROLE[planted.roles[head]] for head in planted.model.layout]
    assert gates.labels().tolist() == truth
    assert gates.parameters["variant"] == "released"


def test_the_rankings_are_the_scores_of_one_fit(store: Store) -> None:
    planted = spread()
    settings = RoleSettings(QUICK["updates"], QUICK["batch"], QUICK["seeds"])
    found = {
        method.__name__: method(planted.model, planted.task, settings, lab=Lab(store))
        for method in (facilitation, irrelevance, interference)
    }
    assert set(found) == set(ROLES)
    best = {role: set(scores.top(2)) for role, scores in found.items()}
    assert best["facilitation"] <= set(planted.heads("needed"))
    assert best["interference"] == set(planted.heads("interfering"))
    assert best["irrelevance"] <= set(planted.heads("irrelevant"))
    for scores in found.values():
        assert scores.samples is not None
        assert scores.samples.shape == (2, planted.model.layout.total)
        np.testing.assert_allclose(scores.values, scores.samples.mean(0))


# The loss


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "bloom", "qwen3_next"])
def test_the_gradient_is_that_of_the_mean_logprob_of_target_tokens(model_type: str) -> None:
    """Against differences of evaluate, which knows nothing of any fit."""
    model, task = built(model_type), toy_task(24, targets=(1, 2, 3))
    prompts = prompts_of(model, task)
    batch = np.arange(len(prompts))[None]
    slope = gradient(model, prompts, batch)[0]
    middle = start(model, 1).double().numpy()
    step = 2.0**-6
    steps = step * np.eye(model.layout.total)
    up, down = (
        evaluate(
            model,
            task,
            1 / (1 + np.exp(-(middle + sign * steps))),
            metric="logprob_mean",
            part="ranking",
        ).mean()
        for sign in (1, -1)
    )
    np.testing.assert_allclose(slope, -(up - down) / (2 * step), atol=2e-4)
    assert np.abs(slope).max() > 0.005


def test_the_push_is_the_derivative_of_the_clamped_mean() -> None:
    logits = torch.tensor([[-5.0, -4.0, 0.5, 4.0, 4.5]] * 2, requires_grad=True)
    strength = torch.tensor([0.1, -0.1])
    loss = -(strength * logits.clamp(-4, 4).mean(1)).sum()
    (expected,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(push(logits.detach(), strength), expected)
    opened, shut = push(torch.zeros(2, 3), strength)
    assert (opened < 0).all()  # Adam goes against the gradient: λ > 0 opens
    assert (shut > 0).all()


@pytest.mark.parametrize("clip", [None, 0.5])
def test_a_step_is_torchs_adam_on_each_row_alone(clip: float | None) -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(12, 3, 7, generator=generator)
    stage = Stage(12, 0.5, 0.1, clip)
    state = State.at([first_logits(row, 7) for row in range(3)], torch.device("cpu"))
    rows = [torch.nn.Parameter(row.clone()) for row in state.logits]
    for row, parameter in enumerate(rows):
        adam = torch.optim.Adam([parameter], lr=stage.lr)
        linear = torch.optim.lr_scheduler.LinearLR(adam, 1.0, stage.lr_end / stage.lr, 12)
        for given in gradients[:, row]:
            parameter.grad = given.clone()
            if clip is not None:
                torch.nn.utils.clip_grad_norm_([parameter], clip)
            adam.step()
            linear.step()
    for given in gradients:
        state.step(given, stage)
    torch.testing.assert_close(state.logits, torch.stack([row.detach() for row in rows]))


# Rows and passes


@pytest.mark.parametrize("model_type", ["llama", "gpt2", "qwen3_next"])
@pytest.mark.parametrize("tokens", [1, 13, 40, 100_000])
def test_how_an_update_is_cut_changes_no_gradient(model_type: str, tokens: int) -> None:
    model = built(model_type)
    prompts = prompts_of(model, toy_task(24, targets=(1, 2, 3)))
    batches = np.random.default_rng(0).integers(0, len(prompts), (3, 5))
    expected = gradient(model, prompts, batches, tokens=77)
    np.testing.assert_allclose(
        gradient(model, prompts, batches, tokens=tokens), expected, atol=2e-6
    )


def test_lengths_kept_apart_recomputed_blocks_and_whole_logits_give_the_same() -> None:
    model = built()
    task = toy_task(24, targets=(1, 2, 3))
    prompts = prompts_of(model, task)
    batches = np.random.default_rng(0).integers(0, len(prompts), (3, 5))
    expected = gradient(model, prompts, batches)
    assert prompts.mixed
    apart = Prompts(**{**vars(prompts), "mixed": False})
    np.testing.assert_allclose(gradient(model, apart, batches), expected, atol=2e-6)
    np.testing.assert_allclose(
        gradient(model, prompts, batches, recompute=True), expected, atol=2e-6
    )
    plain = wrap(tiny_model("llama"), toy_tokenizer())
    plain.__dict__["short_cuts"] = type(model.short_cuts)()  # proves nothing, so takes none
    np.testing.assert_allclose(gradient(plain, prompts, batches), expected, atol=2e-6)


def test_passes_hold_every_prompt_once_and_keep_to_their_tokens() -> None:
    model = built()
    prompts = prompts_of(model, toy_task(40))
    laid = lay_out(prompts, np.random.default_rng(0).integers(0, len(prompts), (4, 9)))
    for mixed in (True, False):
        for tokens in (1, 30, 64, 10_000):
            cut = list(passes(laid, tokens, mixed))
            assert [p.start for p in cut] == [0, *(p.stop for p in cut[:-1])]
            assert cut[-1].stop == 36
            for one in cut:
                lengths = laid.lengths[one.start : one.stop]
                assert lengths.max() == one.tokens
                assert mixed or len(set(lengths)) == 1
                assert len(lengths) == 1 or len(lengths) * one.tokens <= tokens


def test_a_seed_is_the_same_fit_alone_or_among_others() -> None:
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 12, "batch": 8, "tokens": 300}
    few = fit_gates(model, task, seeds=1, **settings)
    many = fit_gates(model, task, seeds=4, **settings)
    np.testing.assert_allclose(few.plus[0], many.plus[0], atol=1e-4)
    np.testing.assert_allclose(few.minus[0], many.minus[0], atol=1e-4)
    assert np.abs(many.plus[0] - many.plus[1]).max() > 0.1  # seeds differ


def test_both_signs_start_from_the_free_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[tuple[np.ndarray, np.ndarray]] = []
    ended: list[np.ndarray] = []

    def noting(state: State, stage: Stage, slope: Any, strength: np.ndarray, **rest: Any) -> None:
        begun.append((state.logits.numpy().copy(), strength))
        assert state.update == 0
        assert not state.mean.any()  # a fresh optimiser
        train(state, stage, slope, strength, **rest)
        ended.append(state.logits.numpy().copy())

    monkeypatch.setattr("headcount.rankings.causal_gates.checkpoints.train", noting)
    fit_gates(built(), toy_task(40), updates=3, batch=4, seeds=2)
    (first, free), (second, pushed) = begun
    np.testing.assert_array_equal(first, [first_logits(seed, first.shape[1]) for seed in (0, 1)])
    assert free.tolist() == [0, 0]
    np.testing.assert_array_equal(second, np.concatenate([ended[0], ended[0]]))
    assert pushed.tolist() == [0.1, 0.1, -0.1, -0.1]


def test_orders_show_every_example_before_any_comes_again() -> None:
    order = batch_order(3, 0, examples=10, batch=4, updates=5)
    assert sorted(order.ravel()[:10]) == list(range(10))
    assert sorted(order.ravel()[10:]) == list(range(10))
    np.testing.assert_array_equal(order, batch_order(3, 0, 10, 4, 9)[:5])
    assert (order != batch_order(4, 0, 10, 4, 5)).any()
    assert (order != batch_order(3, 1, 10, 4, 5)).any()
    assert np.abs(first_logits(0, 5000)).max() <= 4  # where the clamp would hold a head for good


def test_a_fit_leaves_the_model_and_the_worlds_dice_alone() -> None:
    model = wrap(tiny_model("llama"), toy_tokenizer())
    before = torch.get_rng_state()
    fit_gates(model, toy_task(40), updates=2, batch=4, seeds=1)
    assert torch.equal(before, torch.get_rng_state())
    assert all(p.requires_grad and p.grad is None for p in model.module.parameters())
    assert not any(m._forward_pre_hooks or "forward" in vars(m) for m in model.module.modules())


# The store


class Stop(KeyboardInterrupt):
    pass


def interrupted(monkeypatch: pytest.MonkeyPatch, after: int, error: type[BaseException]) -> None:
    """Let the gradient fail so many updates from now."""
    usual, count = GatedPasses.gradient, 0

    def failing(self: GatedPasses, *args: Any) -> torch.Tensor:
        nonlocal count
        count += 1
        if count > after:
            raise error
        return usual(self, *args)

    monkeypatch.setattr(GatedPasses, "gradient", failing)


@pytest.mark.parametrize("after", [4, 7, 11, 17])
@pytest.mark.parametrize("error", [Stop, MemoryError])
def test_an_interrupted_fit_goes_on_where_it_was(
    store: Store, monkeypatch: pytest.MonkeyPatch, after: int, error: type[BaseException]
) -> None:
    """Whether it is asked to stop or dies: then what is lost is less than a checkpoint."""
    monkeypatch.setattr(gating_train, "KEEP", 3)
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 10, "batch": 8, "seeds": 2}
    whole = fit_gates(model, task, **settings)
    with monkeypatch.context() as patch:
        interrupted(patch, after, error)
        with pytest.raises(error):
            fit_gates(model, task, lab=Lab(store), **settings)
    left = 20 - after if error is Stop else 20 - (after - after % 10 % 3)
    with monkeypatch.context() as patch:
        interrupted(patch, left, AssertionError)  # no update more than that
        again = fit_gates(model, task, lab=Lab(store), **settings)
    np.testing.assert_array_equal(again.plus, whole.plus)
    np.testing.assert_array_equal(again.minus, whole.minus)
    with monkeypatch.context() as patch:
        interrupted(patch, 0, AssertionError)  # all is known
        known = fit_gates(model, task, lab=Lab(store), **settings)
    np.testing.assert_array_equal(known.plus, whole.plus)
    assert GateFit(model, task, FitSettings(**settings)).seconds(store) == 0


def test_more_seeds_later_cost_only_themselves(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 4, "batch": 8, "lab": Lab(store)}
    few = fit_gates(model, task, seeds=2, **settings)
    rows: list[int] = []
    usual = GatedPasses.gradient

    def counting(self: GatedPasses, logits: torch.Tensor, *args: Any) -> torch.Tensor:
        rows.append(len(logits))
        return usual(self, logits, *args)

    monkeypatch.setattr(GatedPasses, "gradient", counting)
    many = fit_gates(model, task, seeds=3, **settings)
    assert rows == [1] * 4 + [2] * 4
    np.testing.assert_array_equal(many.plus[:2], few.plus)
    other = fit_gates(model, toy_task(40, seed=1), seeds=2, **settings)
    assert (other.plus != few.plus).any()  # of another task


def test_by_name_a_ranking_comes_from_the_store_the_second_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, task = built(), toy_task(40)
    settings: dict[str, Any] = {"updates": 2, "batch": 8, "seeds": 2}
    first = {role: rank(model, task, role, lab=Lab(store), **settings) for role in ROLES}
    interrupted(monkeypatch, 0, AssertionError)
    for role, scores in first.items():
        again = rank(model, task, role, lab=Lab(store), **settings)
        assert again.to_json() == scores.to_json()
        assert scores.method == role
        assert scores.parameters["updates"] == 2


def test_fit_time_is_a_number_of_seconds() -> None:
    model, task = built(), toy_task(40)
    little = GateFit(model, task, FitSettings(updates=10, batch=8, seeds=1)).seconds(None)
    much = GateFit(model, task, FitSettings(updates=1000, batch=8, seeds=10)).seconds(None)
    assert 0 < little < much


# Bad input


def test_gates_that_diverge_are_refused() -> None:
    module = tiny_model("llama")
    model = wrap(module, toy_tokenizer(), name="broken")
    with torch.no_grad():
        module.lm_head.weight[7] = torch.nan
    with pytest.raises(HeadcountError, match=r"of broken on \"toy-0\" diverged.*NaN.*float32"):
        fit_gates(model, toy_task(40), updates=2, batch=4, seeds=1)


def test_too_few_examples_are_refused_and_few_are_noted() -> None:
    model = built()
    with pytest.raises(HeadcountError, match=r'"toy-0" has \d examples?, and .* at least 8'):
        fit_gates(model, toy_task(6), updates=1, seeds=1)
    gates = fit_gates(model, toy_task(40), updates=1, batch=64, seeds=1)
    examples = len(toy_task(40).part("ranking"))
    assert gates.parameters["batch"] == gates.parameters["examples"] == examples
    assert "every update saw all of them" in gates.parameters["note"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"variant": "publishd"}, 'Did you mean "published"'),
        ({"updates": 0}, "at least 1 update"),
        ({"batch": 0}, "batch of 1"),
        ({"seeds": 0}, "at least 1 seed"),
    ],
)
def test_settings_that_make_no_fit_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(HeadcountError, match=said):
        fit_gates(built(), toy_task(40), **settings)


def test_half_precision_works_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    model = wrap(tiny_model("llama").to(torch.bfloat16), toy_tokenizer(), name="half")
    settings: dict[str, Any] = {"updates": 2, "batch": 4, "seeds": 1}
    gates = fit_gates(model, toy_task(40), **settings)
    assert gates.plus.dtype == np.float64
    assert State.at([first_logits(0, 3)], model.device).logits.dtype == torch.float32

    def unable(*_: Any, **__: Any) -> None:
        raise RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'")

    monkeypatch.setattr(GatedPasses, "_logprobs", unable)
    with pytest.raises(
        HeadcountError, match=r"half cannot be fitted in bfloat16 on this cpu.*Half"
    ):
        fit_gates(model, toy_task(40), **settings)


def test_memory_that_runs_out_halves_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built()
    prompts = prompts_of(model, toy_task(24))
    batches = np.random.default_rng(0).integers(0, len(prompts), (2, 6))
    expected = gradient(model, prompts, batches)
    usual = GatedPasses._logprobs
    sizes: list[int] = []

    def small(self: GatedPasses, some: Prompts, examples: torch.Tensor, one: Any) -> torch.Tensor:
        sizes.append(len(examples) * one.tokens)
        if sizes[-1] > 30 and not self.recompute:
            raise torch.OutOfMemoryError("out of memory")
        return usual(self, some, examples, one)

    monkeypatch.setattr(GatedPasses, "_logprobs", small)
    np.testing.assert_allclose(gradient(model, prompts, batches, tokens=200), expected, atol=2e-6)
    assert max(sizes[-3:]) <= 30 < max(sizes)

    def never(*_: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(GatedPasses, "_logprobs", never)
    with pytest.raises(HeadcountError, match="not enough memory"):
        gradient(model, prompts, batches)


# The result


def example_gates() -> CausalGates:
    plus = np.array([[1.0, 0.9, 0.1, 0.6], [1.0, 0.8, 0.7, 0.6]])
    minus = np.array([[0.9, 0.1, 0.0, 0.3], [0.8, 0.6, 0.1, 0.3]])
    return CausalGates(HeadLayout((2, 2)), plus, minus, {"seeds": 2, "note": "made up"})


def test_scores_and_shares() -> None:
    gates = example_gates()
    np.testing.assert_allclose(gates.facilitation, gates.minus)
    np.testing.assert_allclose(gates.interference, 1 - gates.plus)
    np.testing.assert_allclose(gates.irrelevance, gates.plus * (1 - gates.minus))
    names = ["facilitation", "irrelevance", "interference", "undecided"]
    assert gates.labels(0).tolist() == names
    shares = {row["role"]: row for row in gates.shares()}
    assert shares["facilitation"]["share"] == 3 / 8
    assert (shares["facilitation"]["lowest"], shares["facilitation"]["highest"]) == (0.25, 0.5)
    assert (shares["facilitation"]["always"], shares["facilitation"]["any"]) == (0.25, 0.5)
    assert (shares["interference"]["always"], shares["interference"]["any"]) == (0.0, 0.25)
    assert shares["facilitation or interference"]["any"] == 0.75
    assert gates.ranking("irrelevance").values.tolist() == gates.irrelevance.mean(0).tolist()
    with pytest.raises(HeadcountError, match='Did you mean "irrelevance"'):
        gates.ranking("irelevance")


def test_gates_round_trip_through_a_file(tmp_path: Path) -> None:
    gates = example_gates()
    gates.save(tmp_path / "sub" / "gates.json")
    again = CausalGates.load(tmp_path / "sub" / "gates.json")
    np.testing.assert_allclose(again.plus, gates.plus, atol=1e-5)
    np.testing.assert_allclose(again.minus, gates.minus, atol=1e-5)
    assert again.layout == gates.layout
    assert again.parameters == gates.parameters
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(HeadcountError, match="not a file of causal gates"):
        CausalGates.load(tmp_path / "bad.json")
    with pytest.raises(HeadcountError, match="Cannot read"):
        CausalGates.load(tmp_path / "missing.json")
    with pytest.raises(HeadcountError, match="between 0 and 1"):
        CausalGates(gates.layout, gates.plus + np.nan, gates.minus)
    with pytest.raises(HeadcountError, match="shape"):
        CausalGates(gates.layout, gates.plus[:, :3], gates.minus[:, :3])


# Contrast


@pytest.mark.parametrize("tokens", [9, 1000])
def test_the_contrastive_gradient_is_that_of_the_printed_loss(tokens: int) -> None:
    model = built()
    keep, forget = (prompts_of(model, toy_task(24, seed=seed)) for seed in (0, 1))
    rng = np.random.default_rng(0)
    kept, forgot = (rng.integers(0, len(some), (2, 1, 4)) for some in (keep, forget))
    logits = start(model, 2)

    def logprobs(prompts: Prompts, batch: np.ndarray, leaf: torch.Tensor) -> torch.Tensor:
        run = GatedPasses(model)
        values = []
        for row, places in enumerate(batch):
            for place in places:
                laid = lay_out(prompts, np.array([[place]]))
                (one,) = passes(laid, 100, True)
                with run._gated(leaf[row : row + 1].sigmoid()):
                    values.append(run._logprobs(prompts, laid.examples, one))
        return torch.cat(values).view(batch.shape)

    with measuring(model), frozen(model), torch.enable_grad():
        leaf = logits.clone().requires_grad_()
        ours, theirs = logprobs(keep, kept[:, 0], leaf), logprobs(forget, forgot[:, 0], leaf)
        gap = theirs - ours.detach()
        loss = (-ours.mean(1) + gap.clamp(min=-5).mean(1)).sum()
        (expected,) = torch.autograd.grad(loss, leaf)
        run = GatedPasses(model, tokens=tokens)
        got = contrast(run, keep, forget, kept, forgot)(logits, 0)
    torch.testing.assert_close(got, expected, atol=2e-6, rtol=1e-4)


def test_contrastive_gates_shut_what_only_the_forgotten_skill_needs(store: Store) -> None:
    """A plant gives the subject's name; heads that write against it serve any other answer."""
    planted = spread()
    model, keep = planted.model, planted.task
    forget = Task("others", 1, tuple(_swapped(example) for example in keep))
    settings: dict[str, Any] = {"updates": 150, "batch": 16, "seeds": 2}
    gates = fit_contrastive(model, keep, forget, lab=Lab(store), **settings)
    by_head = dict(zip(model.layout, gates.gates.mean(0), strict=True))
    assert min(by_head[head] for head in planted.heads("needed")) > 0.8
    assert set(gates.ranking().top(2)) <= set(planted.heads("interfering"))
    again = fit_contrastive(model, keep, forget, lab=Lab(store), **settings)
    np.testing.assert_array_equal(again.gates, gates.gates)
    with pytest.raises(HeadcountError, match="at least 1 update"):
        fit_contrastive(model, keep, forget, updates=0)


def _swapped(example: Example) -> Example:
    return Example(
        example.id,
        example.prompt,
        example.foils[0],
        (example.target,),
        template=example.template,
        content=example.content,
    )


def test_the_published_schedule_is_the_default() -> None:
    schedule = make_schedule("published", 500, 64)
    assert (schedule.free.lr, schedule.free.lr_end) == (0.1, 0.01)
    assert (schedule.pushed.lr, schedule.pushed.lr_end) == (0.5, 0.1)
    assert (schedule.free.clip, schedule.push) == (None, 0.1)
    released = make_schedule("released", 500, 64)
    assert {released.free.lr, released.free.lr_end, released.pushed.lr} == {1.0}
    assert released.pushed.clip == 1.0
