"""Contrastive gates: the printed loss, and heads that only the forgotten skill needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from planted import NAMES, NOBODY, SIZE, SUBJECT, UNTURNED, WORDS, plant
from rankings.causal_gates.gate_cases import built, interrupted, prompts_of, spread, start
from toy import toy_task, word_tokenizer

from headcount import Example, HeadcountError, Lab, Task, rank, wrap
from headcount.engine.measure.forward import frozen, measuring
from headcount.models.model import Model
from headcount.rankings.causal_gates.contrast import contrast, fit_contrastive
from headcount.rankings.causal_gates.passes import GatedPasses, LoadedPrompts, lay_out, passes
from headcount.rankings.ranking import RANKINGS, Ranking
from headcount.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "store.sqlite") as opened:
        yield opened


@pytest.mark.parametrize("tokens", [9, 1000])
def test_the_contrastive_gradient_is_that_of_the_printed_loss(tokens: int) -> None:
    model = built()
    keep, forget = (prompts_of(model, toy_task(24, seed=seed)) for seed in (0, 1))
    rng = np.random.default_rng(0)
    kept, forgot = (rng.integers(0, len(some), (2, 1, 4)) for some in (keep, forget))
    logits = start(model, 2)

    def logprobs(prompts: LoadedPrompts, batch: np.ndarray, leaf: torch.Tensor) -> torch.Tensor:
        run = GatedPasses(model)
        values = []
        for row, places in enumerate(batch):
            for place in places:
                laid = lay_out(prompts, np.array([[place]]))
                (one,) = passes(laid, 100)
                with run._gated(leaf[row : row + 1].sigmoid()):
                    values.append(run._logprobs(laid, one))
        return torch.cat(values).view(batch.shape)

    with measuring(model), frozen(model), torch.enable_grad():
        leaf = logits.clone().requires_grad_()
        ours, theirs = logprobs(keep, kept[:, 0], leaf), logprobs(forget, forgot[:, 0], leaf)
        gap = theirs - ours.detach()
        loss = (-ours.mean(1) + gap.clamp(min=-5).mean(1)).sum()
        (expected,) = torch.autograd.grad(loss, leaf)
        run = GatedPasses(model, tokens=tokens)
        got = contrast(run, [keep, forget], [kept, forgot])(logits, 0)
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
    with pytest.raises(HeadcountError, match="takes updates from 1"):
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


FIRST, SECOND = ("0.1", "1.3"), ("1.0", "2.2")  # the heads of two skills, which share none
FRAMES = ("we saw {}", "so {} was it", "{} here and there", "then {} who was")


def two_skills() -> tuple[Model, Task, Task]:
    """A model that names the word marked "+" by some heads, and the word marked "-" by others."""
    module = plant([*FIRST, *SECOND], n=8).model.module
    tokenizer = word_tokenizer(WORDS)
    with torch.no_grad():
        embedding = module.model.embed_tokens.weight
        embedding[:, NOBODY] = 5  # both heads of a skill write more than this, and one alone less
        marked = tokenizer.convert_tokens_to_ids([f"-{name}" for name in NAMES])
        embedding[marked, SUBJECT] = -1  # keys of the other sign
        for head in SECOND:
            layer, index = map(int, head.split("."))
            query = module.model.layers[layer].self_attn.q_proj.weight
            query.view(-1, SIZE, query.shape[1])[index, UNTURNED] *= -1
    tasks = [
        Task(
            name,
            1,
            tuple(
                Example(
                    f"{number}",
                    FRAMES[number % 4].format(f"{mark}{who}"),
                    f" {who}",
                    template=str(number % 4),
                    content=f"{number // 4} {who}",
                )
                for number, who in enumerate(NAMES * 6)
            ),
        )
        for name, mark in (("first", "+"), ("second", "-"))
    ]
    return wrap(module, tokenizer, name="two skills"), *tasks


@pytest.mark.parametrize(
    ("variant", "swapped"), [("published", False), ("short", False), ("short", True)]
)
def test_of_two_disjoint_skills_the_gates_shut_the_heads_of_one(
    variant: str, swapped: bool
) -> None:
    model, first, second = two_skills()
    keep, forget = (second, first) if swapped else (first, second)
    needed, gone = (SECOND, FIRST) if swapped else (FIRST, SECOND)
    updates = 40 if variant == "short" else 120
    how: dict[str, Any] = {"updates": updates, "batch": 16, "seeds": 2, "variant": variant}
    gates = fit_contrastive(model, keep, forget, lab=Lab(store=None), **how)
    names = [str(head) for head in model.layout]
    for own, shut in zip(gates.gates, gates.shut, strict=True):
        by_head = dict(zip(names, own, strict=True))
        assert min(by_head[head] for head in needed) > 0.8
        # Either head of a skill is needed for it, so one that is shut is enough.
        assert min(by_head[head] for head in gone) < 0.1
        assert {name for name, off in zip(names, shut, strict=True) if off} <= set(gone)
    assert str(gates.ranking().top(1)[0]) in gone


def test_the_ranking_names_the_task_to_forget(store: Store) -> None:
    planted = spread()
    model, task = planted.model, planted.task
    with pytest.raises(HeadcountError, match="name it by the setting forget"):
        RANKINGS["contrast"].bind()
    with pytest.raises(HeadcountError, match=r'no task "antonym-instuction".*Did you mean'):
        RANKINGS["contrast"].bind(forget="antonym-instuction")
    with pytest.raises(HeadcountError, match="variant of contrastive gates"):
        RANKINGS["contrast"].bind(forget="ioi", variant="slow")
    with pytest.raises(HeadcountError, match="is on both sides"):
        fit_contrastive(model, task, task, updates=1)


def test_a_ranking_goes_on_and_tells_tasks_apart(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = spread()
    model, keep = planted.model, planted.task
    files = []
    for name, examples in (("others", keep.examples), ("fewer", keep.examples[:48])):
        files.append(tmp_path / f"{name}.jsonl")
        rows = [_swapped(example) for example in examples]
        files[-1].write_text("\n".join(_line(row) for row in rows), encoding="utf-8")
    how: dict[str, Any] = {"updates": 8, "batch": 8, "seeds": 2}
    asked = Ranking.of(model, keep, "contrast", forget=str(files[0]), **how)
    bound = Lab(store).cost([asked])
    assert bound.tokens > 0
    with pytest.MonkeyPatch.context() as patch:
        interrupted(patch, 5, KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            asked.result(Lab(store))
    with pytest.MonkeyPatch.context() as patch:
        interrupted(patch, 2 * 6, AssertionError)  # two calls an update, six updates left
        scores = asked.result(Lab(store))
    whole = rank(model, keep, "contrast", forget=str(files[0]), lab=Lab(store=None), **how)
    np.testing.assert_allclose(scores.values, whole.values, atol=1e-6)
    assert scores.parameters["forget"] == "others"
    assert "did not converge" in scores.parameters["note"]
    assert Lab(store).cost([asked]).tokens == 0
    other = Ranking.of(model, keep, "contrast", forget=str(files[1]), **how)
    assert other.context != asked.context
    interrupted(monkeypatch, 0, AssertionError)
    assert asked.result(Lab(store)).values.tolist() == scores.values.tolist()


def _line(example: Example) -> str:
    fields = ("id", "prompt", "target", "foils", "template", "content")
    return json.dumps({name: getattr(example, name) for name in fields})
