"""Passes of a fit of causal gates: their gradient is that of the loss, however they are cut."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rankings.causal_gates.gate_cases import built, gradient, prompts_of, start
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, evaluate, wrap
from headcount.rankings.causal_gates.passes import GatedPasses, LaidOut, Pass, lay_out, passes
from headcount.rankings.causal_gates.schedule import Stage, first_logits
from headcount.rankings.causal_gates.training import State, push


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
            metric="logprob_per_token",
            split="ranking",
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
    apart = replace(prompts, mixed=False)
    np.testing.assert_allclose(gradient(model, apart, batches), expected, atol=2e-6)
    np.testing.assert_allclose(
        gradient(model, prompts, batches, recompute=True), expected, atol=2e-6
    )
    plain = wrap(tiny_model("llama"), toy_tokenizer())
    plain.__dict__["fast_paths"] = type(model.fast_paths)()  # proves nothing, so takes none
    np.testing.assert_allclose(gradient(plain, prompts, batches), expected, atol=2e-6)


def test_passes_hold_every_prompt_once_and_keep_to_their_tokens() -> None:
    model = built()
    prompts = prompts_of(model, toy_task(40))
    batches = np.random.default_rng(0).integers(0, len(prompts), (4, 9))
    for mixed in (True, False):
        laid = lay_out(replace(prompts, mixed=mixed), batches)
        for tokens in (1, 30, 64, 10_000):
            cut = list(passes(laid, tokens))
            assert [p.places.start for p in cut] == [0, *(p.places.stop for p in cut[:-1])]
            assert cut[-1].places.stop == 36
            for one in cut:
                lengths = laid.lengths[one.places]
                assert lengths.max() == one.tokens
                assert mixed or len(set(lengths)) == 1
                assert len(lengths) == 1 or len(lengths) * one.tokens <= tokens


def test_memory_that_runs_out_halves_the_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = built()
    prompts = prompts_of(model, toy_task(24))
    batches = np.random.default_rng(0).integers(0, len(prompts), (2, 6))
    expected = gradient(model, prompts, batches)
    usual = GatedPasses._logprobs
    sizes: list[int] = []

    def small(self: GatedPasses, laid: LaidOut, some: Pass) -> torch.Tensor:
        sizes.append(len(laid.examples[some.places]) * some.tokens)
        if sizes[-1] > 30 and not self.recompute:
            raise torch.OutOfMemoryError("out of memory")
        return usual(self, laid, some)

    monkeypatch.setattr(GatedPasses, "_logprobs", small)
    np.testing.assert_allclose(gradient(model, prompts, batches, tokens=200), expected, atol=2e-6)
    assert max(sizes[-3:]) <= 30 < max(sizes)

    def never(*_: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr(GatedPasses, "_logprobs", never)
    with pytest.raises(HeadcountError, match="not enough memory"):
        gradient(model, prompts, batches)
