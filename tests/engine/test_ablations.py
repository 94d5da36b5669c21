"""Ablations: what they are made of, what they say about it, and when they are refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from tiny import tiny_model
from toy import toy_task, toy_tokenizer

from headcount import HeadcountError, evaluate, wrap
from headcount.engine.measure.ablations import make_ablation
from headcount.engine.measure.batch import Batch, make_batches
from headcount.models.model import Model
from headcount.tasks import Encoded, Task, encode

TOKENS = 512


@pytest.fixture(scope="module")
def model() -> Model:
    return wrap(tiny_model("llama"), toy_tokenizer())


def parts(task: Task, model: Model) -> tuple[list[Encoded], list[Encoded]]:
    """The ranking and the test split as token ids."""
    ranking, test = (encode(task.split(part), model.tokenizer) for part in ("ranking", "test"))
    return ranking, test


@torch.no_grad()
def z_of(model: Model, ids: Sequence[int]) -> list[torch.Tensor]:
    """The input of each output projection on one sequence: (tokens, width)."""
    seen: list[torch.Tensor] = []
    handles = [
        block.self_attn.o_proj.register_forward_pre_hook(lambda _, args: seen.append(args[0][0]))
        for block in model.module.model.layers
    ]
    model.module(input_ids=torch.tensor([list(ids)]), use_cache=False)
    for handle in handles:
        handle.remove()
    return seen


def corrupted_ids(one: Encoded) -> tuple[int, ...]:
    assert one.corrupted is not None
    return (*one.corrupted, *one.target[:-1])


def batches(examples: Sequence[Encoded]) -> list[Batch]:
    found = make_batches(examples, tokens=TOKENS)
    assert sorted(e for batch in found for e in batch.examples) == list(range(len(examples)))
    return found


def test_zero_needs_nothing(model: Model) -> None:
    _, test = parts(toy_task(), model)
    ablation = make_ablation("zero", model, test, [], TOKENS)
    assert ablation.description == "zero"
    assert all(ablation.provide(batch) is None for batch in batches(test))


def test_corrupted_is_what_heads_say_on_the_corrupted_prompt(model: Model) -> None:
    _, test = parts(toy_task(), model)
    ablation = make_ablation("corrupted", model, test, [], TOKENS)
    for batch in batches(test):
        z0 = ablation.provide(batch)
        assert z0 is not None
        for row, example in enumerate(batch.examples):
            for mine, site in zip(z_of(model, corrupted_ids(test[example])), z0, strict=True):
                torch.testing.assert_close(site[row], mine, atol=1e-5, rtol=0)


def test_the_mean_by_position_is_within_template_and_length(model: Model) -> None:
    ranking, test = parts(toy_task(24), model)
    ablation = make_ablation("mean", model, test, ranking, TOKENS)
    assert ablation.description == (
        f"mean over {len(ranking)} corrupted prompts of the ranking split, per position within one "
        "template and length"
    )
    for batch in batches(test):
        z0 = ablation.provide(batch)
        assert z0 is not None
        for row, example in enumerate(batch.examples):
            like = [
                z_of(model, corrupted_ids(one))
                for one in ranking
                if one.example.template == test[example].example.template
                and len(corrupted_ids(one)) == len(corrupted_ids(test[example]))
            ]
            for mine, site in zip(zip(*like, strict=True), z0, strict=True):
                expected = torch.stack(mine).mean(0)  # (tokens, width)
                torch.testing.assert_close(site[row], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("reason", ["no templates", "no prompt of that length"])
def test_otherwise_the_mean_is_over_all_positions(model: Model, reason: str) -> None:
    task = toy_task(24, templates=reason != "no templates")
    ranking, test = parts(task, model)
    if reason == "no prompt of that length":
        ranking = [one for one in ranking if one.example.template != test[0].example.template]
    ablation = make_ablation("mean", model, test, ranking, TOKENS)
    assert ablation.description == (
        f"mean over {len(ranking)} corrupted prompts of the ranking split, over all positions"
    )
    everything = zip(*(z_of(model, corrupted_ids(one)) for one in ranking), strict=True)
    expected = [torch.cat(site).mean(0) for site in everything]  # every token counts once
    for batch in batches(test):
        for mine, site in zip(expected, ablation.provide(batch) or (), strict=True):
            shape = (*batch.ids.shape, len(mine))
            torch.testing.assert_close(
                torch.broadcast_to(site, shape), mine.expand(shape), atol=1e-5, rtol=0
            )


def test_without_corrupted_the_mean_is_over_the_prompts_and_says_so(model: Model) -> None:
    task = toy_task(24)
    task = replace(task, examples=tuple(replace(e, corrupted=None) for e in task.examples))
    ranking, test = parts(task, model)
    ablation = make_ablation("mean", model, test, ranking, TOKENS)
    assert ablation.description.startswith(f"mean over {len(ranking)} prompts of the ranking split")
    (batch, *_) = batches(test)
    z0 = ablation.provide(batch)
    assert z0 is not None
    (like, *others) = (
        z_of(model, (*one.prompt, *one.target[:-1]))
        for one in ranking
        if len(one.prompt) + len(one.target) - 1 == batch.ids.shape[1]
    )
    expected = torch.stack([like[0], *(other[0] for other in others)]).mean(0)
    torch.testing.assert_close(z0[0][0], expected, atol=1e-5, rtol=0)


def test_what_determines_a_ablation_is_in_its_identity(model: Model) -> None:
    ranking, test = parts(toy_task(24), model)
    made = [
        make_ablation("zero", model, test, [], TOKENS),
        make_ablation("corrupted", model, test, [], TOKENS),
        make_ablation("mean", model, test, ranking, TOKENS),
        make_ablation("mean", model, test, ranking[:-1], TOKENS),
        make_ablation("mean", model, test[:-1], ranking[3:], TOKENS),
    ]
    assert len({ablation.identity for ablation in made}) == len(made)
    again = make_ablation("mean", model, test, ranking, TOKENS)
    assert again.identity == made[2].identity


def test_corrupted_needs_corrupted_prompts_of_equal_length(model: Model) -> None:
    task = toy_task()
    for corrupted, words in ((None, "no corrupted prompt"), ("ba ba", "make them equally long")):
        bad = replace(
            task, examples=tuple(replace(example, corrupted=corrupted) for example in task.examples)
        )
        with pytest.raises(HeadcountError, match=words):
            evaluate(model, bad, np.zeros(8), ablation="corrupted", metric="logprob")


def test_an_unknown_ablation_is_refused_with_a_suggestion(model: Model) -> None:
    with pytest.raises(HeadcountError, match=r'no ablation "zeros" .* Did you mean "zero"\?'):
        make_ablation("zeros", model, [], [], TOKENS)


@pytest.mark.parametrize("model_type", ["llama", "gpt2"])
def test_with_every_head_off_attention_writes_what_it_writes_on_the_corrupted_prompt(
    model_type: str,
) -> None:
    """Only the tokens' own embeddings are then those of the prompt."""
    model = wrap(tiny_model(model_type), toy_tokenizer())
    named = dict(model.module.named_modules())
    for example in toy_task(3, targets=[1]).examples:
        task = Task("one", 1, (example,))
        (one,) = encode(task, model.tokenizer)
        written: dict[str, torch.Tensor] = {}  # by each site at the last position, in the last pass

        def note(name: str, written: dict[str, torch.Tensor] = written) -> Callable[..., None]:
            return lambda module, args, output: written.update({name: output[0, -1].clone()})

        handles = [
            named[site.module].register_forward_hook(note(site.module)) for site in model.sites
        ]
        evaluate(model, task, np.zeros(8), ablation="corrupted", split="all", metric="logprob")
        gated = dict(written)
        model.module(input_ids=torch.tensor([corrupted_ids(one)]), use_cache=False)
        for handle in handles:
            handle.remove()
        assert len(gated) == 2
        for name, expected in written.items():
            torch.testing.assert_close(gated[name], expected, atol=1e-5, rtol=0)
